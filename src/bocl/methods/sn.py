"""SN: one network fine-tuned through all tasks, with nothing against forgetting.

min_θ L_t(θ; D_t), started from θ_{t-1}
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bocl.checks import Natural, checked, section
from bocl.methods.checks import Seen, as_graph, check_inputs, check_task, memory_told, seen_from
from bocl.methods.method import Learned, State
from bocl.methods.plain import WAY_OUT_OF_MEMORY, fine_tune
from bocl.methods.saving import save
from bocl.networks.graph import Graph
from bocl.networks.growth import count_tensors
from bocl.networks.plain import PlainNetwork
from bocl.records.events import Listener, nobody
from bocl.tasks.task import Task
from bocl.training.batches import task_to_device
from bocl.training.device import resolve_device
from bocl.training.recipe import Recipe


@section("sn")
@dataclass(frozen=True)
class SNSettings:
    """Of the method `sn`: one head for all tasks, or one each."""

    shared_head: bool = False


class SN:
    """Single network, fine-tuned on one task after another; every task has its own head unless ``shared_head``."""

    name: ClassVar[str] = "sn"
    forgets: ClassVar[bool] = True

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        shared_head: bool = False,
        recipe: Recipe = Recipe(),  # noqa: B008 - frozen
        seed: int = 0,
        device: str | torch.device = "auto",
    ) -> None:
        self.graph = as_graph(network)
        self.shared_head = SNSettings(shared_head).shared_head
        self.recipe = checked("recipe", recipe, Recipe)
        self.seed = checked("seed", seed, Natural)
        self.device = resolve_device(device)
        self.network = PlainNetwork(self.graph, shared_head=shared_head, device=self.device)
        self.seen: list[Seen] = []

    @memory_told(WAY_OUT_OF_MEMORY)
    def learn(self, task: Task, listen: Listener = nobody) -> Learned:
        """Fine-tune the whole network on one more task."""
        check_task(self.graph, task, self.seen)
        data = task_to_device(task, len(self.seen), self.device)
        self.network, learned = fine_tune(self.network, task, data, self.recipe, seed=self.seed, listen=listen)
        self.seen.append(Seen.of(task))
        return learned

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
