"""Samples without a task: what is added up to guess it, what is answered, saved, counted and refused."""

from __future__ import annotations

import copy
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from torch import Tensor, nn

import bocl
from bocl.errors import ConfigError, DataError, InputError, NetworkError
from bocl.method_table import METHODS
from bocl.methods.discriminant import SHRINKAGE, Discriminant, add_up, packed, unpacked
from bocl.methods.fixed_map import filtered, projected
from bocl.methods.guessing import GUESS, GuessSettings
from bocl.methods.method import Learner, State
from bocl.methods.saving import _seal, load, read_state, save
from bocl.methods.seen import SeenTask

sys.path.append(str(Path(__file__).parents[1] / "networks"))
from low_rank_examples import Mobile, trained

RECIPE = bocl.Recipe("adam", learning_rate=0.02, batch_size=16, epochs=2)
CLASSES = (3, 2, 4)
OWN: dict[str, Any] = {"fixed": bocl.FixedSettings(2), "rcl": bocl.RCLSettings(trials=2)}
SEARCH = bocl.SearchSettings("random", trials=2, warm_points=1, bounds=2, round_size=2)


def make(method: str = "fixed", network: nn.Module | None = None, guess: str = "auto", **options: Any) -> Learner:
    kind = METHODS[method].load()
    given = {"settings": OWN[method]} if method in OWN else {}
    if method in ("bocl", "rcl"):
        given["search"] = SEARCH
    learner: Learner = kind(
        network or bocl.mlp(6, [5], 3),
        **{"recipe": RECIPE, "device": "cpu", "guess": GuessSettings(guess), **given, **options},  # type: ignore[arg-type]
    )
    return learner


def tasks(shape: tuple[int, ...] = (6,), samples: int = 60, **options: Any) -> bocl.TaskStream:
    """Return three tasks of 3, 2 and 4 classes, far from each other; labels are words."""
    pairs = []
    for task, classes in enumerate(CLASSES):
        rng = np.random.default_rng(task)
        y = np.arange(samples) % classes
        x = rng.normal(0, 3, (classes, *shape))[y] + rng.normal(0, 1, (samples, *shape))
        pairs.append((x.astype(np.float32), [f"{'abc'[task]}{label}" for label in y]))
    stream: bocl.TaskStream = bocl.from_arrays(pairs, validation=0.2, **options)
    return stream


def learnt(method: str = "fixed", stream: bocl.TaskStream | None = None, **options: Any) -> Learner:
    stream = stream or tasks()
    learner = make(method, **options)
    for index in range(len(stream)):
        learner.learn(stream[index])
    return learner


# What is added up.


def gaussian_samples(samples: int = 90) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    found = []
    for classes in CLASSES:
        y = torch.arange(samples) % classes
        x = torch.randn(classes, 4, generator=generator)[y] + torch.randn(samples, 4, generator=generator)
        found.append((x + 1000, y))  # far from 0
    return found


def added(pairs: list[tuple[Tensor, Tensor]], batch: int = 1000) -> Discriminant:
    found: Discriminant | None = None
    for x, y in pairs:
        parts = zip(x.split(batch), y.split(batch), strict=True)
        found = Discriminant.of(*add_up(parts, int(y.max()) + 1), found)
    assert found is not None
    return found


def test_sums_over_tasks_and_batches_are_those_of_one_pass():
    pairs = gaussian_samples()
    scatter = np.zeros((4, 4))
    for x, y in pairs:
        for label in y.unique():
            of_class = x[y == label].double().numpy()
            scatter += (of_class - of_class.mean(0)).T @ (of_class - of_class.mean(0))
    for batch in (1000, 7):
        found = added(pairs, batch)
        np.testing.assert_allclose(unpacked(found.scatter, 4), scatter, rtol=1e-9)
        for task, (x, y) in zip(found.tasks, pairs, strict=True):
            means = [x[y == label].double().mean(0) for label in y.unique()]
            torch.testing.assert_close(task.sums / task.counts[:, None], torch.stack(means))
    d, classes = 4, sum(CLASSES)
    assert found.numbers() == d * (d + 1) // 2 + classes * d + classes


def test_the_order_of_tasks_does_not_matter():
    pairs = gaussian_samples()
    x = pairs[1][0][:20]
    one, other = added(pairs).log_densities(x), added(pairs[::-1]).log_densities(x).flip(1)
    torch.testing.assert_close(one.log_softmax(1), other.log_softmax(1), rtol=1e-6, atol=1e-6)


