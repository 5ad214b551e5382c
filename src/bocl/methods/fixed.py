"""Control: the same growth for every task, without a search. What the search must beat at equal parameters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from bocl.checks import Natural, OneOrEach, PositiveInt, checked, per_group, section
from bocl.errors import ConfigError
from bocl.methods.budget import Budget, most_units
from bocl.methods.checks import Seen, as_graph, check_inputs, check_task, check_trained, memory_told
from bocl.methods.growing import growing_state, restore_growing, score, stored_parameters
from bocl.methods.method import Learned, State
from bocl.methods.rounds import TrainRound, train_round
from bocl.methods.saving import save
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Graph, Widths
from bocl.networks.growth import GrowthSettings, count_tensors
from bocl.records.events import Listener, RoundStarted, nobody
from bocl.search.lattice import scaled
from bocl.search.settings import SearchSettings, Units
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import task_to_device
from bocl.training.device import resolve_device
from bocl.training.recipe import Recipe
from bocl.training.trainer import Effort
from bocl.wording import counted


@section("fixed")
@dataclass(frozen=True)
class FixedSettings:
    """Of the method `fixed`: units added for every task, one number or one per hidden group.

    budget    most parameters stored after all tasks: widths are scaled, in their proportions, to what stays within it
    children  so many are trained for every task after the first, and the best on validation samples is kept
    """

    widths: OneOrEach[Units] = 4
    budget: Budget | None = None
    children: Annotated[PositiveInt, Field(le=1000)] = 1

    def __post_init__(self) -> None:
        widths = self.widths if isinstance(self.widths, tuple) else (self.widths,)
        if self.budget is not None and not any(widths):
            raise ConfigError(f"fixed.widths is {self.widths}, which fixed.budget cannot scale; give at least one unit")


class Fixed:
    """Control: the same growth for every task, without a search.

    ``widths`` units are added for every task after the first: one number for all groups, or one per group. With a
    ``budget`` they are scaled, in their proportions, to the most that keeps all parameters stored after ``tasks``
    tasks within it; later tasks are taken to have as many classes as the one at hand, and where they have more, the
    growth becomes smaller. Of ``children`` so made and trained, from other weights, the most accurate on validation
    samples is kept: what a search gains by choosing among as many, whatever their widths.
    """

    name: ClassVar[str] = "fixed"
    forgets: ClassVar[bool] = False

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        widths: int | Widths = 4,
        budget: int | None = None,
        children: int = 1,
        tasks: int = 10,
        growth: GrowthSettings = GrowthSettings(),  # noqa: B008 - frozen
        recipe: Recipe = Recipe(),  # noqa: B008 - frozen
        seed: int = 0,
        device: str | torch.device = "auto",
    ) -> None:
        self.graph = as_graph(network)
        settings = FixedSettings(widths, budget, children)
        self.widths, self.budget, self.children = settings.widths, settings.budget, settings.children
        self.tasks = checked("tasks", tasks, PositiveInt)
        self.growth = checked("growth", growth, GrowthSettings)
        self.recipe = checked("recipe", recipe, Recipe)
        self.seed = checked("seed", seed, Natural)
        self.device = resolve_device(device)
        self.network = ExpandableNetwork(self.graph, growth, self.device)
        self.seen: list[Seen] = []
        self.train_round: TrainRound = train_round
        self._shape = per_group("fixed.widths", self.widths, len(self.graph.groups))

    @memory_told("smaller fixed.widths, recipe.batch_size or network")
    def learn(self, task: Task, listen: Listener = nobody) -> Learned:
        """Learn one more task with the fixed growth."""
        check_task(self.graph, task, self.seen)
        index = len(self.seen)
        data = task_to_device(task, index, self.device)
        z = self._step(task.classes)
        count = self.children if self.seen else 1
        listen(RoundStarted("base", (z,) * count))
        children = self.train_round(
            self.network,
            data,
            [z] * count,
            classes=task.classes,
            recipe=self.recipe,
            seeds=[
                seed_for(self.seed, "base", index),
                *(seed_for(self.seed, "base", index, i) for i in range(1, count)),
            ],
            order_seed=seed_for(self.seed, "order", index),
            pad_to=z,
            listen=listen,
            memory_gb=SearchSettings().memory_gb,
        )
        trained = [child for child in children if not child.failure] or children
        best = max(trained, key=lambda child: child.fit.accuracy)
        check_trained(best.fit.accuracy, task.name, best.failure)
        accuracy = score(self.network, best.growth, data)
        self.network.commit(best.growth)
        self.seen.append(Seen.of(task))
        effort = sum((child.fit.effort for child in children), start=Effort())
        return Learned(task.name, z, accuracy, count_tensors(best.growth.tensors), effort=effort)

    def check_budget(self, classes: int) -> None:
        """Refuse a budget that the tasks to come, of as many classes, exceed even if nothing grows."""
        self._step(classes)

    def _step(self, classes: int) -> Widths:
        """Return what to add for one more task, or refuse a budget that all tasks exceed without growing."""
        z = self._shape
        if self.budget is not None:
            left, tasks = self.budget - sum(self.parameters().values()), max(self.tasks - len(self.seen), 1)
            k = most_units(self.network, self._shape, classes, tasks=tasks, left=left)
            if k < 0:
                every = counted(max(self.tasks, len(self.seen) + 1), "task")
                raise ConfigError(
                    f"fixed.budget is {self.budget:,}, which the base network, and attention and a head for each of "
                    f"{every}, exceed; give a larger budget or a smaller network"
                )
            if len(self.seen) > 1:  # what rounding left over does not make later tasks larger than earlier ones
                k = min(k, max(self.network.growths[-1].widths))
            z = scaled(self._shape, k)
        return z if self.seen else self.graph.widths

    def predict(self, x: Any, task: int) -> Tensor:
        """Return logits (n, classes): the same bits as on the day the task was learnt.

        x  (n, *shape): bytes for a task of bytes, scaled here; float32 is taken as already scaled (``Split.inputs``)
        """
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
