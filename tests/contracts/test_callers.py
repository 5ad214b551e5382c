"""What a caller works under changes no bit, and a caller finds everything as it was: settings, random numbers, errors.

Every method, on a small network with dropout.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import torch
from torch import nn

import bocl
from bocl.errors import ConfigError
from bocl.experiment.audit import audit
from bocl.experiment.config import load_config
from bocl.experiment.run import run
from bocl.method_table import METHODS
from bocl.methods.fixed import FixedSettings
from bocl.methods.method import Learner, State
from bocl.methods.rcl import RCLSettings
from bocl.methods.saving import load
from bocl.methods.seen import SeenTask
from bocl.networks.graph import Graph
from bocl.networks.trace import trace
from bocl.records.events import EpochDone, Event, TrialDone
from bocl.search.settings import SearchKind, SearchSettings
from bocl.tasks.arrays import ArrayStream, from_arrays
from bocl.training import evaluation
from bocl.training.recipe import Recipe
from bocl.training.surroundings import usual_surroundings

RUN = (
    "stream.tasks=2",
    "network.arguments={inputs=64, hidden=[6, 5]}",
    "recipe.epochs=1",
    "search.trials=2",
    "search.patience=2",
    "search.warm_points=2",
    "search.bounds=3",
)


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    """Return the name of each method in turn."""
    return request.param


@cache
def tasks() -> ArrayStream:
    """Return two small tasks."""
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    pairs = [((rng.normal(0, 1, (2, 6))[labels] + rng.normal(0, 1, (40, 6))).astype(np.float32), labels) for _ in "ab"]
    return from_arrays(pairs, validation=0.4, test_fraction=0.1)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Dropout(0.2), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2))


def make(name: str, search: str = "random", precision: Any = "float32", graph: Graph | None = None) -> Any:
    """Return a method with settings small enough for a test."""
    kind = METHODS[name].load()
    own = {"fixed": FixedSettings(2), "rcl": RCLSettings(trials=2)}
    options: dict[str, Any] = {"settings": own[name]} if name in own else {}
    if "search" in inspect.signature(kind).parameters:
        settings = {"trials": 3, "patience": 3, "warm_points": 1, "bounds": 2, "round_size": 2}
        options["search"] = SearchSettings(search, **settings)  # type: ignore[arg-type]
    recipe = Recipe("adam", learning_rate=0.02, batch_size=16, epochs=2, precision=precision)
    return kind(graph or network(), recipe=recipe, device="cpu", **options)


def everything(learner: Learner) -> State:
    """Return what a learner is, its predictions included."""
    state = learner.state()
    logits = {f"logits {task}": learner.predict(tasks()[task].train.raw, task) for task in range(len(learner.seen))}
    return State(state.facts, {name: tensor.clone() for name, tensor in {**state.tensors, **logits}.items()})


@cache
def learnt_alone(name: str, search: str = "random", precision: str = "float32") -> State:
    """Return what a learner is after two tasks, learnt under no settings but PyTorch's own."""
    learner = make(name, search, precision)
    for task in tasks():
        learner.learn(task)
    return everything(learner)


def assert_same(one: State, other: State) -> None:
    assert repr(one.facts) == repr(other.facts)
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert tensor.dtype == other.tensors[name].dtype
        assert torch.equal(tensor, other.tensors[name]), name


# Settings of the process and of the thread.


def switched(get: Callable[[], Any], put: Callable[[Any], None], value: Any) -> Callable[[], Any]:
    @contextmanager
    def on() -> Iterator[None]:
        before = get()
        put(value)
        try:
            yield
            assert get() == value, "the caller finds another value than it set"
        finally:
            put(before)

    return on