def test_its_densities_are_those_of_gaussians_around_the_class_means():
    pairs = gaussian_samples()
    found = added(pairs)
    samples, d = sum(len(y) for _, y in pairs), 4
    scatter, more = unpacked(found.scatter, d).numpy(), SHRINKAGE * d
    covariance = (scatter + more * np.trace(scatter) / (samples * d) * np.eye(d)) / (samples + more)
    x = pairs[2][0][:10]
    wanted = []
    for task in found.tasks:
        means = (task.sums / task.counts[:, None]).numpy()
        by_class = [multivariate_normal(mean, covariance).logpdf(x.double().numpy()) for mean in means]
        wanted.append(logsumexp(by_class, axis=0) - np.log(len(means)))
    expected = torch.tensor(np.array(wanted)).T.log_softmax(1)
    torch.testing.assert_close(found.log_densities(x).log_softmax(1), expected, rtol=1e-5, atol=1e-5)


def test_few_samples_and_numbers_that_never_differ_are_enough():
    x = torch.zeros(4, 8)
    x[:, 0] = torch.tensor([0.0, 0.0, 5.0, 5.0])
    found = added([(x, torch.tensor([0, 0, 1, 1])), (x + 1, torch.tensor([0, 0, 1, 1]))])
    assert found.log_densities(x).isfinite().all()
    assert found.log_densities(x).argmax(1).tolist() == [0] * 4


def test_a_triangle_is_a_matrix_again():
    matrix = torch.tensor([[1.0, 2.0, 3.0], [2.0, 4.0, 5.0], [3.0, 5.0, 6.0]])
    assert packed(matrix).tolist() == [1, 2, 4, 3, 5, 6]
    assert torch.equal(unpacked(packed(matrix), 3), matrix)


@pytest.mark.parametrize(("shape", "numbers"), [((3, 8, 8), 63), ((2, 30), 69), ((1, 6, 6, 6), 54), ((1, 2, 2), 68)])
def test_filters_give_about_as_many_numbers_as_asked_for(shape, numbers):
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0))
    found = filtered(x, 70, seed=1)
    assert found.shape == (5, numbers)
    assert torch.equal(found, filtered(x, 70, seed=1))
    assert not torch.equal(found, filtered(x, 70, seed=2))
    torch.testing.assert_close(filtered(x[:2], 70, seed=1), found[:2])


def test_more_numbers_than_asked_for_are_summed_at_random():
    x = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0))
    assert torch.equal(projected(x, 12, seed=0), x.flatten(1))
    found = projected(x, 7, seed=0)
    assert found.shape == (5, 7)
    torch.testing.assert_close(projected(2 * x, 7, seed=0), 2 * found)


# What is answered.


