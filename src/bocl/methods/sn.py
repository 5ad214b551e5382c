"""SN: one network fine-tuned through all tasks, with nothing against forgetting.

min_θ L_t(θ; D_t), started from θ_{t-1}
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import ClassVar

from torch import Tensor, nn

from bocl.methods.method import Learned, Seen, State, as_graph, check_inputs, check_task, seen_from
from bocl.methods.plain import learned_plain, train_plain
from bocl.methods.saving import save
from bocl.networks.graph import Graph
from bocl.networks.growth import count_tensors
from bocl.networks.plain import PlainNetwork
from bocl.records.events import Listener, nobody
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import task_to_device
from bocl.training.device import resolve_device
from bocl.training.recipe import Recipe


class SN:
    """A single network of fixed size; every task has its own head unless ``shared_head``."""

    name: ClassVar[str] = "sn"

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        shared_head: bool = False,
        recipe: Recipe = Recipe(),  # noqa: B008 - frozen
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.graph = as_graph(network)
        self.shared_head, self.recipe, self.seed = shared_head, recipe, seed
        self.device = resolve_device(device)
        self.network = PlainNetwork(self.graph, shared_head=shared_head, device=self.device)
        self.seen: list[Seen] = []

    def learn(self, task: Task, listen: Listener = nobody) -> Learned:
        """Fine-tune the whole network on one more task."""
        check_task(self.graph, task, self.seen)
        index = len(self.seen)
        data = task_to_device(task, index, self.device)
        before = self.parameters()
        network = self.network.copy()  # an interrupted training leaves nothing behind
        network.add_task(task.classes, seed=seed_for(self.seed, "base", index))
        order = seed_for(self.seed, "order", index)
        samples = train_plain(network, [data], self.recipe, seed=order, listen=listen)
        self.network = network
        self.seen.append(Seen.of(task))
        return learned_plain(self.network, task, data, head=index, before=before, samples=samples)

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes) of the network as it is now."""
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
