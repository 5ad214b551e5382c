"""FearNet: what its memories answer, what sleep does to them, and what is kept."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import torch
from torch import nn

import bocl
from bocl.errors import ConfigError, NetworkError
from bocl.methods.method import State
from bocl.networks.memories import (
    DEEPER,
    NEAREST,
    Memories,
    Sizes,
    classify,
    covariance_of,
    decode,
    encode,
    judge,
    nearest,
    rebuilding,
    with_loss,
)
from bocl.training.batches import task_to_device

RECIPE = bocl.Recipe("adam", learning_rate=0.01, batch_size=32, epochs=20, weight_decay=0.0)
SIZES = bocl.FearNetSettings(hidden=24, code=6)
CLASSES, FEATURES = 3, 12


def noisy(task: int, size: int, part: int) -> tuple[np.ndarray, np.ndarray]:
    """Return samples of three classes that lie so close that the nearest stored sample is often of another class."""
    centres = np.random.default_rng([7, task]).normal(0, 1, (CLASSES, FEATURES))
    labels = np.arange(size) % CLASSES
    noise = np.random.default_rng([8, task, part]).normal(0, 1.2, (size, FEATURES))
    return (centres[labels] + noise).astype(np.float32), labels


def stream(tasks: int = 3) -> bocl.TaskStream:
    pairs = [noisy(task, 150, 0) for task in range(tasks)]
    return bocl.from_arrays(pairs, test=[noisy(task, 300, 1) for task in range(tasks)], validation=0.2)


class Given(nn.Module):
    """A pretrained module whose features are the samples themselves."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(FEATURES, FEATURES)
        self.head = nn.Linear(FEATURES, 5)
        with torch.no_grad():
            self.body.weight.copy_(torch.eye(FEATURES))
            self.body.bias.zero_()

    def forward(self, x):
        return self.head(self.body(x))


def learner(tasks: int = 0, *, recipe: bocl.Recipe = RECIPE, **settings) -> bocl.FearNet:
    """Return a learner on given features, after so many tasks, a copy of one's own; each is trained only once."""
    return deepcopy(trained(tasks, recipe, replace(SIZES, **settings)))


@cache
def trained(tasks: int, recipe: bocl.Recipe, settings: bocl.FearNetSettings) -> bocl.FearNet:
    if not tasks:
        return bocl.FearNet(Given(), pretrained=True, settings=settings, recipe=recipe, device="cpu")
    made = deepcopy(trained(tasks - 1, recipe, settings))
    made.learn(stream()[tasks - 1])
    return made


def among_all(made: bocl.FearNet, task: int) -> float:
    x, y = noisy(task, 300, 1)
    return made.class_accuracy(x, y, task)


def test_recall_improves_after_sleep():
    awake, slept = learner(3, sleep_every=3), learner(3, sleep_every=2)
    assert (awake.network.slept, slept.network.slept) == (1, 3)
    for task in (1, 2):
        x, y = noisy(task, 300, 1)
        assert slept.score(x, y, task) > awake.score(x, y, task) + 0.03, "the task is known"
        assert among_all(slept, task) > among_all(awake, task) + 0.03, "it is not"


def test_dreams_keep_what_a_sleep_without_them_loses(monkeypatch):
    slept, before = learner(3, sleep_every=2), learner(2, sleep_every=2)
    monkeypatch.setattr(Memories, "dreams", lambda network, *_, **__: [torch.zeros(1, FEATURES)] * len(network.means))
    before.learn(stream()[2])
    assert among_all(slept, 0) > among_all(before, 0) + 0.2


def test_it_sleeps_after_the_first_task_and_then_whenever_hc_holds_enough():
    found = [
        (made.network.slept, len(made.network.recent), len(made.network.means)) for made in map(learner, (1, 2, 3))
    ]
    assert found == [(1, 0, 3), (1, 3, 3), (3, 0, 9)]
    assert learner(2, sleep_every=1).network.slept == 2


def test_what_is_kept_besides_parameters_is_counted():
    one, two, three = (learner(tasks).extra_numbers() for tasks in (1, 2, 3))
    statistics = CLASSES * (6 + 6 * 6)
    assert (one, two, three) == (statistics, statistics + 120 * FEATURES, 3 * statistics)


