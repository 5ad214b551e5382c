"""BOCL: searches for every task, keeps the best child, forgets nothing."""

from __future__ import annotations

import hashlib
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from method_examples import PAPER_SEARCH, RECIPE, hard_stream, make_bocl, paper_bocl, small_cnn, small_mlp

from bocl.errors import ConfigError, InputError, WorkError
from bocl.methods.bocl import BOCL
from bocl.methods.independent import Independent
from bocl.methods.saving import load
from bocl.networks.growth import GrowthSettings, count_tensors
from bocl.records.events import RoundStarted, TrialDone
from bocl.records.record import Experience, Trial
from bocl.search.random_search import RandomSearch
from bocl.search.settings import SearchSettings
from bocl.tasks.arrays import from_arrays
from bocl.training.recipe import Recipe
from paper_settings import PAPER_GROWTH, PAPER_REWARD


class Remembered:
    """What every task said and held when it was learnt."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.inputs = [torch.randn(size, 2, 6, 6, generator=generator) for size in (1, 7, 128)]
        self.logits: list[list[torch.Tensor]] = []
        self.held: list[dict[str, str]] = []

    def take(self, learner: BOCL) -> None:
        task = len(self.logits)
        self.logits.append([learner.predict(x, task) for x in self.inputs])
        self.held.append(self.hashes(learner, task))

    def check(self, learner: BOCL) -> None:
        for task, logits in enumerate(self.logits):
            assert all(torch.equal(learner.predict(x, task), y) for x, y in zip(self.inputs, logits, strict=True))
            assert self.hashes(learner, task) == self.held[task]

    @staticmethod
    def hashes(learner: BOCL, task: int) -> dict[str, str]:
        network = learner.network
        tensors = {f"stored/{name}": tensor for name, tensor in network.growths[task].tensors.items()}
        tensors |= {f"used/{name}": tensor for name, tensor in network.tasks[task].weights.items()}
        return {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}


@pytest.mark.parametrize(
    "growth",
    [GrowthSettings(), PAPER_GROWTH, GrowthSettings("all", "forward", attention=False)],
    ids=["default", "paper", "forward"],
)
@pytest.mark.parametrize("network", [small_mlp, small_cnn])
def test_nothing_is_forgotten_through_learning_saving_and_learning_on(network, growth, tmp_path):
    learner, remembered, stream = make_bocl(network(), growth=growth), Remembered(), hard_stream()
    for index in range(3):
        learner.learn(stream[index])
        remembered.check(learner)
        remembered.take(learner)
    learner.save(tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    remembered.check(loaded)
    loaded.learn(stream[3])
    remembered.check(loaded)
    assert len(loaded.seen) == 4


def test_the_check_of_forgetting_can_fail():
    learner, remembered, stream = paper_bocl(), Remembered(), hard_stream()
    learner.learn(stream[0])
    remembered.take(learner)
    learner.network.tasks[0].weights["head/bias"][0] += 1
    with pytest.raises(AssertionError):
        remembered.check(learner)


def learnt(tasks: int = 3, **options):
    learner, stream = paper_bocl(**options), hard_stream(2.0)
    return learner, [learner.learn(stream[index]) for index in range(tasks)]


@pytest.mark.parametrize("kind", ["random", "paper"])
def test_the_winner_has_the_best_reward_of_all_children(kind):
    learner, learned = learnt(
        search=SearchSettings(kind, trials=3, warm_points=2, bounds=3, round_size=2, halving=False)
    )
    for entry, growth in zip(learned[1:], learner.network.growths[1:], strict=True):
        assert 3 <= len(entry.trials) <= 6
        best = max(trial.reward for trial in entry.trials)
        assert best == next(trial.reward for trial in entry.trials if trial.widths == entry.widths)
        assert growth.widths == entry.widths
        assert all(max(trial.widths) <= 3 for trial in entry.trials)
        assert len({trial.widths for trial in entry.trials}) == len(entry.trials)


def test_the_first_task_is_the_base_network_without_search_or_attention():
    learner, (learned,) = learnt(1)
    assert learned.widths == (6, 5)
    assert learned.trials == ()
    assert math.isnan(learned.difficulty)
    assert learned.parameters["attention"] == 0
    assert learner.history == []


def test_difficulty_is_what_a_fresh_network_has_over_the_child_that_adds_nothing():
    _, learned = learnt(3, search=replace(PAPER_SEARCH, kind="paper"))
    fresh, stream = Independent(small_mlp(), recipe=RECIPE, seed=0, device="cpu"), hard_stream(2.0)
    alone = [fresh.learn(stream[index]) for index in range(3)]
    for index in (1, 2):
        zero = learned[index].trials[0]
        assert zero.widths == (0, 0)
        expected = alone[index].validation_accuracy - zero.accuracy
        assert learned[index].difficulty == pytest.approx(expected, abs=1e-12)
    assert learned[1].difficulty != learned[2].difficulty


def test_children_are_counted_as_they_would_be_stored():
    learner, learned = learnt(3)
    for entry, growth in zip(learned[1:], learner.network.growths[1:], strict=True):
        (winner,) = [trial for trial in entry.trials if trial.widths == entry.widths]
        assert winner.parameters == entry.added_parameters == sum(count_tensors(growth.tensors).values())


def test_rewards_are_accuracy_less_the_price_of_units():
    _, learned = learnt(2)
    # 72-6-5 with a head of 2 classes: one unit more costs its in-edges, bias and out-edges
    costs = np.array([72 + 1 + 5, 6 + 1 + 2])
    for trial in learned[1].trials:
        price = 5e-3 * (costs * trial.widths).sum() / costs.sum()
        assert trial.reward == pytest.approx(trial.accuracy - price, abs=1e-12)
        assert 0 <= trial.accuracy <= 1


def test_the_committed_network_is_scored_in_compact_form():
    learner, learned = learnt(3)
    stream = hard_stream(2.0)
    for index, entry in enumerate(learned):
        split = stream[index].validation
        right = learner.predict(split.raw, index).argmax(1) == split.labels
        assert entry.validation_accuracy == pytest.approx(right.double().mean().item())


def test_every_earlier_task_is_remembered_for_later_searches():
    learner, learned = learnt(3)
    assert [entry.best for entry in learner.history] == [entry.widths for entry in learned[1:]]
    assert [entry.trials for entry in learner.history] == [entry.trials for entry in learned[1:]]
    assert [entry.difficulty for entry in learner.history] == [entry.difficulty for entry in learned[1:]]


class Stubborn:
    """A searcher that tries two children and always takes the larger."""

    wants_difficulty = True
    made: list[Stubborn] = []  # noqa: RUF012 - a test's own record

    def __init__(self, problem, settings) -> None:
        self.problem, self.settings, self.told = problem, settings, []
        Stubborn.made.append(self)

    def ask(self, count):
        return [] if self.told else [(1, 0), (2, 3)]

    def tell(self, trials):
        self.told += trials

    def best(self):
        return (2, 3)


def test_a_searcher_of_ones_own_is_used():
    Stubborn.made.clear()
    learner, learned = learnt(3, searcher=Stubborn)
    assert [entry.widths for entry in learned] == [(6, 5), (2, 3), (2, 3)]
    assert learner.network.widths() == (10, 11)
    first, second = Stubborn.made
    assert first.problem.bounds == (3, 3)
    assert first.settings is PAPER_SEARCH
    assert [trial.widths for trial in first.problem.trained] == [(0, 0)]
    assert [trial.widths for trial in first.told] == [(1, 0), (2, 3)]
    assert first.problem.history == ()
    assert [entry.best for entry in second.problem.history] == [(2, 3)]
    assert first.problem.difficulty == learned[1].difficulty
    assert first.problem.seed != second.problem.seed
    # at (6, 5) with a head of 2, then at (8, 8) with one of 4
    assert first.problem.penalty(np.array([[1, 1]])) == pytest.approx(5e-3)
    counted = [entry.parameters(np.array([[2, 3]]))[0] for entry in (first.problem, second.problem)]
    assert counted == [entry.added_parameters for entry in learned[1:]]


def test_a_loaded_learner_searches_as_the_one_that_was_saved(tmp_path):
    search = replace(PAPER_SEARCH, kind="bayesian", bounds=9, trials=6, patience=6)
    grown = [(0, 0), (9, 0), (8, 1), (1, 9), (0, 2), (5, 5)]
    trials = [Trial(z, 0.4 + 0.05 * z[0] - 0.03 * z[1] / 9, 40 * sum(z), 0.5) for z in grown]
    prior = [Experience(0.1, (9, 0), tuple(trials))]
    stream = hard_stream(spread=3.0)

    def asked(learner):
        return [trial.widths for trial in learner.learn(stream[1]).trials]

    plain, informed = paper_bocl(search=search), paper_bocl(search=search, prior_trials=prior)
    for learner in (plain, informed):
        learner.learn(stream[0])
    informed.save(tmp_path)
    loaded = load(tmp_path, device="cpu")
    early, again = informed.state(), paper_bocl(search=search, prior_trials=prior)
    early.facts["prior_trials"] = []
    again.restore(early)
    assert again.prior_trials == loaded.prior_trials == informed.prior_trials, (
        "a save that is without leaves a learner its own"
    )
    wanted = asked(informed)
    assert asked(loaded) == wanted
    assert asked(plain) != wanted, "the prior trials have a part in it"


def test_a_loaded_learner_takes_its_searcher_back(tmp_path):
    learner, _ = learnt(2, searcher=Stubborn)
    learner.save(tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu", searcher=Stubborn)
    assert loaded.learn(hard_stream(2.0)[2]).widths == (2, 3)


def test_the_settings_choose_the_searcher():
    learner = paper_bocl()
    assert isinstance(learner.searcher(_problem(), PAPER_SEARCH), RandomSearch)


def _problem():
    Stubborn.made.clear()
    learnt(2, searcher=Stubborn)
    return Stubborn.made[0].problem


@pytest.mark.parametrize(
    ("validation", "options", "wanted"),
    [(99, {}, "confidence"), (100, {}, "accuracy"), (20, {"reward": PAPER_REWARD}, "accuracy")],
    ids=["few", "enough", "with a price"],
)
def test_with_a_tolerance_few_samples_are_compared_by_confidence(validation, options, wanted):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(validation + 40, 72)).astype(np.float32), np.arange(validation + 40) % 2
    stream = from_arrays([(x[:40], y[:40])] * 2, validation=[(x[40:], y[40:])] * 2)
    problems = []

    class Noting(RandomSearch):
        def __init__(self, problem, settings):
            super().__init__(problem, settings)
            problems.append(problem)

    learner = make_bocl(searcher=Noting, **options)
    for task in stream:
        trials = learner.learn(task).trials
    assert problems[-1].measure == wanted
    for trial in [trial for trial in trials if not trial.failed]:
        assert 0 < trial.confidence < 1
        if "reward" not in options:
            paid = problems[-1].tolerance * trial.parameters / problems[-1]._most()
            assert trial.reward == pytest.approx(getattr(trial, wanted) - paid)


def test_samples_shown_are_those_of_all_networks_trained():
    _, learned = learnt(2)
    train = len(hard_stream()[0].train)
    per_network = RECIPE.epochs * -(-train // 16) * 16
    assert learned[0].effort.samples == per_network
    assert learned[1].effort.samples == per_network * len(learned[1].trials)
    _, by_the_paper = learnt(2, search=replace(PAPER_SEARCH, kind="paper"))
    assert by_the_paper[1].effort.samples == per_network * (1 + len(by_the_paper[1].trials)), "and a fresh network"


def test_a_listener_hears_every_trial_and_changes_nothing():
    events: list = []
    learner, stream = paper_bocl(), hard_stream(2.0)
    learned = [learner.learn(stream[index], events.append) for index in range(2)]
    _, quiet = learnt(2)
    assert repr(learned) == repr(quiet)
    told = [event.trial for event in events if isinstance(event, TrialDone)]
    assert tuple(told) == learned[1].trials
    rounds = [event for event in events if isinstance(event, RoundStarted)]
    assert [event.purpose for event in rounds[:2]] == ["base", "search"]
    assert set(rounds[1].widths) > {(0, 0)}, "the child that adds nothing is trained with the first round"
    assert len(rounds[1].widths) <= PAPER_SEARCH.round_size + 1
    assert max(len(event.widths) for event in rounds[2:]) <= PAPER_SEARCH.round_size


@pytest.mark.parametrize("own", [True, False])
def test_difficulty_and_the_child_of_no_growth_come_first_for_who_asks_for_them(own):
    events: list = []
    learner, stream = (
        paper_bocl(searcher=Stubborn) if own else paper_bocl(search=replace(PAPER_SEARCH, kind="paper")),
        hard_stream(),
    )
    Stubborn.made.clear()
    for index in range(2):
        learner.learn(stream[index], events.append)
    rounds = [event for event in events if isinstance(event, RoundStarted)]
    assert [event.purpose for event in rounds[:4]] == ["base", "difficulty", "difficulty", "search"]
    assert [event.widths for event in rounds[1:3]] == [((6, 5),), ((0, 0),)]
    if own:
        (made,) = Stubborn.made
        assert math.isfinite(made.problem.difficulty)
        assert [trial.widths for trial in made.problem.trained] == [(0, 0)]


class Undemanding(Stubborn):
    """The same, that does not want the difficulty measured."""

    wants_difficulty = False


@pytest.mark.parametrize("factory", [Undemanding, lambda problem, settings: Undemanding(problem, settings)])
def test_a_searcher_of_ones_own_that_does_not_ask_for_the_difficulty_is_spared_it(factory):
    events: list = []
    learner, stream = paper_bocl(searcher=factory), hard_stream()
    Stubborn.made.clear()
    for index in range(2):
        learned = learner.learn(stream[index], events.append)
    rounds = [event for event in events if isinstance(event, RoundStarted)]
    assert [(event.purpose, event.widths) for event in rounds[1:]] == [("search", ((0, 0), (1, 0), (2, 3)))]
    (made,) = Stubborn.made
    assert (made.problem.trained, made.problem.pending) == ((), ((0, 0),))
    assert math.isnan(made.problem.difficulty)
    assert math.isnan(learned.difficulty)
    assert [trial.widths for trial in made.told] == [(0, 0), (1, 0), (2, 3)]


def test_children_one_by_one_are_never_trained_together():
    rounds: list = []
    learner, stream = paper_bocl(search=replace(PAPER_SEARCH, round_size=1)), hard_stream()
    for index in range(2):
        learner.learn(stream[index], rounds.append)
    sizes = [len(event.widths) for event in rounds if isinstance(event, RoundStarted)]
    assert set(sizes) == {1}
    assert len(sizes) > 3


def test_bounds_that_do_not_fit_the_network_are_refused_at_once():
    with pytest.raises(ConfigError, match="2 hidden groups"):
        paper_bocl(search=SearchSettings(bounds=(1, 2, 3)))


def test_a_training_that_diverges_is_an_error_and_leaves_the_learner_as_it_was():
    learner, _ = learnt(1)
    good, learner.recipe = learner.recipe, Recipe("sgd", learning_rate=1e30, epochs=2)
    stream = hard_stream(2.0)
    with pytest.raises(WorkError, match="learning_rate"):
        learner.learn(stream[1])
    assert len(learner.seen) == len(learner.network.tasks) == 1
    learner.recipe = good
    learner.learn(stream[1])
    other, _ = learnt(2)
    for name, tensor in other.state().tensors.items():
        assert torch.equal(tensor, learner.state().tensors[name])


def test_a_child_that_diverges_does_not_win():
    learner, stream = paper_bocl(), hard_stream(2.0)
    learner.learn(stream[0])
    original = learner.network.grow

    def poisoned(widths, classes, **options):
        children = original(widths, classes, **options)
        if len(widths) > 1:
            with torch.no_grad():
                children.parameters["head/weight"][0] = torch.nan
        return children

    learner.network.grow = poisoned
    learned = learner.learn(stream[1])
    failed = [trial for trial in learned.trials if trial.failed]
    assert failed
    assert learned.widths not in [trial.widths for trial in failed]
    assert 0 <= learned.validation_accuracy <= 1


class Answers:
    """A searcher that gives one prepared answer, and then another as the best."""

    def __init__(self, asked, best) -> None:
        self.asked, self.chosen, self.told = [asked], best, []

    def __call__(self, problem, settings):
        return self

    def ask(self, count):
        return self.asked.pop() if self.asked else []

    def tell(self, trials):
        self.told += trials

    def best(self):
        return self.chosen


@pytest.mark.parametrize(
    "asked",
    [
        [[1, 0], [2, 3]],
        np.array([[1, 0], [2, 3]]),
        ((np.int64(1), np.int64(0)), (2, 3)),
        [np.array([1, 0], dtype=np.int8), torch.tensor([2, 3])],
    ],
)
@pytest.mark.parametrize("best", [[2, 3], np.array([2, 3]), (np.int64(2), np.int64(3))])
def test_a_searchers_answers_become_tuples_of_integers(asked, best, tmp_path):
    searcher = Answers(asked, best)
    learner, learned = learnt(2, searcher=searcher)
    assert learned[1].widths == (2, 3)
    assert [trial.widths for trial in searcher.told] == [(0, 0), (1, 0), (2, 3)]
    assert {type(units) for trial in searcher.told for units in (*trial.widths, *learned[1].widths)} == {int}
    learner.save(tmp_path / "model")


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ([(-1, 2)], r"ask\(\) gave the widths \(-1, 2\)"),
        ([(1,)], r"ask\(\) gave the widths \(1,\); widths are 2 integers"),
        ([(1.5, 2)], r"ask\(\) gave the widths \(1\.5, 2\)"),
        ([(True, 2)], r"ask\(\) gave the widths \(True, 2\)"),
        ([(1, 4)], r"ask\(\) gave the widths \(1, 4\).*from 0 to the bounds \(3, 3\)"),
        ([(1, 2), (1, 2)], r"ask\(\) gave \(1, 2\), which is trained or asked for already"),
        ([(0, 0)], r"ask\(\) gave \(0, 0\), which is trained or asked for already"),
        ((1, 2), r"ask\(\) gave the widths 1;"),
        (np.array([[1.0, 2.0]]), r"ask\(\) gave the widths array"),
        ([None], r"ask\(\) gave the widths None"),
        (5, r"ask\(\) returned 5; it must return a list"),
        (None, r"ask\(\) returned None; it must return a list"),
        ("ab", r"ask\(\) returned 'ab'; it must return a list"),
    ],
)
def test_an_answer_that_is_no_widths_is_refused_and_nothing_changes(asked, message):
    learner, _ = learnt(1, searcher=Answers(asked, (0, 0)))
    with pytest.raises(InputError, match=message):
        learner.learn(hard_stream(2.0)[1])
    assert len(learner.seen) == len(learner.network.tasks) == 1
    assert learner.history == []


@pytest.mark.parametrize(
    ("best", "message"), [((3, 3), "never trained"), (None, "gave the widths None"), ((1,), "2 integers")]
)
def test_a_best_that_was_not_trained_is_refused(best, message):
    learner, _ = learnt(1, searcher=Answers([(1, 0)], best))
    with pytest.raises(InputError, match=message):
        learner.learn(hard_stream(2.0)[1])


def test_an_object_that_is_no_searcher_is_refused():
    learner, _ = learnt(1, searcher=lambda *_: 5)
    with pytest.raises(InputError, match="of type int, has no ask, tell, best"):
        learner.learn(hard_stream(2.0)[1])


def test_a_failed_child_cannot_be_the_best():
    learner, _ = learnt(1, searcher=Answers([(1, 0)], (1, 0)))
    original = learner.network.grow

    def poisoned(widths, classes, **options):
        children = original(widths, classes, **options)
        if (1, 0) in widths:
            with torch.no_grad():
                children.parameters["head/weight"][widths.index((1, 0))] = torch.nan
        return children

    learner.network.grow = poisoned
    with pytest.raises(WorkError, match="task 'task 2': the loss was not finite"):
        learner.learn(hard_stream(2.0)[1])
    assert len(learner.seen) == len(learner.network.tasks) == 1


def test_a_difficulty_that_was_not_measured_comes_back(tmp_path):
    learner, other = paper_bocl(), paper_bocl()
    for task in (hard_stream()[0], hard_stream()[1]):
        learner.learn(task)
    learner.history = [replace(learner.history[0], difficulty=math.nan)]
    other.restore(learner.state())
    learner.save(tmp_path / "model")
    for back in (other, load(tmp_path / "model")):
        assert math.isnan(back.history[0].difficulty)
        assert back.history[0].trials == learner.history[0].trials
        back.learn(hard_stream()[2])


@pytest.mark.parametrize("kind", [np.asarray, lambda view: torch.zeros(1).expand(view.shape)])
def test_inputs_that_memory_cannot_hold_are_refused_before_they_are_copied(kind):
    learner = paper_bocl()
    learner.learn(hard_stream()[0])
    shape = hard_stream()[0].input_shape
    for wrong, message in (((10**12, *shape), "GB of memory"), ((10**12, *shape, 2), "takes samples of shape")):
        with pytest.raises(InputError, match=message):
            learner.predict(kind(np.broadcast_to(np.float32(0), wrong)), task=0)
