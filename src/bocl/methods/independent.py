"""Control: a fresh base network for every task. Nothing is shared, nothing is forgotten, everything is stored."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bocl.checks import Natural, checked
from bocl.methods.checks import Seen, as_graph, check_inputs, check_task, memory_told, seen_from
from bocl.methods.method import Learned, State, join_tensors, part_tensors
from bocl.methods.plain import WAY_OUT_OF_MEMORY, learned_plain, train_plain
from bocl.methods.saving import save
from bocl.networks.graph import Graph
from bocl.networks.growth import PARTS, count_tensors
from bocl.networks.plain import PlainNetwork
from bocl.records.events import Listener, nobody
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import task_to_device
from bocl.training.device import resolve_device
from bocl.training.recipe import Recipe


class Independent:
    """Control: a network of its own for every task, each trained alone."""

    name: ClassVar[str] = "independent"
    forgets: ClassVar[bool] = False

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        recipe: Recipe = Recipe(),  # noqa: B008 - frozen
        seed: int = 0,
        device: str | torch.device = "auto",
    ) -> None:
        self.graph = as_graph(network)
        self.recipe = checked("recipe", recipe, Recipe)
        self.seed = checked("seed", seed, Natural)
        self.device = resolve_device(device)
        self.networks: list[PlainNetwork] = []
        self.seen: list[Seen] = []

    @memory_told(WAY_OUT_OF_MEMORY)
    def learn(self, task: Task, listen: Listener = nobody) -> Learned:
        """Train a network of its own for one more task."""
        check_task(self.graph, task, self.seen)
        index = len(self.seen)
        data = task_to_device(task, index, self.device)
        network = PlainNetwork(self.graph, shared_head=True, device=self.device)
        network.add_task(task.classes, seed=seed_for(self.seed, "base", index))
        order = seed_for(self.seed, "order", index)
        effort = train_plain(network, [data], self.recipe, name=task.name, seed=order, listen=listen)
        learned = learned_plain(network, task, data, head=0, before=dict.fromkeys(PARTS, 0), effort=effort)
        self.networks.append(network)
        self.seen.append(Seen.of(task))
        return learned

    def predict(self, x: Any, task: int) -> Tensor:
        """Return logits (n, classes) of the task's own network.

        x  (n, *shape): bytes for a task of bytes, scaled here; float32 is taken as already scaled (``Split.inputs``)
        """
        x = check_inputs(x, task, self.seen, self.device)
        return self.networks[task].predict(x, 0)

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part."""
        by_task = [count_tensors(network.tensors) for network in self.networks]
        return {part: sum(task[part] for task in by_task) for part in PARTS}

    def state(self) -> State:
        """Return what has been learnt."""
        tensors = [network.tensors for network in self.networks]
        return State({"seen": [asdict(entry) for entry in self.seen]}, join_tensors(tensors))

    def restore(self, state: State) -> None:
        """Take back what ``state`` returned."""
        self.seen = seen_from(state.facts)
        self.networks = []
        for entry, tensors in zip(self.seen, part_tensors(state.tensors, len(self.seen)), strict=True):
            network = PlainNetwork(self.graph, shared_head=True, device=self.device)
            network.restore(tensors, [entry.classes])
            self.networks.append(network)

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder of its own."""
        save(self, folder)
