"""The controls: fixed growth, one fine-tuned network, a network per task, all tasks at once."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from method_examples import CLASSES, RECIPE, hard_stream, small_cnn, small_mlp

from bocl.errors import ConfigError, DataError
from bocl.methods.budget import most_units
from bocl.methods.fixed import Fixed, FixedSettings
from bocl.methods.frozen import Frozen
from bocl.methods.independent import Independent
from bocl.methods.joint import Joint
from bocl.methods.round_trainer import LocalTrainer
from bocl.methods.sn import SN, SNSettings
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.growth import GrowthSettings, GrowthSpace, initialise
from bocl.networks.trace import trace
from bocl.search.lattice import scaled
from paper_settings import PAPER_GROWTH

OPTIONS = {"recipe": RECIPE, "seed": 0, "device": "cpu"}
X = torch.randn(9, 2, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("kind", [Fixed, Frozen, Independent])
def test_growing_and_separate_networks_forget_nothing(kind):
    learner, said = kind(small_cnn(), **OPTIONS), []
    for index in range(3):
        learner.learn(hard_stream()[index])
        assert all(torch.equal(learner.predict(X, task), logits) for task, logits in enumerate(said))
        said.append(learner.predict(X, index))


def test_one_network_fine_tuned_forgets():
    learner = SN(small_cnn(), **OPTIONS)
    learner.learn(hard_stream()[0])
    before = learner.predict(X, 0)
    learner.learn(hard_stream()[1])
    assert not torch.allclose(learner.predict(X, 0), before, atol=1e-3)


def test_fixed_growth_adds_the_same_for_every_task():
    learner = Fixed(small_cnn(), settings=FixedSettings((2, 1)), **OPTIONS)
    learned = [learner.learn(hard_stream()[index]) for index in range(3)]
    assert [entry.widths for entry in learned] == [(4, 5), (2, 1), (2, 1)]
    assert learner.network.widths() == (8, 7)


def test_of_several_children_the_best_on_validation_samples_is_kept():
    tasks = [hard_stream()[index] for index in range(2)]
    brief = OPTIONS | {"recipe": replace(RECIPE, epochs=1, learning_rate=1e-3)}
    single, several = (Fixed(small_cnn(), settings=FixedSettings((2, 1), children=count), **brief) for count in (1, 4))
    rounds = []

    def keeping(*arguments):
        rounds.append(LocalTrainer()(*arguments))
        return rounds[-1]

    for task in tasks:
        single.learn(task)
    learned = [several.learn(task, trainer=keeping) for task in tasks]
    scores = [child.fit.accuracy for child in rounds[1]]
    assert [len(children) for children in rounds] == [1, 4], "the first network is trained once"
    assert len(set(scores)) > 1
    assert learned[1].validation_accuracy == max(scores)
    assert learned[1].effort.samples == sum(child.fit.effort.samples for child in rounds[1])
    alone = single.network.growths[1].tensors
    assert all(torch.allclose(tensor, alone[name]) for name, tensor in rounds[1][0].growth.tensors.items()), (
        "the one that is trained alone is among them"
    )


def test_a_child_that_fails_is_passed_over():
    learner = Fixed(small_cnn(), settings=FixedSettings((2, 1), children=3), **OPTIONS)
    learner.learn(hard_stream()[0])

    def one_fails(*args, **kwargs):
        first, *others = LocalTrainer()(*args, **kwargs)
        return [replace(first, fit=replace(first.fit, accuracy=math.nan), failure="broke"), *others]

    assert not math.isnan(learner.learn(hard_stream()[1], trainer=one_fails).validation_accuracy)


@pytest.mark.parametrize(
    ("widths", "message"),
    [
        ((1,), r"fixed\.widths has 1 entry \(1,\), but the network has 2 hidden groups"),
        ((1, 2, 3), r"fixed\.widths has 3 entries \(1, 2, 3\), but the network has 2 hidden groups"),
        ((1, -1), r"fixed\.widths\[1\] is -1; it must be at least 0"),
        (-2, r"fixed\.widths is -2; it must be at least 0"),
        (1.5, r"fixed\.widths is 1\.5; it must be an integer"),
        ("a", r"fixed\.widths is 'a'; it must be an integer"),
        ((), r"fixed\.widths is \(\); it must be an integer or a list with 1 or more entries"),
        (100_001, r"fixed\.widths is 100001; it must be at most 100000"),
    ],
)
def test_a_fixed_growth_that_does_not_fit_is_refused(widths, message):
    with pytest.raises(ConfigError, match=message):
        Fixed(small_cnn(), settings=FixedSettings(widths), **OPTIONS)


def test_a_fixed_growth_may_be_a_list():
    assert FixedSettings(widths=[2, 1]).widths == (2, 1)


GRAPHS = [trace(small_cnn()), trace(small_mlp())]


def cost(graph, steps, classes, growth, before=(0, 0)):
    """Count what a row of growths adds."""
    total = 0
    for z in steps:
        total += int(GrowthSpace(graph, before, classes, growth).count_all(z))
        before = tuple(old + new for old, new in zip(before, z, strict=True))
    return total


@given(
    graph=st.sampled_from(GRAPHS),
    shape=st.tuples(st.integers(0, 9), st.integers(0, 9)).filter(any),
    classes=st.one_of(
        st.lists(st.integers(1, 12), min_size=1, max_size=6),
        st.tuples(st.integers(1, 12), st.integers(2, 6)).map(lambda pair: [pair[0]] * pair[1]),
    ),
    growth=st.builds(
        GrowthSettings,
        st.sampled_from(["choose", "all"]),
        st.sampled_from(["full", "lean", "forward"]),
        attention=st.booleans(),
        gates=st.sampled_from(["unit", "sample"]),
        reduction_nodes=st.integers(1, 9),
    ),
    budget=st.integers(1, 60_000),
)
@settings(max_examples=150, deadline=None)
def test_a_budget_is_kept_and_used_up(graph, shape, classes, growth, budget):
    """Growths as a run would commit them, without training, for tasks of any numbers of classes."""
    learner = Fixed(graph, settings=FixedSettings(shape, budget), tasks=len(classes), growth=growth, **OPTIONS)
    network, steps = learner.network, []
    for index, many in enumerate(classes):
        least = [(0, 0)] * (len(classes) - index) if index else [graph.widths, *[(0, 0)] * (len(classes) - 1)]
        stored = sum(learner.parameters().values())
        if stored + cost(graph, least, many, growth, network.widths()) > budget:
            with pytest.raises(ConfigError, match=f"{budget:,}"):
                learner._step(many)
            return
        steps.append(learner._step(many))
        network.commit(initialise(network.space(many), steps[-1], seed=0))
        learner.seen.append(None)
        assert sum(learner.parameters().values()) <= budget
    assert steps[0] == graph.widths
    if len(set(classes)) == 1 and len(classes) > 1:
        k = max(steps[1])
        assert set(steps[1:]) == {scaled(shape, k)}, "the same growth for every task"
        more = [graph.widths, *[scaled(shape, k + 1)] * (len(classes) - 1)]
        assert cost(graph, more, classes[0], growth) > budget, "one more unit would fit"


def test_a_budget_grows_in_proportion_and_learns_within_it():
    learner = Fixed(small_mlp(), settings=FixedSettings((4, 2), 1600), tasks=3, **OPTIONS)
    learned = [learner.learn(hard_stream()[index]) for index in range(3)]
    k = max(learned[1].widths)
    assert learned[1].widths == (k, k // 2)
    assert k > 0
    assert sum(learner.parameters().values()) <= 1600


def test_a_budget_survives_a_restart(tmp_path):
    options = {"settings": FixedSettings((4, 2), 1600), "tasks": 3, **OPTIONS}
    learner, other = Fixed(small_mlp(), **options), Fixed(small_mlp(), **options)
    for index in range(2):
        learner.learn(hard_stream()[index])
    other.restore(learner.state())
    assert other.learn(hard_stream()[2]).widths == learner.learn(hard_stream()[2]).widths


@pytest.mark.parametrize("k", [0, 1, 2, 7, 100])
def test_a_budget_is_exact_to_the_last_parameter(k):
    network = ExpandableNetwork(GRAPHS[1])
    exact = cost(network.graph, [network.graph.widths, *[scaled((3, 1), k)] * 3], 4, network.settings)
    assert most_units(network, (3, 1), 4, tasks=4, left=exact) == k
    assert most_units(network, (3, 1), 4, tasks=4, left=exact - 1) == k - 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 0}, r"fixed\.budget is 0; it must be at least 1"),
        ({"children": 0}, r"fixed\.children is 0; it must be at least 1"),
        ({"children": 10**9}, r"fixed\.children is 1000000000; it must be at most 1000"),
        ({"budget": 1.5}, r"fixed\.budget is 1\.5; it must be an integer"),
        ({"budget": 1000, "widths": 0}, r"fixed\.widths is 0, which fixed\.budget cannot scale"),
    ],
)
def test_a_budget_that_cannot_be_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        FixedSettings(**options)


def test_a_run_of_no_tasks_is_refused():
    with pytest.raises(ConfigError, match="tasks is 0"):
        Fixed(small_mlp(), tasks=0, **OPTIONS)


def test_a_budget_too_small_for_the_tasks_is_refused_before_anything_is_trained():
    learner = Fixed(small_mlp(), settings=FixedSettings(budget=600), tasks=10, **OPTIONS)
    with pytest.raises(ConfigError, match=r"fixed\.budget is 600, which the base network.*10 tasks, exceed"):
        learner.learn(hard_stream()[0], lambda _event: pytest.fail("training began"))
    assert not learner.seen


def test_frozen_adds_attention_and_a_head_alone():
    for network in (small_cnn, small_mlp):
        learner = Frozen(network(), growth=PAPER_GROWTH, **OPTIONS)
        learned = [learner.learn(hard_stream()[index]) for index in range(3)]
        assert [entry.widths for entry in learned[1:]] == [(0, 0), (0, 0)]
        assert learner.network.widths() == learner.graph.widths
        for entry in learned[1:]:
            assert entry.parameters["shared"] == 0
            assert entry.parameters["heads"] > 0
            assert entry.parameters["attention"] > 0


@pytest.mark.parametrize("shared_head", ["no", None, 1])
def test_a_shared_head_is_yes_or_no(shared_head):
    with pytest.raises(ConfigError, match=r"sn\.shared_head is"):
        SN(small_mlp(), settings=SNSettings(shared_head), **OPTIONS)


def test_networks_of_fixed_size_add_a_head_per_task():
    for kind in (SN, Joint):
        learner = kind(small_mlp(), **OPTIONS)
        learned = [learner.learn(hard_stream()[index]) for index in range(3)]
        assert [entry.parameters["heads"] for entry in learned] == [6 * classes for classes in CLASSES[:3]]
        assert [entry.parameters["shared"] for entry in learned[1:]] == [0, 0]
        assert [entry.widths for entry in learned] == [(6, 5), (0, 0), (0, 0)]


def test_a_shared_head_is_one_head():
    stream = hard_stream()
    learner = SN(small_mlp(), settings=SNSettings(shared_head=True), **OPTIONS)
    learner.learn(stream[1])
    learned = learner.learn(stream[3])
    assert learned.added_parameters == 0
    assert torch.equal(learner.predict(X, 0), learner.predict(X, 1))


def test_a_shared_head_refuses_other_classes_and_stays_as_it_was():
    stream = hard_stream()
    learner = SN(small_mlp(), settings=SNSettings(shared_head=True), **OPTIONS)
    learner.learn(stream[1])
    before = learner.predict(X, 0)
    with pytest.raises(DataError, match="4 classes but the shared head has 2"):
        learner.learn(stream[2])
    assert len(learner.seen) == 1
    assert torch.equal(learner.predict(X, 0), before)


def test_joint_training_keeps_what_fine_tuning_loses():
    def scores(kind: type) -> list[float]:
        learner = kind(small_mlp(), **OPTIONS)
        for index in range(3):
            learner.learn(stream[index])
        return [
            (learner.predict(stream[task].validation.raw, task).argmax(1) == stream[task].validation.labels)
            .double()
            .mean()
            .item()
            for task in range(3)
        ]

    stream = hard_stream(0.5)
    assert min(scores(Joint)) > max(0.6, min(scores(SN)) - 0.05)


def test_joint_training_starts_afresh_and_follows_its_data():
    stream = hard_stream()
    learner = Joint(small_mlp(), **OPTIONS)
    learner.learn(stream[0])
    learner.learn(stream[1])
    other = Joint(small_mlp(), **OPTIONS)
    other.seen = list(learner.seen[:1])
    other.recall([stream[0]])
    other.learn(stream[1])
    for name, tensor in learner.state().tensors.items():
        assert torch.equal(tensor, other.state().tensors[name])


def test_restoring_replaces_what_a_learner_knew():
    learner = Fixed(small_mlp(), settings=FixedSettings(1), **OPTIONS)
    for index in range(2):
        learner.learn(hard_stream()[index])
    learner.restore(learner.state())
    assert len(learner.network.tasks) == len(learner.network.growths) == len(learner.seen) == 2


def test_an_interrupted_fine_tuning_leaves_nothing_behind():
    def interrupt(_event):
        raise KeyboardInterrupt

    learner, other = SN(small_mlp(), **OPTIONS), SN(small_mlp(), **OPTIONS)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(hard_stream()[0], interrupt)
    for index in range(2):
        learner.learn(hard_stream()[index])
        other.learn(hard_stream()[index])
    assert learner.state().tensors.keys() == other.state().tensors.keys()