def test_hc_answers_by_the_nearest_stored_sample_of_each_class():
    stored = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 3.0]])
    found = nearest(stored, [2, 1], torch.tensor([[0.0, 1.0], [0.0, 3.0]])).exp()
    closeness = torch.tensor([[1 / (NEAREST + 1), 1 / (NEAREST + 2)], [1 / (NEAREST + 3), 1 / NEAREST]])
    torch.testing.assert_close(found, closeness / closeness.sum(1, keepdim=True))
    made = learner(2)
    x, _ = noisy(1, 30, 2)
    distances = torch.cdist(torch.from_numpy(x), stream()[1].train.raw)
    closest = torch.stack([distances[:, stream()[1].train.labels == label].amin(1) for label in range(3)], 1)
    assert torch.equal(made.predict(x, 1).argmax(1), closest.argmin(1))


def test_the_likeliest_class_is_the_one_that_the_rule_of_the_paper_chooses():
    made = learner(2)
    network, x = made.network, torch.from_numpy(np.concatenate([noisy(task, 100, 3)[0] for task in (0, 1)]))
    z = network.features(x)
    codes = encode(network.tensors, z)[-1]
    in_mpfc = classify(network.tensors, codes).softmax(1)
    in_hc = nearest(torch.cat(network.recent), [len(samples) for samples in network.recent], z).exp()
    share = judge(network.tensors, codes).softmax(1)[:, 1]
    recent = share / (1 - share) * in_hc.amax(1) > in_mpfc.amax(1)
    wanted = torch.where(recent, CLASSES + in_hc.argmax(1), in_mpfc.argmax(1))
    found = network.among_all(x)
    assert torch.equal(found.argmax(1), wanted)
    assert 20 < recent.sum() < 180
    assert recent[100:].sum() > recent[:100].sum() + 30, "the judge has learnt nothing"
    torch.testing.assert_close(found.exp().sum(1), torch.ones(200))
    for task, own in ((0, in_mpfc), (1, in_hc)):
        torch.testing.assert_close(network.predict(x, task).exp(), own)


def test_where_the_task_is_known_only_its_classes_count():
    made = learner(3)
    x = torch.from_numpy(noisy(1, 50, 2)[0])
    every = made.network.among_all(x)
    for task in range(3):
        own = every[:, CLASSES * task : CLASSES * (task + 1)]
        torch.testing.assert_close(made.predict(x, task), own.log_softmax(1))


def test_the_objective_of_the_mpfc_has_both_its_terms():
    network = learner(1).network
    part, z = network.mpfc(reconstruction=3.0, seed=0), torch.randn(20, FEATURES)
    labels = torch.arange(20) % 3
    nn.functional.cross_entropy(part(z)[0], labels).backward()
    tensors = {name: tensor[0].detach().requires_grad_() for name, tensor in part.state.items()}
    hidden = nn.functional.elu(z @ tensors["mpfc/encoder0/weight"].T + tensors["mpfc/encoder0/bias"])
    code = hidden @ tensors["mpfc/encoder1/weight"].T + tensors["mpfc/encoder1/bias"]
    inner, outer = decode(tensors, code)
    lost = (outer - z).square().mean() + DEEPER * (inner - hidden).square().mean()
    torch.testing.assert_close(rebuilding(tensors, encode(tensors, z)), lost)
    logits = code @ tensors["head/weight"].T + tensors["head/bias"]
    (nn.functional.cross_entropy(logits, labels) + 3.0 * lost).backward()
    for name, parameter in part.parameters.items():
        torch.testing.assert_close(parameter.grad[0], tensors[name].grad, msg=name)


def test_a_loss_is_added_to_what_follows_from_the_logits():
    x = torch.tensor([2.0], requires_grad=True)
    logits = with_loss(3 * x, x.square().sum())
    assert logits.item() == 6
    (5 * logits.sum()).backward()
    assert x.grad.item() == 15 + 4


