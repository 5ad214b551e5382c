"""Control: the same growth for every task, without a search. What the search must beat at equal parameters."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import nn

from bocl.checks import OneOrEach, PositiveInt, checked, per_group, section
from bocl.errors import ConfigError
from bocl.methods.budget import Budget, most_units
from bocl.methods.failures import check_trained
from bocl.methods.growing import GrowingLearner
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned
from bocl.methods.reading import reads_of
from bocl.methods.rounds import RoundMaker, RoundTrainer
from bocl.networks.graph import Graph
from bocl.networks.growth import GrowthSettings
from bocl.records.events import Callback, RoundStarted
from bocl.search.lattice import scaled
from bocl.search.settings import SearchSettings, Units
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.recipe import Recipe
from bocl.training.trainer import Effort
from bocl.widths import Widths
from bocl.wording import counted


@section("fixed")
@dataclass(frozen=True)
class FixedSettings:
    """Of the method `fixed`.

    widths    units added for every task after the first, or ranks for every task in low-rank growth: one number for
              all groups, or one per group. A rank above the largest that a group's layers can use is that one
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


class Fixed(GrowingLearner):
    """Control: the same growth for every task, without a search.

    With a budget, later tasks are taken to have as many classes as the one at hand; where they have more, the growth
    becomes smaller. Of several children, made from other weights, the most accurate on validation samples is kept: what
    a search gains by choosing among as many, whatever their widths.
    """

    name: ClassVar[str] = "fixed"
    if_out_of_memory: ClassVar[str] = "smaller fixed.widths, recipe.batch_size or network"

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        settings: FixedSettings = FixedSettings(),  # noqa: B008 - frozen
        tasks: int = 10,
        growth: GrowthSettings = GrowthSettings(),  # noqa: B008
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
        pretrained: bool = False,
    ) -> None:
        """Take any network BOCL takes.

        tasks       how many there will be: over these the budget is spread
        pretrained  as in BOCL
        """
        super().__init__(
            network, growth=growth, recipe=recipe, seed=seed, device=device, pretrained=pretrained, guess=guess
        )
        self.settings = checked("settings", settings, FixedSettings)
        self.tasks = checked("tasks", tasks, PositiveInt)
        self._shape = per_group("fixed.widths", settings.widths, len(self.graph.groups))

    def _learn(self, task: Task, data: DeviceTask, callback: Callback, trainer: RoundTrainer, /) -> Learned:
        """Train the fixed growth, once or several times, and keep the best."""
        z = self._step(task.classes)
        count = self.settings.children if self.seen or self.pretrained else 1
        rounds = RoundMaker(data.index, data.classes, self.recipe, self.seed, memory_gb=SearchSettings().memory_gb)
        first = seed_for(self.seed, "base", data.index)
        others = [seed_for(self.seed, "base", data.index, at) for at in range(1, count)]
        reads = reads_of(self.network)
        asked = rounds.children("base", [z] * count, [first, *others], pad_to=z, reads=[reads] * count)
        callback(RoundStarted(asked.purpose, asked.widths))
        children = trainer(asked, self.network, data, callback)
        trained = [child for child in children if not child.failure] or children
        best = max(trained, key=lambda child: child.fit.accuracy)
        seed = asked.seeds[children.index(best)]
        check_trained(best.fit.accuracy, task.name, best.failure)
        effort = sum((child.fit.effort for child in children), start=Effort())
        growth = best.growth
        if self.chooses:
            growth, more = self._on_all_samples(task, data.index, growth, seed, callback, trainer)
            effort += more
        return replace(self._commit(task, growth, data), effort=effort)

    @property
    def chooses(self) -> bool:  # type: ignore[override]
        """Whether there are several children to choose from."""
        return self.settings.children > 1

    def check_budget(self, classes: int) -> None:
        """Refuse a budget that the tasks to come, of as many classes, exceed even if nothing grows."""
        self._step(classes)

    def _step(self, classes: int) -> Widths:
        """Return what to add for one more task, or refuse a budget that all tasks exceed without growing."""
        z, budget = self._shape, self.settings.budget
        if budget is not None:
            left, tasks = budget - sum(self.parameters().values()), max(self.tasks - len(self.seen), 1)
            k = most_units(self.network, self._shape, classes, tasks=tasks, left=left)
            if k < 0:
                every = counted(max(self.tasks, len(self.seen) + 1), "task")
                raise ConfigError(
                    f"fixed.budget is {budget:,}, which the base network, and attention and a head for each of "
                    f"{every}, exceed; give a larger budget or a smaller network"
                )
            z = scaled(self._shape, k)
            if len(self.seen) > (not self.pretrained):
                # What rounding left over does not make later tasks larger than earlier ones.
                z = tuple(map(min, z, self.network.growths[-1].widths))
        return self.network.useful(z) if self.seen or self.pretrained else self.graph.widths
