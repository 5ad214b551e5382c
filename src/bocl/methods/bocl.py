"""BOCL (the paper's Algorithm 1): grow for every task as much as a Bayesian search finds worth its price.

The first task trains the base network whole. Every later task freezes what is known, searches how many
units to add to each hidden group, gates what it reads with its own attention, and has its own head.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from bocl.checks import Natural, PositiveInt, checked
from bocl.errors import ConfigError
from bocl.methods.budget import GoalSettings, check_affordable, task_budget
from bocl.methods.checks import Seen, as_graph, check_inputs, check_task, check_trained, memory_told
from bocl.methods.expand import Expansion, SearcherFactory, expand, train_base
from bocl.methods.growing import growing_state, restore_growing, score, stored_parameters
from bocl.methods.method import Learned, State
from bocl.methods.reward import RewardSettings
from bocl.methods.rounds import TrainRound, train_round
from bocl.methods.saving import save
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Graph
from bocl.networks.growth import Growth, GrowthSettings, count_tensors
from bocl.records.events import Listener, RoundStarted, nobody
from bocl.records.experience_file import check_experience
from bocl.records.journal import to_json
from bocl.records.record import Experience, experience_from
from bocl.search.searchers import make_searcher
from bocl.search.settings import SearchSettings
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask, task_to_device
from bocl.training.device import resolve_device
from bocl.training.recipe import Recipe


class BOCL:
    """The paper's system: grows for every task as much as a Bayesian search finds worth it, and forgets nothing.

    learner = BOCL(mlp(784, [312, 128]))
    for task in permuted_mnist(tasks=10):
        learned = learner.learn(task)
    logits = learner.predict(x, task=0)
    """

    name: ClassVar[str] = "bocl"
    forgets: ClassVar[bool] = False
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
        recipe: Recipe = Recipe(),  # noqa: B008
        seed: int = 0,
        searcher: SearcherFactory = make_searcher,
        memory: Sequence[Experience] = (),
        device: str | torch.device = "auto",
    ) -> None:
        """Take an nn.Module of conv, linear, norm, pool layers; only its shape is used, weights are made by seed.

        tasks     how many there will be: over these a total budget is spread
        searcher  makes a searcher from a ``Problem`` and the search settings: your own, or the one settings name
        memory    what searches of other runs tried: data for the searches of this one
        """
        self.graph = as_graph(network)
        self.growth = checked("growth", growth, GrowthSettings)
        self.search = checked("search", search, SearchSettings)
        self.reward = checked("reward", reward, RewardSettings)
        self.goal = checked("goal", goal, GoalSettings)
        self.tasks = checked("tasks", tasks, PositiveInt)
        self.recipe = checked("recipe", recipe, Recipe)
        self.seed = checked("seed", seed, Natural)
        self.searcher = _callable(searcher)
        self.memory = tuple(checked("memory", task, Experience) for task in memory)
        check_experience(self.memory, len(self.graph.groups), "memory")
        self.device = resolve_device(device)
        self.network = ExpandableNetwork(self.graph, growth, self.device)
        self.history: list[Experience] = []  # of every task but the first
        self.seen: list[Seen] = []
        self.train_round: TrainRound = train_round
        search.bounds_for(len(self.graph.groups))  # refuse bounds that do not fit now, not at the second task

    @memory_told("smaller search.bounds, search.round_size or recipe.batch_size")
    def learn(self, task: Task, listen: Listener = nobody) -> Learned:
        """Learn one more task: search, train, keep the best child."""
        check_task(self.graph, task, self.seen)
        self.check_budget(task.classes)
        data = task_to_device(task, len(self.seen), self.device)
        found = self._grow(data, task, listen)
        widths, accuracy = found.growth.widths, score(self.network, found.growth, data)
        self.network.commit(found.growth)
        if found.trials and self.remembers:
            self.history.append(Experience(found.difficulty, widths, found.trials))
        self.seen.append(Seen.of(task))
        return Learned(
            task.name,
            widths,
            accuracy,
            count_tensors(found.growth.tensors),
            found.trials,
            found.difficulty,
            found.effort,
            found.diagnostics,
        )

    def check_budget(self, classes: int) -> None:
        """Refuse a goal whose budgets the tasks to come, of as many classes, exceed even if nothing grows."""
        check_affordable(self.network, self.goal, classes, tasks=self._tasks_left)

    @property
    def _measures_difficulty(self) -> bool:
        """A searcher that is not ours may ask for it."""
        return self.searcher is not make_searcher or self.search.wants_difficulty

    @property
    def _tasks_left(self) -> int:
        return max(self.tasks - len(self.seen), 1)

    def _grow(self, data: DeviceTask, task: Task, listen: Listener) -> Expansion:
        if not self.seen:
            listen(RoundStarted("base", (self.graph.widths,)))
            base = train_base(
                self.network,
                data,
                classes=task.classes,
                recipe=self.recipe,
                seed=self.seed,
                listen=listen,
                train_round=self.train_round,
            )
            check_trained(base.fit.accuracy, task.name, base.failure)
            return Expansion(base.growth, (), math.nan, base.fit.effort, diagnostics=None)
        return expand(
            self.network,
            data,
            name=task.name,
            classes=task.classes,
            recipe=self.recipe,
            search=self.search,
            reward=self.reward,
            budget=task_budget(self.network, self.goal, tasks=self._tasks_left),
            target=self.goal.target,
            make_searcher=self.searcher,
            history=[*self.memory, *self.history],
            measure_difficulty=self._measures_difficulty,
            seed=self.seed,
            listen=listen,
            train_round=self.train_round,
        )

    def replace_last(self, growth: Growth) -> None:
        """Let another child of the last task, trained for it, take the place of the one that was kept."""
        self.network.drop_last()
        self.network.commit(growth)
        if self.history:
            self.history[-1] = replace(self.history[-1], best=growth.widths)

    def predict(self, x: Any, task: int) -> Tensor:
        """Return logits (n, classes): the same bits as on the day the task was learnt.

        x  (n, *shape): bytes for a task of bytes, scaled here; float32 is taken as already scaled (``Split.inputs``)
        """
        return self.network.predict(check_inputs(x, task, self.seen, self.device), task)

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part: shared, heads, attention, norms."""
        return stored_parameters(self.network)

    def state(self) -> State:
        """Return what has been learnt."""
        history, memory = (
            to_json([asdict(entry) for entry in entries], "history") for entries in (self.history, self.memory)
        )
        return growing_state(self.network, self.seen, history=history, memory=memory)

    def restore(self, state: State) -> None:
        """Take back what ``state`` returned."""
        self.seen = restore_growing(self.network, state)
        self.history = [experience_from(entry) for entry in state.facts["history"]]
        if remembered := state.facts.get("memory"):  # early saves are without: what this one was made with stays
            self.memory = tuple(experience_from(entry) for entry in remembered)

    def save(self, folder: str | Path) -> None:
        """Write the model to a folder of its own; ``bocl.load`` rebuilds it from there."""
        save(self, folder)


def _callable(searcher: Any) -> SearcherFactory:
    if not callable(searcher):
        raise ConfigError(
            f"searcher is {searcher!r}; it must be a class or function that makes a searcher from a problem and the "
            'search settings; a built-in one is chosen by search=SearchSettings(kind="random")'
        )
    return searcher  # type: ignore[no-any-return]