def test_dreams_are_drawn_from_the_codes_of_each_class():
    network = learner(1).network
    dreams = network.dreams(5000, seed=1)
    assert [tuple(samples.shape) for samples in dreams] == [(5000, FEATURES)] * CLASSES
    assert torch.equal(dreams[1], network.dreams(5000, seed=1)[1])
    assert not torch.equal(dreams[1], network.dreams(5000, seed=2)[1])
    network.tensors = network.tensors | {
        "mpfc/decoder1/weight": torch.eye(24, 6),
        "mpfc/decoder1/bias": torch.full((24,), 100.0),  # where ELU is the identity
        "mpfc/decoder0/weight": torch.eye(FEATURES, 24),
        "mpfc/decoder0/bias": torch.full((FEATURES,), -100.0),
    }
    for samples, mean, covariance in zip(network.dreams(5000, seed=1), network.means, network.covariances, strict=True):
        codes = samples[:, :6]
        spread = covariance.diagonal().max().sqrt()
        assert (codes.mean(0) - mean).abs().max() < 0.1 * spread
        assert (covariance_of(codes) - covariance).abs().max() < 0.15 * spread**2


def test_a_class_with_one_sample_has_dreams():
    network = Memories(learner(1).graph, Sizes(4, 3))
    network.begin({}, seed=0)
    network.scale(torch.randn(9, FEATURES))
    network.remember([torch.randn(1, FEATURES), torch.randn(2, FEATURES)])
    network.sleep(network.mpfc(reconstruction=1.0, seed=0), network.recent)
    single, pair = network.dreams(3, seed=0)
    torch.testing.assert_close(single, single[:1].expand(3, -1))
    assert pair.isfinite().all()


def test_features_are_those_of_the_module_and_neither_changes():
    module, x = Given(), torch.from_numpy(noisy(0, 20, 2)[0])
    made = bocl.FearNet(module, pretrained=True, settings=SIZES, recipe=RECIPE, device="cpu")
    made.learn(stream()[0])
    sha, before = made.base_sha256(), made.network.features(x)
    torch.testing.assert_close(made.network.raw_features(x), x)
    for task in (1, 2):
        made.learn(stream()[task])
    assert torch.equal(made.network.features(x), before)
    assert made.base_sha256() == sha != ""
    assert made.parameters()["base"] == FEATURES * FEATURES + FEATURES
    assert torch.equal(module.body.weight, torch.eye(FEATURES))


def test_without_a_pretrained_module_the_first_task_trains_the_features():
    made = bocl.FearNet(bocl.mlp(FEATURES, [16, 8]), settings=SIZES, recipe=RECIPE, device="cpu")
    samples, x = stream(), torch.from_numpy(noisy(0, 20, 2)[0])
    learned = made.learn(samples[0])
    assert learned.validation_accuracy > 0.6
    before = made.network.features(x)
    assert before.shape == (20, 8)
    body = {name for name in made.network.tensors if name.startswith("layer/")}
    plain = bocl.SN(bocl.mlp(FEATURES, [16, 8]), recipe=RECIPE, device="cpu")
    plain.learn(samples[0])
    assert all(torch.equal(made.network.tensors[name], plain.network.tensors[name]) for name in body)
    for task in (1, 2):
        made.learn(samples[task])
    assert torch.equal(made.network.features(x), before)
    assert made.base_sha256() == ""


def test_storing_a_task_changes_no_answer_for_earlier_ones():
    made = learner(1)
    x = noisy(0, 20, 2)[0]
    before = made.predict(x, 0)
    made.learn(stream()[1])
    assert torch.equal(made.predict(x, 0), before)
    made.learn(stream()[2])
    assert not torch.equal(made.predict(x, 0), before)


def test_features_are_scaled_by_one_spread():
    network = learner(1).network
    z = network.features(task_to_device(stream()[0], 0, "cpu").train.inputs)
    assert z.mean(0).abs().max() < 1e-5
    assert z.var(0, correction=0).mean().item() == pytest.approx(1)
    network.scale(torch.ones(5, FEATURES))
    assert network.features(torch.ones(2, FEATURES)).abs().max() == 0


