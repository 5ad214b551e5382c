"""Control: the same growth for every task, without a search. What the search must beat at equal parameters."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from torch import Tensor, nn

from bocl.errors import ConfigError
from bocl.methods.growing import growing_state, restore_growing, score, stored_parameters
from bocl.methods.method import Learned, Seen, State, as_graph, check_inputs, check_task
from bocl.methods.rounds import train_round
from bocl.methods.saving import save
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Graph, Widths
from bocl.networks.growth import GrowthSettings, count_tensors
from bocl.records.events import Listener, RoundStarted, nobody
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import task_to_device
from bocl.training.device import resolve_device
from bocl.training.recipe import Recipe


class Fixed:
    """A growing network that adds ``widths`` units for every task after the first: one number, or one per group."""

    name: ClassVar[str] = "fixed"

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        widths: int | Widths = 4,
        growth: GrowthSettings = GrowthSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008 - frozen
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        self.graph = as_graph(network)
        self.widths, self.growth, self.recipe, self.seed = widths, growth, recipe, seed
        self.device = resolve_device(device)
        self.network = ExpandableNetwork(self.graph, growth, self.device)
        self.seen: list[Seen] = []
        self._step = _per_group(widths, len(self.graph.groups))

    def learn(self, task: Task, listen: Listener = nobody) -> Learned:
        """Learn one more task with the fixed growth."""
        check_task(self.graph, task, self.seen)
        index = len(self.seen)
        data = task_to_device(task, index, self.device)
        z = self._step if self.seen else self.graph.widths
        listen(RoundStarted("base", (z,)))
        (child,) = train_round(
            self.network,
            data,
            [z],
            classes=task.classes,
            recipe=self.recipe,
            seeds=[seed_for(self.seed, "base", index)],
            order_seed=seed_for(self.seed, "order", index),
            pad_to=z,
            listen=listen,
        )
        accuracy = score(self.network, child.growth, data)
        self.network.commit(child.growth)
        self.seen.append(Seen.of(task))
        return Learned(task.name, z, accuracy, count_tensors(child.growth.tensors), samples=child.fit.samples)

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes): the same bits as on the day the task was learnt."""
        return self.network.predict(check_inputs(x, task, self.seen, self.device), task)

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part."""
        return stored_parameters(self.network)

    def state(self) -> State:
        """Return what has been learnt."""
        return growing_state(self.network, self.seen)

    def restore(self, state: State) -> None:
        """Take back what ``state`` returned."""
        self.seen = restore_growing(self.network, state)

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder of its own."""
        save(self, folder)


def _per_group(widths: int | Widths, groups: int) -> Widths:
    step = (widths,) * groups if isinstance(widths, int) else tuple(widths)
    if len(step) != groups or min(step) < 0:
        raise ConfigError(
            f"fixed.widths is {widths}, but the network has {groups} hidden groups; "
            f"give {groups} numbers of 0 or more, or one for all"
        )
    return step