@contextmanager
def all_others() -> Iterator[None]:
    """What else a caller may set: a default device, checks of gradients and numbers, coarse products."""
    coarse = switched(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium")
    checks = torch.autograd.set_detect_anomaly(True, check_nan=False)
    with torch.device("meta"), coarse(), checks, np.errstate(all="raise"):
        yield
        assert torch.empty(0).device.type == "meta"
        assert torch.is_anomaly_enabled()
        assert not torch.is_anomaly_check_nan_enabled()
        assert set(np.geterr().values()) == {"raise"}


SURROUNDINGS: dict[str, Callable[[], Any]] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "float64": switched(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "set_grad_enabled": lambda: torch.set_grad_enabled(False),
    "deterministic": switched(
        torch.are_deterministic_algorithms_enabled, lambda on: torch.use_deterministic_algorithms(on), True
    ),
    "all others": all_others,
}


@pytest.mark.parametrize("surroundings", SURROUNDINGS)
def test_what_a_caller_works_under_changes_nothing(method, surroundings, tmp_path):
    alone = learnt_alone(method)
    with SURROUNDINGS[surroundings]():
        learner = make(method)
        learner.learn(tasks()[0])
        learner.save(tmp_path)
        learner = load(tmp_path, device="cpu")
        learner.recall([tasks()[0]])
        learner.learn(tasks()[1])
        within = {f"logits {task}": learner.predict(tasks()[task].train.raw, task) for task in range(2)}
    assert_same(everything(learner), alone)
    assert all(torch.equal(logits, alone.tensors[name]) for name, logits in within.items())


@pytest.mark.parametrize("search", get_args(SearchKind))
def test_a_search_is_the_same_wherever_it_is_called(search):
    alone = learnt_alone("bocl", search)
    learner = make("bocl", search)
    float64 = SURROUNDINGS["float64"]
    with float64(), torch.inference_mode(), torch.autocast("cpu", torch.bfloat16), torch.device("meta"):
        for task in tasks():
            learner.learn(task)
    assert_same(everything(learner), alone)


def test_a_recipe_in_bf16_is_the_same_within_an_autocast(method):
    learner = make(method, precision="bf16")
    with torch.autocast("cpu", torch.bfloat16):
        for task in tasks():
            learner.learn(task)
    assert_same(everything(learner), learnt_alone(method, precision="bf16"))


def test_tasks_made_in_inference_mode_can_be_learnt(method):
    rng = np.random.default_rng(0)
    with torch.inference_mode():
        made = from_arrays([(rng.normal(0, 1, (40, 6)).astype(np.float32), np.arange(40) % 2)], test_fraction=0.1)[0]
    assert made.train.raw.is_inference()
    learner = make(method)
    for _ in range(2):
        learner.learn(made)


@pytest.mark.parametrize("surroundings", ["no_grad", "inference_mode", "autocast", "float64"])
def test_a_run_and_its_audit_are_the_same_wherever_they_are_called(surroundings, tmp_path):
    config = load_config("digits", RUN)
    run(config, tmp_path / "alone", device="cpu")
    with SURROUNDINGS[surroundings]():
        run(config, tmp_path / "within", device="cpu")
        within = audit(tmp_path / "within", device="cpu")
    alone = audit(tmp_path / "within", device="cpu")
    assert weights_of(tmp_path / "within") == weights_of(tmp_path / "alone")
    assert within == alone


def weights_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.safetensors"))}


def test_precisions_that_pytorch_does_not_let_be_read_are_refused_by_name(monkeypatch):
    def mixed() -> str:
        raise RuntimeError("you have used a mix of the legacy and new APIs\nto set the precision")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", mixed)
    with pytest.raises(ConfigError, match=r"an fp32_precision of torch\.backends is set") as caught:
        make("sn").learn(tasks()[0])
    assert "\n" not in str(caught.value)


def test_surroundings_come_back_after_an_error():
    with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
        with suppress(ValueError), usual_surroundings():
            assert torch.is_grad_enabled()
            raise ValueError("inside")
        assert torch.is_autocast_enabled("cpu")
        assert not torch.is_grad_enabled()


# Random numbers.


def random_numbers() -> tuple[Any, ...]:
    """Return the state of every generator that belongs to the process."""
    kind, keys, *rest = np.random.get_state()  # noqa: NPY002 - the one that callers use
    gpus = [bytes(state) for state in torch.cuda.get_rng_state_all()] if torch.cuda.is_available() else []
    return random.getstate(), kind, keys.tobytes(), rest, bytes(torch.get_rng_state()), gpus


def seed_all(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


@contextmanager
def unmoved(seed: int) -> Iterator[None]:
    """Fail if the random numbers of the process are others at the end."""
    seed_all(seed)
    before = random_numbers()
    yield
    assert random_numbers() == before


def test_a_callers_random_numbers_are_neither_used_nor_moved(method, tmp_path):
    alone = learnt_alone(method)
    graph = trace(network())
    with unmoved(5):
        learner = make(method, graph=graph)
        for task in tasks():
            learner.learn(task)
        learner.save(tmp_path)
        state = everything(load(tmp_path, device="cpu"))
    assert_same(state, alone)


@pytest.mark.parametrize("search", get_args(SearchKind))
def test_a_search_neither_uses_nor_moves_them(search):
    alone = learnt_alone("bocl", search)
    learner = make("bocl", search)
    with unmoved(5):
        for task in tasks():
            learner.learn(task)
    assert_same(everything(learner), alone)


def test_a_run_and_its_audit_neither_use_nor_move_them(tmp_path):
    config = load_config("digits", RUN)
    for seed in (1, 2):
        with unmoved(seed):
            run(config, tmp_path / str(seed), device="cpu")
            audit(tmp_path / str(seed), device="cpu")
    assert weights_of(tmp_path / "1") == weights_of(tmp_path / "2")


def test_networks_are_made_without_moving_them():
    with unmoved(1):
        for made in (bocl.mlp(64, [6, 5]), bocl.lenet(), bocl.resnet()):
            trace(made)


def test_a_callback_may_draw(method):
    learner = make(method)
    for task in tasks():
        learner.learn(task, lambda _event: seed_all(torch.randint(100, ()).item()))
    assert_same(everything(learner), learnt_alone(method))


# Errors that belong to the caller.


RAISED = [
    ValueError("mine"),
    MemoryError("mine"),
    RuntimeError("out of memory"),
    StopIteration("mine"),
    KeyboardInterrupt("mine"),
]


@pytest.mark.parametrize("error", RAISED, ids=lambda error: type(error).__name__)
def test_what_a_callback_raises_is_the_callers(method, error):
    learner = make(method)
    learner.learn(tasks()[0])
    before = everything(learner)
    with pytest.raises(type(error)) as caught:
        learner.learn(tasks()[1], raiser(error, EpochDone))
    assert caught.value is error
    assert error.__context__ is None
    assert caught.traceback[-1].name == "listen"
    assert_same(everything(learner), before)
    learner.learn(tasks()[1])
    assert_same(everything(learner), learnt_alone(method))


def raiser(error: BaseException, kind: type) -> Callable[[Event], None]:
    error.__context__ = error.__traceback__ = None

    def listen(event: Event) -> None:
        if isinstance(event, kind):
            raise error

    return listen


@pytest.mark.parametrize("error", [ValueError("mine"), MemoryError("mine")], ids=["ValueError", "MemoryError"])
@pytest.mark.parametrize("kind", [EpochDone, TrialDone])
def test_a_run_whose_callback_raises_is_resumed_to_the_same_bits(error, kind, tmp_path):
    config = load_config("digits", RUN)
    run(config, tmp_path / "whole", device="cpu")
    events = 0

    def listen(event: Event) -> None:
        nonlocal events
        events += isinstance(event, kind)
        if events == 2:
            events += 1
            raise error

    with pytest.raises(type(error)) as caught:
        run(config, tmp_path / "resumed", device="cpu", callback=listen)
    assert caught.value is error
    records = run(config, tmp_path / "resumed", device="cpu", callback=listen)
    assert not any(trial.failed for record in records for trial in record.trials)
    assert weights_of(tmp_path / "resumed") == weights_of(tmp_path / "whole")


# Ctrl-C.


@pytest.mark.parametrize("place", ["accuracy", "the end"])
def test_a_learner_is_as_it_was_after_an_interrupt(method, place, monkeypatch):
    learner = make(method)
    learner.learn(tasks()[0])
    before = everything(learner)

    def interrupt(*_arguments: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        if place == "accuracy":
            patched.setattr(evaluation, "scores", interrupt)
        else:
            patched.setattr(SeenTask, "of", interrupt)
        with pytest.raises(KeyboardInterrupt):
            learner.learn(tasks()[1])
    assert_same(everything(learner), before)
    learner.learn(tasks()[1])
    assert_same(everything(learner), learnt_alone(method))