@pytest.mark.parametrize("method", METHODS)
def test_every_method_guesses_and_forgets_nothing_it_did_not_forget_before(method, tmp_path):
    stream = tasks()
    learner, without = learnt(method, stream), learnt(method, stream, guess="none")
    for index in range(3):
        x = stream.test_split(index).raw
        guess = learner.predict_task(x)
        assert (guess.tasks == index).double().mean() > 0.9
        assert guess.names == tuple(f"task {number + 1}" for number in guess.tasks.tolist())
        torch.testing.assert_close(guess.probabilities.sum(1), torch.ones(len(x), dtype=torch.float64))
        assert torch.equal(learner.predict(x, index), without.predict(x, index)), "guessing changes no logits"
    own, other = learner.state(), without.state()
    assert repr(own.facts) == repr(other.facts)
    kept = {name for name in own.tensors if name.startswith(GUESS)}
    assert own.tensors.keys() - kept == other.tensors.keys()
    assert all(torch.equal(own.tensors[name], tensor) for name, tensor in other.tensors.items())
    assert learner.extra_numbers() - without.extra_numbers() == sum(own.tensors[name].numel() for name in kept) > 0
    save(learner, tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    assert torch.equal(loaded.predict_task(x).probabilities, guess.probabilities)


def test_without_a_task_every_sample_has_the_logits_of_its_own():
    stream, learner = tasks(), learnt()
    parts = [stream.test_split(index) for index in range(3)]
    x = torch.cat([part.raw for part in parts])
    tasks_of = torch.cat([torch.full((len(part),), index) for index, part in enumerate(parts)])
    guess = learner.predict_task(x)
    right = guess.tasks == tasks_of
    logits, labels = learner.predict(x), learner.predict_labels(x)
    assert logits.shape == (len(x), 4)
    for index, classes in enumerate(CLASSES):
        rows = guess.tasks == index
        assert torch.equal(logits[rows, :classes], learner.predict(x[rows], index)), "the same bits"
        assert (logits[rows, classes:] == -torch.inf).all()
        chosen = [label for label, row in zip(labels, rows.tolist(), strict=True) if row]
        assert chosen == learner.predict_labels(x[rows], index)
    assert torch.equal(learner.predict_proba(x), logits.softmax(1))
    y = [stream[index].labels[number] for index, part in enumerate(parts) for number in part.labels.tolist()]
    hits = [one == other for one, other in zip(labels, y, strict=True)]
    assert learner.score(x, y) == pytest.approx(np.mean(hits))
    assert learner.score(x, y) <= right.double().mean(), "labels of other tasks are other words"
    with pytest.raises(DataError, match="no label is one"):
        learner.score(x, ["z"] * len(x))


def test_samples_that_belong_together_are_guessed_together():
    stream = tasks()
    learner, x = learnt(stream=stream), stream.test_split(1).raw
    noisy = x + 3 * torch.randn(x.shape, generator=torch.Generator().manual_seed(3))
    alone, together = learner.predict_task(noisy), learner.predict_task(noisy, together=True)
    assert alone.tasks.unique().numel() > 1
    assert together.tasks.tolist() == [1] * len(x)
    assert together.names == ("task 2",) * len(x)
    torch.testing.assert_close(together.probabilities[0], alone.probabilities.log().sum(0).softmax(0))
    assert torch.equal(learner.predict(noisy, together=True), learner.predict(noisy, 1))
    assert learner.predict_labels(noisy, together=True) == learner.predict_labels(noisy, 1)


def test_no_sample_at_all_is_no_mistake():
    learner = learnt()
    for together in (False, True):
        assert learner.predict_task([], together=together).names == ()
        assert learner.predict([], together=together).shape == (0, 0)
        assert learner.predict_labels(np.zeros((0, 6), np.float32), together=together) == []


def test_whoever_keeps_nothing_is_told_what_to_set():
    stream = tasks()
    learner = make(guess="none")
    with pytest.raises(InputError, match="no task has been learnt"):
        learner.predict_task(stream[0].train.raw)
    learner.learn(stream[0])
    for ask in (learner.predict, learner.predict_task, learner.predict_proba, learner.predict_labels):
        with pytest.raises(InputError, match=r"give its number or its name, or make the learner with guess=GuessSet"):
            ask(stream[0].train.raw)


def bright(level: int, task: int) -> tuple[np.ndarray, np.ndarray]:
    """Return bytes that differ between tasks by little else than their level, which a scale of their own takes away."""
    rng = np.random.default_rng(task)
    y = np.arange(60) % 2
    x = level + 8 * y[:, None, None, None] + rng.normal(0, 4, (60, 1, 4, 4))
    return x.clip(0, 255).astype(np.uint8), y


def test_tasks_are_told_apart_in_one_scale():
    stream = bocl.from_arrays([bright(level, task) for task, level in enumerate((40, 120, 200))], validation=0.2)
    learner = learnt(stream=stream, network=bocl.mlp(16, [4], 2))
    assert len({entry.mean for entry in learner.seen}) == 3
    for index in range(3):
        split = stream.test_split(index)
        assert learner.predict_task(split.raw).tasks.tolist() == [index] * len(split)
    with pytest.raises(DataError, match=r"float32, but every task scales its bytes in its own way; give uint8, or the"):
        learner.predict_task(split.inputs())
    with pytest.raises(DataError, match="takes samples of shape"):
        learner.predict_task(split.raw[:, :, 1:])


def test_floats_that_were_standardised_task_by_task_are_given_as_they_came():
    stream = tasks(standardise=True)
    learner = learnt(stream=stream)
    assert len({entry.mean for entry in learner.seen}) == 3
    for index in range(3):
        assert (learner.predict_task(stream.test_split(index).raw).tasks == index).double().mean() > 0.9


# What maps there are.


def test_the_map_suits_the_samples():
    few = GuessSettings("auto", size=40)
    for shape, kind in (((6,), "inputs"), ((50,), "inputs"), ((1, 6, 6), "inputs"), ((2, 6, 6), "filters")):
        learner = make(guess="auto")
        learner.guess = few
        first = SeenTask("a", 2, shape, (0.0,), (1.0,), in_bytes=False)
        assert learner.map_kind(first) == kind


@pytest.mark.parametrize("form", ["units", "low-rank"])
def test_a_pretrained_network_guesses_by_its_frozen_features(form, tmp_path):
    module = trained(Mobile())
    growth = bocl.GrowthSettings(form=form)  # type: ignore[arg-type]
    stream = tasks((2, 8, 8))
    learner = learnt(stream=stream, network=module, growth=growth, pretrained=True)
    assert learner.map_kind(learner.seen[0]) == "features"
    assert learner.discriminant is not None
    x, read = stream.test_split(2).raw, []
    head = [part for part in module.modules() if isinstance(part, nn.Linear)][-1]
    head.register_forward_pre_hook(lambda _, given: read.append(given[0]))
    with torch.no_grad():
        module.eval()(x)
    found = learner.frozen_features
    assert found is not None
    before = found(x)
    torch.testing.assert_close(before, read[0], msg="they are what the module's own head reads")
    assert before.shape[1] == learner.discriminant.size
    assert learner.predict_task(x).tasks.bincount(minlength=3).argmax() == 2
    learner.save(tmp_path / "model")
    given = {} if form == "units" else {"network": trained(Mobile(), 5)}  # whose weights come from the folder
    loaded = bocl.load(tmp_path / "model", device="cpu", **given)
    torch.testing.assert_close(loaded.frozen_features(x), before)
    assert torch.equal(loaded.predict_task(x).tasks, learner.predict_task(x).tasks)


def test_whole_copies_of_a_module_have_no_frozen_features():
    learner = learnt("independent", tasks((2, 8, 8)), network=trained(Mobile()), pretrained=True)
    assert learner.map_kind(learner.seen[0]) == "inputs"


def test_a_map_that_cannot_be_is_refused_before_anything_is_trained():
    stream = tasks()
    for guess, message in (("features", "keeps no frozen pretrained network"), ("filters", "are no images")):
        learner = make(guess=guess)
        with pytest.raises(ConfigError, match=message):
            learner.learn(stream[0])
        assert not learner.seen
    with pytest.raises(ConfigError, match=r"guess\.map is 'best'"):
        GuessSettings("best")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"guess\.size is 0"):
        GuessSettings("auto", 0)
    with pytest.raises(ConfigError, match="guess"):
        bocl.Fixed(bocl.mlp(6, [5], 3), guess="auto", device="cpu")  # type: ignore[arg-type]