@pytest.mark.parametrize("tasks", [1, 2, 3])
def test_a_saved_learner_goes_on_as_if_it_had_not_been_saved(tmp_path, tasks):
    made = learner(tasks)
    made.save(tmp_path / "model")
    loaded = bocl.load(tmp_path / "model", device="cpu", network=Given())
    samples = stream(4)
    for one in (made, loaded):
        one.learn(samples[tasks])
    x = noisy(0, 20, 2)[0]
    for task in range(tasks + 1):
        assert torch.equal(made.predict(x, task), loaded.predict(x, task))
    assert torch.equal(made.network.among_all(torch.from_numpy(x)), loaded.network.among_all(torch.from_numpy(x)))


def test_another_module_is_refused_when_a_learner_is_loaded(tmp_path):
    class Other(Given):
        def forward(self, x):
            return self.head(self.body(x).relu())

    learner(1).save(tmp_path / "model")
    Other.__name__ = "Given"
    with pytest.raises(bocl.InputError, match="computes something else"):
        bocl.load(tmp_path / "model", device="cpu", network=Other())


@pytest.mark.parametrize("pretrained", [True, False])
def test_a_task_of_either_memory_is_a_module_and_a_file(tmp_path, pretrained):
    given = {"settings": SIZES, "recipe": replace(RECIPE, epochs=2), "device": "cpu"}
    made = bocl.FearNet(Given() if pretrained else bocl.mlp(FEATURES, [8]), pretrained=pretrained, **given)
    for task in range(2):
        made.learn(stream()[task])
    x = torch.from_numpy(noisy(0, 20, 2)[0])
    for task in range(2):
        made.export(task, tmp_path / f"{task}.safetensors", to="safetensors")
        again = partial(bocl.load_module, tmp_path / f"{task}.safetensors", device="cpu")
        module = again(network=Given()) if pretrained else again()
        with torch.no_grad():
            assert torch.equal(module(x), made.predict(x, task))
            assert torch.equal(made.module(task)(x), made.predict(x, task))


def altered(made: bocl.FearNet, facts=None, **tensors) -> State:
    state = made.state()
    changed = {name.replace("_", "/"): tensor for name, tensor in tensors.items()}
    return State({**state.facts, **(facts or {})}, {**state.tensors, **changed})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"facts": {"slept": 3}}, "facts.slept is 3, and 2 tasks"),
        ({"facts": {"slept": 0}}, "facts.slept is 0, and 2 tasks"),
        ({"facts": {"slept": 2}}, "head/weight"),
        ({"memory_mean": torch.zeros(4, 6)}, "memory/mean"),
        ({"memory_recent/0": torch.zeros(5, FEATURES + 1)}, "memory/recent/0"),
        ({"memory_recent/0": torch.zeros(0, FEATURES)}, "memory/recent/0"),
        ({"memory_recent/9": torch.zeros(5, FEATURES)}, "memory/recent/9"),
        ({"memory_recent/1": torch.full((5, FEATURES), torch.nan)}, "not finite"),
        ({"mpfc_centre": torch.zeros(3)}, "mpfc/centre"),
    ],
)
def test_a_state_that_cannot_be_is_refused(change, words):
    made = learner(2, recipe=replace(RECIPE, epochs=1))
    made.check_state(altered(made))
    with pytest.raises(NetworkError, match=words):
        made.check_state(altered(made, **change))


def test_classes_of_one_name_are_different_ones_in_different_tasks():
    made = learner(3)
    x, y = noisy(1, 300, 1)
    found = made.network.among_all(torch.from_numpy(x)).argmax(1).numpy()
    assert made.class_accuracy(x, y, "task 2") == pytest.approx((found == y + CLASSES).mean())
    assert made.class_accuracy(x[:0], [], 1) == 0.0
    assert made.class_accuracy(x, np.full(300, 77), 1) == 0.0


@pytest.mark.parametrize(
    ("name", "value"),
    [("sleep_every", 0), ("hidden", 0), ("code", 1.5), ("reconstruction", -1.0), ("reconstruction", np.inf)],
)
def test_a_setting_that_cannot_be_is_refused(name, value):
    with pytest.raises(ConfigError, match=rf"fearnet\.{name} is .*; it must be"):
        bocl.FearNetSettings(**{name: value})


def test_a_traced_network_has_no_pretrained_features():
    with pytest.raises(NetworkError, match="has no weights"):
        bocl.FearNet(bocl.trace(bocl.mlp(4, [3])), pretrained=True)
