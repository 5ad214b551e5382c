"""How a task's growth ends: what limits it, bounds that are widened, and what it reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from method_examples import RECIPE, hard_stream, small_cnn, small_mlp

from bocl.methods.bocl import BOCL
from bocl.methods.budget import GoalSettings
from bocl.methods.expand import MOST_WIDENINGS
from bocl.methods.fixed import Fixed, FixedSettings
from bocl.methods.method import Learned
from bocl.methods.reward import RewardSettings
from bocl.methods.round_trainer import LocalTrainer
from bocl.methods.rounds import TrainedChild
from bocl.methods.saving import load
from bocl.networks.architectures import mlp
from bocl.networks.growth import GrowthSettings, count_tensors, initialise
from bocl.search.problem import Problem
from bocl.search.settings import SearchSettings
from bocl.tasks.arrays import ArrayStream, from_arrays
from bocl.training.trainer import Effort, Fit
from paper_settings import PAPER_GROWTH

TASK = hard_stream()[0]
Worth = Callable[[tuple[int, ...], tuple[int, ...]], float]


def worth(accuracy: Worth) -> Any:
    """Return a trainer of children that are never trained and are worth ``accuracy(widths, reads)``."""

    def trainer(asked, network, _data, _callback, *_options):
        return [
            TrainedChild(
                initialise(network.space(asked.classes, reads), z, reads=reads, seed=seed),
                Fit(accuracy(z, reads), 1.0, 1, Effort()),
            )
            for z, seed, reads in zip(asked.widths, asked.seeds, asked.reads, strict=True)
        ]

    return trainer


def made(network=None, **options: Any) -> BOCL:
    search = SearchSettings(trials=12, patience=12, round_size=4)
    return BOCL(network or small_mlp(), **{"search": search, "recipe": RECIPE, "device": "cpu"} | options)


def learnt(accuracy: Worth, tasks: int = 2, **options: Any) -> tuple[BOCL, list[Learned]]:
    learner = made(**options)
    return learner, [learner.learn(TASK, trainer=worth(accuracy)) for _ in range(tasks)]


def rising(z: tuple[int, ...], _reads: tuple[int, ...]) -> float:
    """More units are always worth more."""
    return 1 - 0.6 * math.exp(-sum(z) / 60)


# -- stubs: a searcher that asks for given points and takes the last of them --------------------------


class Given:
    """A searcher that tries the points it is given, and takes the best by accuracy."""

    points: ClassVar[list[tuple[int, ...]]] = []
    problems: ClassVar[list[Problem]] = []
    searches: ClassVar[list[SearchSettings]] = []

    def __init__(self, problem: Problem, settings: SearchSettings) -> None:
        self.problem, self.told = problem, list(problem.trained)
        Given.problems.append(problem)
        Given.searches.append(settings)

    def ask(self, count):
        """Ask for what lies within the bounds and was not tried."""
        known = {trial.widths for trial in self.told} | set(self.problem.pending)
        inside = [
            point
            for point in Given.points
            if point not in known
            and all(a <= b for a, b in zip(point, self.problem.bounds, strict=True))
            and self.problem.allowed(np.array([point]))[0]
        ]
        return inside[:count]

    def tell(self, trials):
        self.told += trials

    def best(self):
        return max(self.told, key=lambda trial: (trial.accuracy, -trial.parameters)).widths


@pytest.fixture
def given():
    """Return a function that sets the points to be tried."""

    def set_points(*points):
        Given.points, Given.problems, Given.searches = list(points), [], []  # type: ignore[misc]

    return set_points


FIRST = GrowthSettings("first")


def limited(given, *points, **options: Any) -> Learned:
    given()  # so the first task has the whole base network
    learner, _ = learnt(rising, 1, searcher=Given, **{"growth": FIRST} | options)
    given(*points)
    return learner.learn(TASK, trainer=worth(rising))


class TestLimit:
    """What kept a growth from being larger, a case made for each word."""

    def test_price(self, given):
        learned = limited(given, (1, 1, 0), reward=RewardSettings(0.01), search=SearchSettings(bounds=4))
        assert (learned.widths, learned.limit, learned.bounds) == ((1, 1), "price", (4, 4))

    def test_target(self, given):
        learned = limited(given, (1, 1, 0), goal=GoalSettings(target=0.3), search=SearchSettings(bounds=4))
        assert (learned.widths, learned.limit) == ((1, 1), "target")

    def test_a_target_comes_before_a_price(self, given):
        goal, reward = GoalSettings(target=0.3), RewardSettings(0.01)
        learned = limited(given, (1, 1, 0), goal=goal, reward=reward, search=SearchSettings(bounds=4))
        assert learned.limit == "target"

    def test_tolerance(self, given):
        learned = limited(given, (1, 1, 0), search=SearchSettings(bounds=4))
        assert (learned.widths, learned.limit) == ((1, 1), "tolerance")

    def test_bounds(self, given):
        learned = limited(given, (2, 2, 0), search=SearchSettings(bounds=2))
        assert (learned.widths, learned.limit, learned.bounds, learned.widened) == ((2, 2), "bounds", (2, 2), 0)

    def test_bounds_of_one_group_are_no_limit(self, given):
        assert limited(given, (2, 1, 0), search=SearchSettings(bounds=2)).limit == "tolerance"

    def test_budget(self, given):
        given()
        learner, _ = learnt(rising, 1, growth=FIRST, searcher=Given)
        exact = int(learner.network.space(TASK.classes, (0,)).count_all((3, 2)))
        learned = limited(given, (3, 2, 0), goal=GoalSettings(budget=exact), search=SearchSettings(bounds=9))
        assert (learned.widths, learned.limit) == ((3, 2), "budget")

    def test_a_budget_that_leaves_no_group_room_beyond_its_bound_is_bounds(self, given):
        """One group is on its bound, and the budget allows nothing of the other."""
        given()
        learner, _ = learnt(rising, 1, growth=FIRST, searcher=Given)
        space = learner.network.space(TASK.classes, (0,))
        exact = int(space.count_all((0, 2))) + 9  # a unit of the second group takes 10, of the first 78 and more
        more = [int(space.count_all(z)) for z in ((1, 2), (0, 3))]
        assert more[1] - 1 < exact + 2 < more[0], "or this shows nothing"
        learned = limited(given, (0, 2, 0), goal=GoalSettings(budget=more[1]), search=SearchSettings(bounds=(9, 2)))
        assert (learned.widths, learned.limit) == ((0, 2), "bounds")

    def test_no_search_no_limit(self):
        _, (first,) = learnt(rising, 1, reward=RewardSettings(5e-3))
        assert (first.limit, first.bounds, first.widened) == ("", (), 0)
        fixed = Fixed(small_mlp(), settings=FixedSettings(1), recipe=RECIPE, device="cpu")
        assert [fixed.learn(TASK).limit for _ in range(2)] == ["", ""]


class TestWidening:
    """Bounds that were left open give way where the best child lies on them."""

    def test_bounds_begin_at_the_base_network_and_double_where_the_winner_lies_on_one(self, given):
        points = [(6, 1, 0), (12, 3, 0), (13, 3, 0)]
        learned = limited(given, *points, goal=GoalSettings(budget=10**6))
        assert [problem.bounds for problem in Given.problems] == [(6, 5, 0), (12, 5, 0), (24, 5, 0)]
        assert (learned.widths, learned.bounds, learned.widened) == ((13, 3), (24, 5), 2)
        assert learned.limit == "tolerance"

    def test_all_that_was_tried_is_told_again_and_nothing_is_trained_twice(self, given):
        points = [(6, 1, 0), (2, 3, 0), (12, 3, 0)]
        learned = limited(given, *points, goal=GoalSettings(budget=10**6))
        told = [{trial.widths for trial in problem.trained} for problem in Given.problems]
        assert told == [set(), {(0, 0, 0), (6, 1, 0), (2, 3, 0)}, {(0, 0, 0), *points}]
        assert [problem.pending for problem in Given.problems] == [((0, 0, 0),), (), ()]
        tried = [(trial.widths, trial.reads) for trial in learned.trials]
        assert len(set(tried)) == len(tried) == 4

    def test_trials_are_those_of_one_search(self, given):
        points = [(6, 1, 0), (12, 1, 0), (24, 1, 0), (48, 1, 0)]
        search = SearchSettings(trials=2, warm_points=1, round_size=1)
        learned = limited(given, *points, goal=GoalSettings(budget=10**6), search=search)
        assert len(learned.trials) == 1 + search.most_trials
        assert [how.most_trials for how in Given.searches] == [3, 2, 1]
        assert learned.limit != ""

    def test_not_for_ever(self, given):
        points = [(6 * 2**power, 1, 0) for power in range(9)]
        learned = limited(
            given, *points, goal=GoalSettings(budget=10**9), search=SearchSettings(trials=99, patience=99)
        )
        assert learned.widened == MOST_WIDENINGS
        assert learned.bounds == (6 * 2**MOST_WIDENINGS, 5)
        assert learned.widths == (*learned.bounds[:1], 1)

    def test_not_beyond_the_budget(self, given):
        given()
        learner, _ = learnt(rising, 1, growth=FIRST, searcher=Given)
        exact = int(learner.network.space(TASK.classes, (0,)).count_all((6, 1)))
        learned = limited(given, (6, 1, 0), goal=GoalSettings(budget=exact + 5))
        assert (learned.widened, learned.bounds) == (0, (6, 5))

    def test_not_where_bounds_are_given(self, given):
        learned = limited(given, (6, 5, 0), goal=GoalSettings(budget=10**6), search=SearchSettings(bounds=(6, 5)))
        assert (learned.widened, learned.bounds, learned.limit) == (0, (6, 5), "bounds")

    @pytest.mark.parametrize("reads", ["all", "first", "choose"])
    def test_our_search_goes_on_where_more_is_always_better(self, reads):
        def steep(z, _reads):
            return 1 - 0.9 * math.exp(-min(z) / 12) if z else 0.1

        goal, growth = GoalSettings(budget=10**6, tolerance=0.0), GrowthSettings(reads)
        search = SearchSettings(trials=100, patience=100, round_size=4)
        _, (_, learned) = learnt(steep, growth=growth, goal=goal, search=search)
        assert learned.widened >= 1
        for bound, width in zip(learned.bounds, (6, 5), strict=True):
            assert bound in {width * 2**power for power in range(learned.widened + 1)}
        assert learned.bounds != (6, 5)
        widest = [max(group) for group in zip(*(trial.widths for trial in learned.trials), strict=True)]
        assert all(most <= bound for most, bound in zip(widest, learned.bounds, strict=True))


# -- what is read ------------------------------------------------------------------------------------


def reuse_is_worthless(z: tuple[int, ...], reads: tuple[int, ...]) -> float:
    return 0.5 if reads else 0.6 + 0.3 * (1 - math.exp(-sum(z) / 3))


def reuse_is_enough(z: tuple[int, ...], reads: tuple[int, ...]) -> float:
    return 0.9 if reads else 0.5


def test_a_network_of_its_own_wins_where_reuse_is_worthless_and_later_tasks_may_read_it():
    learner, learned = learnt(reuse_is_worthless)
    own = learned[1]
    assert own.reads == ()
    assert min(own.widths) >= 1
    assert own.parameters["attention"] == 0
    assert own.added_parameters <= learner.network.own_parameters(TASK.classes)
    assert {trial.reads for trial in own.trials} >= {"first", "own"}

    def only_all(z, reads):
        return 0.9 if reads == (0, 1) else 0.5

    third = learner.learn(TASK, trainer=worth(only_all))
    assert third.reads == (0, 1)
    assert learner.network.tasks[2].blocks[:2] == (learned[0].widths, own.widths)
    x = torch.zeros(2, 2, 6, 6)
    assert learner.predict(x, 2).shape == (2, TASK.classes)


def test_where_reuse_is_enough_nothing_is_added():
    _, learned = learnt(reuse_is_enough, 3)
    assert [entry.widths for entry in learned[1:]] == [(0, 0), (0, 0)]
    assert [entry.reads for entry in learned[1:]] == [(0,), (0,)]
    assert {entry.limit for entry in learned[1:]} == {"tolerance"}


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
@pytest.mark.parametrize("accuracy", [rising, reuse_is_worthless, lambda *_: 1.0, lambda *_: 0.5])
def test_no_task_takes_more_than_a_network_of_its_own(network, accuracy):
    learner, learned = learnt(accuracy, 4, network=network())
    most = learner.network.own_parameters(TASK.classes)
    for entry in learned:
        assert entry.added_parameters <= most
        assert max(trial.parameters for trial in entry.trials) <= most
        assert entry.reads is not None
        for task in entry.reads:
            assert set(learner.network.growths[task].reads) <= set(entry.reads), "and all that it reads"


@pytest.mark.parametrize(("reads", "wanted"), [("all", [(0,), (0, 1)]), ("first", [(0,), (0,)]), ("own", [(), ()])])
def test_what_the_settings_name_is_read_and_nothing_else(reads, wanted):
    learner, learned = learnt(rising, 3, growth=GrowthSettings(reads), goal=GoalSettings(budget=10**5))
    assert [entry.reads for entry in learned[1:]] == wanted
    assert [growth.reads for growth in learner.network.growths[1:]] == wanted
    assert {trial.reads for entry in learned[1:] for trial in entry.trials} == {reads}
    assert all(len(entry.trials) > 3 for entry in learned[1:]), "it is a search"
    if reads == "own":
        assert all(min(trial.widths) >= 1 for entry in learned[1:] for trial in entry.trials)


@pytest.mark.parametrize("kind", ["bayesian", "random", "paper", "reinforce"])
@pytest.mark.parametrize("reads", ["choose", "all", "first", "own"])
def test_every_searcher_can_choose_what_is_read(kind, reads):
    search = SearchSettings(kind, trials=4, patience=4, warm_points=2, round_size=2)
    learner, learned = learnt(rising, 3, growth=GrowthSettings(reads), search=search)
    for entry in learned[1:]:
        points = [(trial.widths, trial.reads) for trial in entry.trials]
        assert len(set(points)) == len(points) > 3
        winner = next(trial for trial in entry.trials if trial.parameters == entry.added_parameters)
        assert winner.widths == entry.widths
        growth = learner.network.growths[learned.index(entry)]
        assert sum(count_tensors(growth.tensors).values()) == entry.added_parameters


@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_a_default_learner_is_saved_loaded_and_goes_on_to_the_same_bits(network, tmp_path):
    """With real training: children that differ in what they read alone, stopped ones among them."""
    stream = hard_stream(2.0)
    learner = made(network(), recipe=replace(RECIPE, epochs=8))
    kinds = [learner.learn(stream[index]) for index in range(3)]
    assert any(trial.stopped for entry in kinds for trial in entry.trials), "or this shows less"
    learner.save(tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    assert repr(loaded.history) == repr(learner.history)
    assert repr(replace(loaded.learn(stream[3]), effort=Effort())) == repr(
        replace(learner.learn(stream[3]), effort=Effort())
    )
    x = torch.randn(9, 2, 6, 6, generator=torch.Generator().manual_seed(0))
    assert all(torch.equal(loaded.predict(x, task), learner.predict(x, task)) for task in range(4))


def test_a_child_of_every_kind_is_trained_as_it_is_in_a_round_of_its_own():
    """A round of children that read different tasks trains each kind as a part; they do not disturb each other."""
    stream = hard_stream(2.0)
    learner, rounds = made(growth=GrowthSettings("choose")), []

    class Keeping(LocalTrainer):
        def __call__(self, asked, *arguments):
            rounds.append((asked, arguments[:2]))
            return super().__call__(asked, *arguments)

    for index in range(2):
        learner.learn(stream[index], trainer=Keeping())
    asked, (network, data) = next(entry for entry in rounds if len(set(entry[0].reads)) > 1)
    asked = replace(asked, halving=None)
    whole = LocalTrainer()(asked, network, data)
    for at, child in enumerate(whole):
        one = replace(
            asked, widths=asked.widths[at : at + 1], seeds=asked.seeds[at : at + 1], reads=asked.reads[at : at + 1]
        )
        (alone,) = LocalTrainer()(one, network, data)
        assert child.growth.reads == alone.growth.reads == asked.reads[at]
        for name, tensor in alone.growth.tensors.items():
            torch.testing.assert_close(child.growth.tensors[name], tensor, rtol=1e-3, atol=1e-5)


def small_stream(inputs: int, *classes: int) -> ArrayStream:
    """Return tasks of few inputs, as tables have them."""
    draw = np.random.default_rng(0)
    return from_arrays([(draw.normal(size=(60, inputs)).astype(np.float32), np.arange(60) % many) for many in classes])


@pytest.mark.parametrize("hidden", [[1], [1, 1]])
@pytest.mark.parametrize("reads", ["own", "choose", "first", "all"])
def test_the_smallest_network_there_is_can_be_searched(hidden, reads):
    stream, learner = small_stream(4, 2, 2, 2), made(mlp(4, hidden), growth=GrowthSettings(reads))
    for index in range(3):
        learner.learn(stream[index], trainer=worth(rising))
    assert len(learner.network.tasks) == 3


@pytest.mark.parametrize("reads", ["choose", "first", "all"])
@pytest.mark.parametrize("gates", ["unit", "sample"])
def test_to_grow_nothing_is_always_within_the_budget_that_nobody_gave(reads, gates):
    """Of one input a network costs less than gates for each sample, and a head of many classes more than both."""
    stream = small_stream(1, 2, 2, 2, 20)
    learner = made(mlp(1, [6, 5]), growth=GrowthSettings(reads, gates=gates))
    for index in range(4):
        learned = learner.learn(stream[index], trainer=worth(rising))
        zero = [trial.parameters for trial in learned.trials if not any(trial.widths)]
        own = learner.network.own_parameters(stream[index].classes)
        assert learned.added_parameters <= max(own, *zero, 0)


@pytest.mark.parametrize("bounds", [0, (0, 3), (3, 0)])
def test_a_group_that_cannot_grow_stays_as_it_is_and_no_network_of_its_own_is_asked_for(bounds):
    _, (_, learned) = learnt(rising, search=SearchSettings(bounds=bounds, trials=4, patience=4))
    assert {trial.reads for trial in learned.trials} == {"first"}
    most = learned.bounds
    assert all(z <= bound for trial in learned.trials for z, bound in zip(trial.widths, most, strict=True))


def test_the_papers_way_has_no_choices_and_its_own_reward():
    _, (_, learned) = learnt(rising, growth=PAPER_GROWTH, reward=RewardSettings(0.01), search=SearchSettings(bounds=3))
    assert {trial.reads for trial in learned.trials} == {"all"}
    assert all(trial.reward == pytest.approx(trial.accuracy - 0.01 * trial.cost) for trial in learned.trials)
