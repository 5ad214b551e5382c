"""BOCL (the paper's Algorithm 1): grow for every task as much as a Bayesian search finds worth it.

Every task freezes what is there, searches what to read of it and how many units to add to each hidden group, gates what
it reads, and has its own head. The first task has nothing to read: its network is the base network or, with the
tolerance or a price of parameters as goal, as much of it as the search finds worth it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from bocl.checks import PositiveInt, checked
from bocl.errors import ConfigError, NetworkError
from bocl.methods.budget import GoalSettings, check_affordable, task_budget
from bocl.methods.expand import Candidates, Expansion, expand, growth_cost
from bocl.methods.failures import check_trained
from bocl.methods.growing import GrowingLearner
from bocl.methods.guessing import GuessSettings
from bocl.methods.method import Learned, State
from bocl.methods.missed_goals import warn_if_missed
from bocl.methods.reading import ReadingSpace, reading_choices
from bocl.methods.reward import RewardSettings, parameter_price
from bocl.methods.rounds import RoundMaker, RoundTrainer
from bocl.methods.seen import SeenTask
from bocl.networks.graph import Graph
from bocl.networks.growth import Growth, GrowthSettings
from bocl.records.events import Callback
from bocl.records.journal import to_json
from bocl.records.prior_trials import check_experience
from bocl.records.record import Experience
from bocl.search.problem import Problem
from bocl.search.searchers import SearcherFactory, make_searcher, wants_difficulty
from bocl.search.settings import SearchSettings
from bocl.seeding import seed_for
from bocl.settings import parse_value
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.recipe import Recipe

FEW_SAMPLES = 100  # validation samples: with fewer, one of them is more than a point of accuracy


class BOCL(GrowingLearner):
    """The paper's system: grows for every task as much as a Bayesian search finds worth it, and forgets nothing.

    learner = BOCL(mlp(784, [312, 128]))
    for task in permuted_mnist(tasks=10):
        learned = learner.learn(task)
    logits = learner.predict(x, task=0)
    """

    name: ClassVar[str] = "bocl"
    if_out_of_memory: ClassVar[str] = "smaller search.bounds, search.round_size or recipe.batch_size"
    chooses = True
    remembers: ClassVar[bool] = True  # what a search tried is data for later ones

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        growth: GrowthSettings = GrowthSettings(),  # noqa: B008 - frozen
        search: SearchSettings = SearchSettings(),  # noqa: B008
        reward: RewardSettings = RewardSettings(),  # noqa: B008
        goal: GoalSettings = GoalSettings(),  # noqa: B008
        tasks: int = 10,
        searcher: SearcherFactory = make_searcher,
        prior_trials: Sequence[Experience] = (),
        pretrained: bool = False,
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        device: str | torch.device = "auto",
        guess: GuessSettings = GuessSettings(),  # noqa: B008
    ) -> None:
        """Take an nn.Module of conv, linear, norm and pool layers; with ``growth.form`` = low-rank, any module.

        tasks         how many there will be: a total budget is spread over them
        searcher      makes a searcher from a ``Problem`` and the search settings: your own, or the one settings name
        prior_trials  what searches of other runs tried: data for the searches of this one
        pretrained    whether the module's weights are kept: they stay as they are, and every task grows from them.
                      Otherwise only its shape is used, and the seed makes the weights
        """
        super().__init__(
            network, growth=growth, recipe=recipe, seed=seed, device=device, pretrained=pretrained, guess=guess
        )
        self.search = checked("search", search, SearchSettings)
        self.reward = checked("reward", reward, RewardSettings)
        self.goal = checked("goal", goal, GoalSettings)
        if self.goal.price is not None and self.reward.alpha is not None:
            raise ConfigError(
                'goal.price and reward.alpha are different goals; give one of them (reward.alpha = "none" takes back '
                "that of a preset)"
            )
        self.tasks = checked("tasks", tasks, PositiveInt)
        self.searcher = _callable(searcher)
        self.prior_trials = tuple(checked("prior_trials", task, Experience) for task in prior_trials)
        check_experience(self.prior_trials, len(self.graph.groups), "prior_trials")
        self.history: list[Experience] = []  # what the search of every task that was searched tried
        search.bounds_for(self.network.first_bounds())  # refuse bounds that do not fit now, not at the second task

    def _learn(self, task: Task, data: DeviceTask, callback: Callback, trainer: RoundTrainer, /) -> Learned:
        """Search, train, keep the best child."""
        found = self._grow(data, callback, trainer)
        growth, effort = self._on_all_samples(task, data.index, found.growth, found.seed, callback, trainer)
        learned = self._commit(task, growth, data)
        accuracies = [trial.accuracy for trial in found.trials if not trial.failed]
        best = max(accuracies, default=learned.validation_accuracy)
        warn_if_missed(task, best, target=self.goal.target, useful=self._sizes_first)
        if found.trials and self.remembers:
            self.history.append(Experience(found.difficulty, found.growth.widths, found.trials))
        return replace(
            learned,
            trials=found.trials,
            limit=found.limit,
            bounds=found.bounds,
            widened=found.widened,
            difficulty=found.difficulty,
            effort=found.effort + effort,
            diagnostics=found.diagnostics,
        )

    def _grow(self, data: DeviceTask, callback: Callback, trainer: RoundTrainer) -> Expansion:
        limits = self.search.memory_gb, self.search.children_at_once, self.search.parts
        rounds = RoundMaker(data.index, data.classes, self.recipe, self.seed, *limits)
        space = ReadingSpace(self.network, data.classes, reading_choices(self.network, data))
        fresh = not self.seen and not self.network.pretrained  # there is nothing yet that could grow
        cost = growth_cost(space, self.reward)
        alpha, price, tolerance = self.reward.alpha, self.goal.price, self._tolerance

        def penalty(points: NDArray[np.int64]) -> NDArray[np.float64]:
            if price is not None:
                return parameter_price(price, space.parameters(points))
            return (alpha or 0.0) * cost(points)

        # What is left of a total budget is shared out after the task that makes the network.
        budget = None if fresh else task_budget(self.network, self.goal, tasks=self._tasks_left)
        if self._sizes_first and self.goal.budget is None and not self.network.pretrained:
            # No task costs more than a network of its own; to read may cost more even if nothing grows.
            least = int(space.parameters(np.zeros((1, len(space.bounds(self.graph.widths))), dtype=np.int64))[0])
            own = max(self.network.own_parameters(data.classes), least)
            budget = own if budget is None else min(budget, own)
        few = self._sizes_first and len(data.validation) < FEW_SAMPLES
        problem = Problem(
            space.bounds(self.network.useful(self.search.bounds_for(self.network.first_bounds()))),
            parameters=space.parameters,
            penalty=penalty,
            history=(*self.prior_trials, *self.history),
            seed=seed_for(self.seed, "search", data.index),
            budget=budget,
            target=self.goal.target,
            tolerance=tolerance,
            choices=space.kinds,
            measure="confidence" if few else "accuracy",
        )
        halving = self.search.halving
        candidates = Candidates(self.network, data, problem, space, cost, rounds, trainer, callback, halving=halving)
        # With another goal the first task has the whole base network, and so it has where that is out of bounds.
        if fresh and not (self._sizes_first and candidates.own_network(problem)):
            base = candidates.train_base("base")
            check_trained(base.fit.accuracy, data.name, base.failure)
            return Expansion(base.growth, rounds.base(base.growth.widths).seeds[0], effort=base.fit.effort)
        # M_t compares with a fresh network; beside a pretrained one that says nothing.
        difficulty = not fresh and not self.network.pretrained and wants_difficulty(self.searcher, self.search)
        return expand(candidates, problem, self.search, self.searcher, difficulty=difficulty)

    def check_budget(self, classes: int) -> None:
        """Refuse budgets that the tasks to come, with as many classes, exceed even if nothing grows."""
        check_affordable(self.network, self.goal, classes, tasks=self._tasks_left)

    @property
    def _tolerance(self) -> float | None:
        """The tolerance where it is the goal: a target comes before a price, and a price before a tolerance."""
        return self.goal.tolerance if self._sizes_first and self.goal.price is None else None

    @property
    def _sizes_first(self) -> bool:
        """Whether the goal, a tolerance or a price of parameters, says how large the first task's network is too."""
        return self.goal.target is None and self.reward.alpha is None

    @property
    def _tasks_left(self) -> int:
        return max(self.tasks - len(self.seen), 1)

    def replace_last(self, growth: Growth) -> None:
        """Replace the child that the last task kept by another one that was trained for it."""
        self.network.drop_last()
        self.network.commit(growth)
        if self.history:
            self.history[-1] = replace(self.history[-1], best=growth.widths)

    def _kept(self, first: int = 0, /) -> State:
        since = max(len(self.history) - (len(self.seen) - first), 0)  # the first task may not have been searched
        kept: dict[str, Sequence[Experience]] = {"history": self.history[since:]}
        if not first:
            kept["prior_trials"] = self.prior_trials
        return State({name: to_json([asdict(entry) for entry in kept[name]], name) for name in kept}, {})

    def _check_kept(self, kept: State, seen: Sequence[SeenTask], /) -> None:
        super()._check_kept(kept, seen)
        history = self._experience(kept.facts, "history")
        self._experience(kept.facts, "prior_trials")
        wanted = {len(seen), max(len(seen) - 1, 0)} if self.remembers else {0}  # the first may not have been searched
        if len(history) not in wanted:
            leave = " or ".join(map(str, sorted(wanted)))
            raise NetworkError(f"facts.history has {len(history)} entries; {len(seen)} tasks leave {leave}")

    def _restore_kept(self, kept: State, /) -> None:
        self.history = list(self._experience(kept.facts, "history"))
        if prior_trials := self._experience(kept.facts, "prior_trials"):
            self.prior_trials = prior_trials

    def _experience(self, facts: dict[str, Any], name: str) -> tuple[Experience, ...]:
        where = f"facts.{name}"
        entries: tuple[Experience, ...] = parse_value(tuple[Experience, ...], facts[name], where)
        check_experience(entries, len(self.graph.groups), where)
        return entries


def _callable(searcher: Any) -> SearcherFactory:
    if not callable(searcher):
        raise ConfigError(
            f"searcher is {searcher!r}; it must be a class or function that makes a searcher from a problem and the "
            'search settings; a built-in one is chosen by search=SearchSettings(kind="random")'
        )
    return searcher  # type: ignore[no-any-return]
