"""Control: one network trained on every task seen so far, all at once. It needs the data of all of them.

min_θ Σ_{i ≤ t} L_i(θ; D_i), from a fresh start at every task
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bocl.checks import Natural, checked
from bocl.errors import DataError
from bocl.methods.checks import Seen, as_graph, check_inputs, check_task, memory_told, seen_from
from bocl.methods.method import Learned, State
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
from bocl.wording import counted


class Joint:
    """Control: one network with a head per task, trained anew on all tasks together."""

    name: ClassVar[str] = "joint"
    forgets: ClassVar[bool] = True

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
        self.network = PlainNetwork(self.graph, device=self.device)
        self.tasks: list[Task] = []
        self.seen: list[Seen] = []

    @memory_told(WAY_OUT_OF_MEMORY)
    def learn(self, task: Task, listen: Listener = nobody) -> Learned:
        """Train from scratch on this task and all before it."""
        check_task(self.graph, task, self.seen)
        if len(self.tasks) != len(self.seen):
            before = counted(len(self.seen), "task")
            raise DataError(f"joint training needs the data of the {before} learnt before; call recall()")
        tasks = [*self.tasks, task]
        data = [task_to_device(each, index, self.device) for index, each in enumerate(tasks)]
        stored = self.parameters() if self.seen else dict.fromkeys(PARTS, 0)
        network = PlainNetwork(self.graph, device=self.device)
        for index, each in enumerate(tasks):
            network.add_task(each.classes, seed=seed_for(self.seed, "base", index))
        order = seed_for(self.seed, "order", len(self.seen))
        effort = train_plain(network, data, self.recipe, name=task.name, seed=order, listen=listen)
        learned = learned_plain(network, task, data[-1], head=len(self.seen), before=stored, effort=effort)
        self.network, self.tasks = network, tasks
        self.seen.append(Seen.of(task))
        return learned

    def recall(self, tasks: Sequence[Task]) -> None:
        """Take back the data of the tasks learnt before, which no saved state holds."""
        self.tasks = list(tasks)

    def predict(self, x: Any, task: int) -> Tensor:
        """Return logits (n, classes) of the network as it is now.

        x  (n, *shape): bytes for a task of bytes, scaled here; float32 is taken as already scaled (``Split.inputs``)
        """
        return self.network.predict(check_inputs(x, task, self.seen, self.device), task)

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part."""
        return count_tensors(self.network.tensors)

    def state(self) -> State:
        """Return what has been learnt."""
        return State({"seen": [asdict(entry) for entry in self.seen]}, dict(self.network.tensors))

    def restore(self, state: State) -> None:
        """Take back what ``state`` returned."""
        self.seen = seen_from(state.facts)
        self.network.restore(state.tensors, [entry.classes for entry in self.seen])

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder of its own."""
        save(self, folder)