# What is saved.


@pytest.mark.parametrize("method", ["fixed", "ewc"])
def test_a_restored_learner_goes_on_as_if_nothing_had_happened(method):
    stream = tasks()
    learner = make(method)
    learner.learn(stream[0])
    again = make(method)
    again.check_state(learner.state())
    again.restore(learner.state())
    for index in (1, 2):
        for each in (learner, again):
            each.learn(stream[index])
    one, other = learner.state().tensors, again.state().tensors
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_a_later_part_holds_its_own_sums_and_the_newest_scatter():
    learner = learnt()
    names = {name for name in learner.state(2).tensors if name.startswith(GUESS)}
    assert names == {"guess/2/sums", "guess/2/counts", "guess/scatter"}
    assert {"guess/sums", "guess/counts"} <= learner.tensors_of(0).keys()
    assert torch.equal(learner.tensors_of(1)["guess/sums"], learner.state().tensors["guess/1/sums"])


def test_a_task_that_fails_leaves_the_sums_as_they_were():
    stream, learner = tasks(), learnt(stream=tasks())
    before = learner.discriminant

    def fail(_event: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        learner.learn(replace(stream[0], name="again"), fail)
    assert learner.discriminant is before


DAMAGES = {
    "missing": ("1/sums", None),
    "shape": ("0/sums", lambda sums: sums[:, 1:]),
    "type": ("0/sums", lambda sums: sums.float()),
    "infinite": ("2/sums", lambda sums: sums / 0),
    "no samples": ("1/counts", torch.zeros_like),
    "negative": ("scatter", lambda scatter: -scatter),
    "length": ("scatter", lambda scatter: scatter[1:]),
    "unknown": ("3/sums", None),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_sums_are_refused(damage):
    learner = learnt()
    state = learner.state()
    name, change = DAMAGES[damage]
    tensors = dict(state.tensors)
    if damage == "unknown":
        tensors[GUESS + name] = torch.zeros(2, 6, dtype=torch.float64)
    elif change is None:
        del tensors[GUESS + name]
    else:
        tensors[GUESS + name] = change(tensors[GUESS + name])
    with pytest.raises(NetworkError, match=f"tensor '{GUESS}"):
        learner.check_state(State(state.facts, tensors))
    make().check_state(state)


def test_sums_of_a_learner_that_guesses_none_are_refused(tmp_path):
    learner, without = learnt(), make(guess="none")
    with pytest.raises(NetworkError, match="belongs to nothing"):
        without.check_state(learner.state())
    with pytest.raises(NetworkError, match="is missing"):
        make().check_state(learnt(guess="none").state())
    save(learner, tmp_path / "model")
    with pytest.raises(bocl.InputError, match="other settings"):
        read_state(tmp_path / "model", without, tasks=3)


def test_a_model_without_the_section_guesses_nothing(tmp_path):
    save(learnt(guess="none"), tmp_path / "model")
    path = tmp_path / "model" / "model.json"
    model = json.loads(path.read_text())
    del model["settings"]["guess"]
    path.write_text(json.dumps(model | {"sha256": _seal(model)}))
    assert load(tmp_path / "model", device="cpu").guess == GuessSettings()


def test_a_learner_is_copied_with_what_it_guesses_by():
    learner = learnt()
    other = copy.deepcopy(learner)
    x = tasks().test_split(0).raw
    assert torch.equal(other.predict_task(x).probabilities, learner.predict_task(x).probabilities)
