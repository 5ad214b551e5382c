"""What every method promises, on an MLP and a small convolutional network."""

from __future__ import annotations

import copy
import inspect
import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from bocl.errors import ConfigError, DataError, InputError, NetworkError, WorkError
from bocl.method_table import METHODS
from bocl.methods.exporting.safetensors_file import load_module
from bocl.methods.fixed import FixedSettings
from bocl.methods.method import EXTRA, Learner, State
from bocl.methods.rcl import RCLSettings
from bocl.methods.saving import load, save
from bocl.methods.seen import SeenTask
from bocl.networks.architectures import mlp
from bocl.networks.check import BITS
from bocl.networks.growth import GrowthSettings, is_parameter
from bocl.search.settings import SearchSettings
from bocl.tasks.arrays import ArrayStream, from_arrays
from bocl.tasks.task import Split, Task
from bocl.training.recipe import Recipe

CLASSES = (3, 2, 4)
SHAPE = (1, 5, 5)
RECIPE = Recipe("adam", learning_rate=0.02, batch_size=16, epochs=8)
NETWORKS = {
    "mlp": lambda: mlp(25, [8], 3),
    "cnn": lambda: nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(36, 6), nn.ReLU(), nn.Linear(6, 3)
    ),
}

#: Methods for which four units are too few for three tasks, because later ones find few that are of use, or free.
SHORT_OF_UNITS = {
    "frozen",
    "hat",
    "fearnet",
}


@pytest.fixture(params=METHODS)
def method(request: pytest.FixtureRequest) -> str:
    """Return the name of each method in turn."""
    return request.param


@pytest.fixture(params=NETWORKS)
def kind(request: pytest.FixtureRequest) -> str:
    """Return the name of each network in turn."""
    return request.param


@pytest.fixture
def network(kind: str) -> nn.Module:
    """Return each network in turn."""
    return NETWORKS[kind]()


def make(name: str, network: nn.Module, seed: int = 0, recipe: Recipe = RECIPE) -> Any:
    """Return a method with settings small enough for a test."""
    kind = METHODS[name].load()
    own = {"fixed": FixedSettings(2), "rcl": RCLSettings(trials=2)}
    options = {"settings": own[name]} if name in own else {}
    if "search" in inspect.signature(kind).parameters:
        options["search"] = SearchSettings("random", trials=2, warm_points=1, bounds=2, round_size=2)
    return kind(network, recipe=recipe, seed=seed, device="cpu", **options)


def samples(task: int, classes: int, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    centres = np.random.default_rng(task).normal(0, 2, (classes, *SHAPE))
    labels = np.arange(size) % classes
    noise = np.random.default_rng([task, seed]).normal(0, 1, (size, *SHAPE))
    return (centres[labels] + noise).astype(np.float32), labels


def stream(test_seed: int = 1) -> ArrayStream:
    """Return three easy tasks with 3, 2 and 4 classes."""
    train = [samples(task, classes, 60, 0) for task, classes in enumerate(CLASSES)]
    test = [samples(task, classes, 40, test_seed) for task, classes in enumerate(CLASSES)]
    return from_arrays(train, test=test, validation=0.25)


class Sealed:
    """A stream that does not give its test samples away."""

    def __init__(self, open_stream: ArrayStream) -> None:
        self.stream = open_stream

    def __len__(self) -> int:
        return len(self.stream)

    def __getitem__(self, index: int) -> Task:
        return self.stream[index]

    def test_split(self, index: int) -> Split:
        """Refuse."""
        raise AssertionError(f"the test samples of task {index} were asked for")


def learn_all(learner: Learner, tasks: int = 3) -> list[Any]:
    sealed = Sealed(stream())
    return [learner.learn(sealed[index]) for index in range(tasks)]


@cache
def training_of(method: str, kind: str) -> tuple[list[Any], list[Any]]:
    """Train a method on three tasks; return the learner before the first and after each, and what it learnt."""
    torch.manual_seed(1)  # which must not matter
    learner, sealed = make(method, NETWORKS[kind]()), Sealed(stream())
    learners, learned = [copy.deepcopy(learner)], []
    for index in range(3):
        learned.append(learner.learn(sealed[index]))
        learners.append(copy.deepcopy(learner))
    return learners, learned


def learnt(method: str, kind: str, tasks: int = 3) -> tuple[Any, list[Any]]:
    """Return a learner of the first tasks, a copy of one's own, and what it learnt; each is trained only once."""
    learners, learned = training_of(method, kind)
    return copy.deepcopy(learners[tasks]), learned[:tasks]


def assert_same_state(one: State, other: State) -> None:
    assert repr(one.facts) == repr(other.facts)
    assert one.tensors.keys() == other.tensors.keys()
    for name, tensor in one.tensors.items():
        assert torch.equal(tensor, other.tensors[name]), name


def test_every_task_is_a_module_that_gives_the_bits_of_predict(method, kind):
    learner, _ = learnt(method, kind)
    for task in range(3):
        module = learner.module(task)
        assert module.labels == learner.classes(task)
        assert not module.training
        for count in (1, 7, 40):
            x = stream().test_split(task).raw[:count]
            with torch.no_grad():
                assert torch.equal(module(x), learner.predict(x, task))
            torch.testing.assert_close(module(x), learner.predict(x, task))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.zero_()
        assert learner.predict(x, task).abs().max() > 0, "the module's tensors are its own"


def test_every_task_is_a_file_that_gives_the_bits_of_predict(method, kind, tmp_path):
    learner, _ = learnt(method, kind)
    for task in range(3):
        path = learner.export(task, tmp_path / f"{task}.safetensors", "safetensors").path
        x = stream().test_split(task).raw
        with torch.no_grad():
            assert torch.equal(load_module(path, device="cpu")(x), learner.predict(x, task))


def test_it_learns_an_easy_task_from_training_samples_alone(method, kind):
    learner, learned = learnt(method, kind)
    test = stream().test_split(2)
    right = learner.predict(test.raw, task=2).argmax(1) == test.labels
    least = 0.35 if method in SHORT_OF_UNITS else 0.7  # chance is 0.25
    assert right.double().mean() > least
    assert learned[2].validation_accuracy > least
    assert all(0 <= entry.validation_accuracy <= 1 for entry in learned)


def test_it_trains_with_averaged_weights_and_changed_images(method):
    plain, learned = learnt(method, "cnn", tasks=2)
    changes = {"average": "last", "average_share": 0.5, "augment": "flip"}
    learner = make(method, NETWORKS["cnn"](), recipe=replace(RECIPE, **changes))
    averaged, first = [learner.learn(stream()[0])], stream().test_split(0).raw
    before = learner.predict(first, task=0)
    averaged.append(learner.learn(stream()[1]))
    for entry, other in zip(averaged, learned, strict=True):
        assert entry.validation_accuracy > 0.3
        assert entry.widths == other.widths or method not in ("fixed", "frozen", "independent", "pgn", "sn")
    assert learner.forgets or torch.equal(learner.predict(first, task=0), before)
    assert not torch.equal(plain.predict(first, task=0), before), "the settings do not reach the training"


@pytest.mark.parametrize("kind", ["cnn", "norm of one value"])
def test_it_trains_in_bf16(method, kind):
    one_value = nn.Sequential(nn.Flatten(), nn.Linear(25, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    network = NETWORKS["cnn"]() if kind == "cnn" else one_value
    learner = make(method, network, recipe=replace(RECIPE, epochs=2, precision="bf16"))
    for task in range(2):
        learner.learn(stream()[task])
    assert all(tensor.dtype != torch.bfloat16 for tensor in learner.state().tensors.values())
    assert learner.predict(stream().test_split(0).raw, task=0).dtype == torch.float32


def test_validation_samples_are_trained_on_only_where_the_recipe_says_so(method):
    def trained(recipe: Recipe, shift: float) -> dict[str, torch.Tensor]:
        task = stream()[0]
        moved = replace(task, validation=replace(task.validation, raw=task.validation.raw + shift))
        learner = make(method, NETWORKS["mlp"](), recipe=recipe)
        learner.learn(moved)
        return learner.state().tensors

    short = replace(RECIPE, epochs=1)
    for recipe, same in ((short, True), (replace(short, use_validation=True), False)):
        one, other = trained(recipe, 0.0), trained(recipe, 0.1)
        weights = [name for name in one if name.endswith("head/weight") or "head" in name]
        assert weights
        assert all(torch.equal(one[name], other[name]) for name in weights) == same


def test_its_validation_accuracy_is_that_of_its_predictions(method, kind):
    learner, (learned,) = learnt(method, kind, 1)
    validation = stream()[0].validation
    right = learner.predict(validation.raw, task=0).argmax(1) == validation.labels
    assert learned.validation_accuracy == pytest.approx(right.double().mean().item())


def test_it_predicts_one_logit_per_class_of_the_task(method, kind):
    learner, _ = learnt(method, kind)
    x, _ = samples(0, 3, 7, 5)
    for task, classes in enumerate(CLASSES):
        logits = learner.predict(x, task=task)
        assert logits.shape == (7, classes)
        assert logits.isfinite().all()
        assert not logits.requires_grad
        assert learner.predict(x[:0], task=task).shape == (0, classes)


def test_it_says_what_it_learnt(method, kind):
    learner, learned = learnt(method, kind)
    assert [entry.name for entry in learned] == [f"task {number}" for number in (1, 2, 3)]
    assert learned[0].widths == learner.graph.widths
    assert all(entry.effort.samples > 0 and len(entry.widths) == len(learner.graph.groups) for entry in learned)
    assert [entry.classes for entry in learner.seen] == list(CLASSES)


def test_a_saved_model_predicts_the_same_bits(method, kind, tmp_path):
    learner, _ = learnt(method, kind)
    save(learner, tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    assert type(loaded) is type(learner)
    assert loaded.recipe == learner.recipe
    assert loaded.graph == learner.graph
    assert_same_state(learner.state(), loaded.state())
    for task in range(3):
        for size in (1, 7, 40):
            x, _ = samples(task, 3, size, 5)
            assert torch.equal(learner.predict(x, task=task), loaded.predict(x, task=task))


def test_a_loaded_model_goes_on_learning_as_if_it_had_never_been_saved(method, kind, tmp_path):
    learner, _ = learnt(method, kind, 2)
    save(learner, tmp_path / "model")
    loaded = load(tmp_path / "model", device="cpu")
    if method == "joint":
        with pytest.raises(InputError, match="recall"):
            loaded.learn(stream()[2])
    loaded.recall([stream()[0], stream()[1]])
    third, again = learner.learn(stream()[2]), loaded.learn(stream()[2])
    assert repr(third) == repr(again)
    assert_same_state(learner.state(), loaded.state())


def test_saving_and_predicting_change_nothing(method, kind, tmp_path):
    learner, _ = learnt(method, kind, 2)
    save(learner, tmp_path / "model")
    learner.predict(samples(0, 3, 9, 5)[0], task=0)
    learner.learn(stream()[2])
    assert_same_state(learner.state(), learnt(method, kind)[0].state())


def test_parameters_are_counted_as_stored(method, kind, network):
    learner, learned = learnt(method, kind)
    stored = learner.parameters()
    assert stored == {part: sum(entry.parameters[part] for entry in learned) for part in stored}
    assert sum(stored.values()) == sum(entry.added_parameters for entry in learned)
    kept, bits = 0, [0, 0, 0]  # of every task, in bytes
    for name, tensor in learner.state().tensors.items():
        task, _, without_task = name.partition("/")
        if not name.startswith(EXTRA) and is_parameter(without_task if name[0].isdigit() else name):
            if without_task.startswith(BITS):
                bits[int(task)] += tensor.numel()
            else:
                kept += tensor.numel()
    assert sum(stored.values()) == kept + sum(-(-size // 4) for size in bits)
    base = sum(tensor.numel() for tensor in network.parameters())
    if method == "fearnet":  # the memories are much larger than the head that they replace
        assert learned[0].added_parameters > base
        return
    without_gates = learned[0].added_parameters - learned[0].parameters["attention"]
    if any(bits):  # of the weights, only what the task uses is kept
        assert without_gates < base + -(-bits[0] // 4)
    else:
        assert without_gates == base


def test_a_seed_decides_everything(method, kind, network):
    one, first = learnt(method, kind)
    torch.manual_seed(2)
    other = make(method, network)
    assert repr(learn_all(other)) == repr(first)
    assert_same_state(one.state(), other.state())
    different = make(method, network, seed=1)
    learn_all(different, 1)
    assert any(
        not torch.equal(tensor, one.state().tensors[name])
        for name, tensor in different.state().tensors.items()
        if name in one.state().tensors and tensor.shape == one.state().tensors[name].shape
    )


def test_global_random_states_and_threads_are_left_alone(method, network):
    tasks = stream()
    torch.manual_seed(3)
    np.random.seed(3)  # noqa: NPY002 - the global state is what is looked at
    before, numpy_before = torch.random.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    learner = make(method, network)
    for index in range(2):
        learner.learn(tasks[index])
    learner.predict(tasks[0].train.raw, task=0)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002
    assert torch.get_num_threads() == 1


def test_test_samples_have_no_influence(method, kind, network):
    other = make(method, network)
    for index in range(2):
        other.learn(stream(test_seed=2)[index])
    assert_same_state(learnt(method, kind, 2)[0].state(), other.state())


def test_an_unknown_task_is_refused(method, kind):
    x, _ = samples(0, 3, 4, 5)
    with pytest.raises(InputError, match="task 0"):
        learnt(method, kind, 0)[0].predict(x, task=0)
    learner, _ = learnt(method, kind, 2)
    for task in (-1, 2, 10):
        with pytest.raises(InputError, match=f"task {task}"):
            learner.predict(x, task=task)


def test_inputs_of_another_shape_are_refused(method, kind):
    learner, _ = learnt(method, kind, 1)
    for shape in ((4, 25), (4, 1, 5, 6), (25,), (1, 5, 5), (4, 2, 5, 5)):
        with pytest.raises(InputError, match="shape"):
            learner.predict(torch.zeros(shape), task=0)


def test_a_task_of_another_shape_is_refused_and_nothing_changes(method, kind):
    learner, _ = learnt(method, kind, 1)
    wider = from_arrays([(np.zeros((30, 1, 5, 6), dtype=np.float32), np.arange(30) % 3)])
    with pytest.raises(InputError, match="shape"):
        learner.learn(wider[0])
    learner.learn(stream()[1])
    assert_same_state(learner.state(), learnt(method, kind, 2)[0].state())


@pytest.mark.parametrize(
    "misfit",
    [
        mlp(24, [8], 3),
        nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)),
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36, 3)),
    ],
    ids=["columns", "no flatten", "channels"],
)
def test_a_network_that_cannot_take_the_samples_is_refused(method, misfit):
    learner = make(method, misfit)
    with pytest.raises(NetworkError, match="shape"):
        learner.learn(stream()[0])
    assert not learner.seen


def test_a_module_that_cannot_grow_is_refused_when_the_method_is_made(method):
    with pytest.raises(NetworkError, match="LSTM"):
        make(method, nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4), nn.Linear(4, 3)))


DIVERGING = Recipe("adam", learning_rate=1e30, batch_size=16, epochs=2)


@pytest.mark.parametrize("tasks", [0, 1], ids=["first task", "second task"])
def test_a_training_that_diverges_is_an_error_and_leaves_the_learner_as_it_was(method, kind, tasks):
    learner, _ = learnt(method, kind, tasks)
    other, learned = learnt(method, kind, tasks + 1)
    learner.recipe = DIVERGING
    with pytest.raises(WorkError, match=f"task 'task {tasks + 1}': the loss was not finite.*recipe.learning_rate"):
        learner.learn(stream()[tasks])
    assert len(learner.seen) == tasks
    learner.recipe = RECIPE
    assert repr(learner.learn(stream()[tasks])) == repr(learned[tasks])
    assert_same_state(learner.state(), other.state())


def ask_the_cpu_for_too_much() -> None:
    torch.empty(1 << 50)


def ask_a_gpu_for_too_much() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory\nmany more lines")


@pytest.mark.parametrize("ask", [ask_the_cpu_for_too_much, ask_a_gpu_for_too_much])
def test_running_out_of_memory_is_told_with_a_way_out(method, monkeypatch, ask):
    def greedy(*arguments, **options):
        ask()

    learner, _ = learnt(method, "mlp", 1)
    before = learner.state()
    for module in ("parts", "plain"):
        monkeypatch.setattr(f"bocl.methods.{module}.train", greedy)
    with pytest.raises(WorkError, match=r"not enough memory.*batch_size") as caught:
        learner.learn(stream()[1])
    assert "\n" not in str(caught.value)
    assert_same_state(learner.state(), before)


def test_other_errors_of_torch_are_not_taken_for_memory(method, monkeypatch):
    def broken(*arguments, **options):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    learner = make(method, NETWORKS["mlp"]())
    for module in ("parts", "plain"):
        monkeypatch.setattr(f"bocl.methods.{module}.train", broken)
    with pytest.raises(RuntimeError, match="mat1") as caught:
        learner.learn(stream()[0])
    assert "memory" not in str(caught.value)


def test_only_a_task_can_be_learnt(method):
    learner = make(method, NETWORKS["mlp"]())
    for wrong, name in ((samples(0, 3, 60, 0), "tuple"), (stream(), "ArrayStream"), (None, "None"), (5, "int")):
        with pytest.raises(InputError, match=rf"learn\(\) takes a Task, such as stream\[0\].*; got {name}$"):
            learner.learn(wrong)


@pytest.mark.parametrize("task", [True, 0.0, None, [0]])
def test_a_task_is_named_by_its_number(method, task):
    learner, _ = learnt(method, "mlp", 1)
    with pytest.raises(InputError, match="give its number"):
        learner.predict(samples(0, 3, 4, 5)[0], task=task)


def test_a_task_is_named_by_its_name(method):
    learner, _ = learnt(method, "mlp", 2)
    x, _ = samples(0, 3, 4, 5)
    assert torch.equal(learner.predict(x, task=learner.seen[1].name), learner.predict(x, task=1))
    with pytest.raises(InputError, match="no task '0' has been learnt"):
        learner.predict(x, task="0")


def test_a_number_of_numpy_names_a_task(method):
    learner, _ = learnt(method, "mlp", 2)
    x, _ = samples(0, 3, 4, 5)
    assert torch.equal(learner.predict(x, task=np.int64(1)), learner.predict(x, task=1))


def byte_stream() -> ArrayStream:
    """Return two tasks of bytes."""
    pairs = [samples(task, 3, 60, 0) for task in range(2)]
    return from_arrays([((x * 20 + 120).clip(0, 255).astype(np.uint8), y) for x, y in pairs], validation=0.25)


def test_a_task_of_bytes_takes_bytes_and_what_is_already_scaled(method):
    learner, tasks = make(method, NETWORKS["mlp"]()), byte_stream()
    learner.learn(tasks[0])
    split = tasks[0].validation
    logits = learner.predict(split.raw, task=0)
    for same in (split.raw.numpy(), split.inputs(), split.inputs().numpy(), split.raw.tolist()):
        if isinstance(same, list):
            same = np.array(same, dtype=np.uint8)
        assert torch.equal(learner.predict(same, task=0), logits)
    for dtype in (torch.int64, torch.int32, torch.bool, torch.float64, torch.int8):
        for given in (split.raw.to(dtype), split.raw.to(dtype).numpy()):
            with pytest.raises(DataError, match="learnt from bytes; give uint8, or float32 scaled"):
                learner.predict(given, task=0)
    with pytest.raises(DataError, match="float32 samples, but the tasks before have uint8"):
        learner.learn(stream()[1])
    assert len(learner.seen) == 1


def test_whether_a_task_was_bytes_is_saved(method, tmp_path):
    learner = make(method, NETWORKS["mlp"]())
    learner.learn(byte_stream()[0])
    save(learner, tmp_path / "model")
    assert load(tmp_path / "model", device="cpu").seen == learner.seen
    assert learner.seen[0].in_bytes


def test_a_task_of_floats_takes_numbers_but_no_bytes(method):
    learner, _ = learnt(method, "mlp", 1)
    whole = np.arange(100).reshape(4, *SHAPE) % 7
    logits = learner.predict(whole.astype(np.float32), task=0)
    for dtype in (np.int64, np.int8, np.float64, np.float16, np.longdouble, ">f4", ">i8"):
        assert torch.equal(learner.predict(whole.astype(dtype), task=0), logits)
    assert torch.equal(learner.predict(torch.as_tensor(whole).bfloat16(), task=0), logits)
    assert torch.equal(learner.predict(whole.tolist(), task=0), logits)
    with pytest.raises(DataError, match="learnt from floats; give float32"):
        learner.predict(whole.astype(np.uint8), task=0)
    with pytest.raises(DataError, match="uint8 samples, but the tasks before have float32"):
        learner.learn(byte_stream()[1])


def test_views_and_arrays_that_cannot_be_written_are_taken(method):
    learner, _ = learnt(method, "mlp", 1)
    x, _ = samples(0, 3, 4, 5)
    logits = learner.predict(x, task=0)
    frozen = x.copy()
    frozen.flags.writeable = False
    assert torch.equal(learner.predict(frozen, task=0), logits)
    assert torch.equal(learner.predict(x[::-1][::-1], task=0), logits)
    assert torch.equal(learner.predict(x[::-1], task=0), learner.predict(x[::-1].copy(), task=0))


BAD = np.zeros((4, *SHAPE), dtype=np.float32)
BAD_INPUTS = {
    "nothing": None,
    "text": "abc",
    "a number": 5,
    "ragged": [[1, 2], [3]],
    "objects": BAD.astype(object),
    "words": BAD.astype(str),
    "complex": BAD.astype(complex),
    "complex tensor": torch.zeros(4, *SHAPE, dtype=torch.complex64),
    "meta": torch.zeros(4, *SHAPE, device="meta"),
    "sparse": torch.zeros(4, *SHAPE).to_sparse(),
    "float8": torch.zeros(4, *SHAPE).to(torch.float8_e4m3fn),
    "masked": np.ma.masked_equal(BAD, 0),
    "not a number": BAD * np.nan,
    "infinite": np.where(np.arange(4).reshape(4, 1, 1, 1) == 2, np.inf, BAD),
    "beyond float32": BAD.astype(np.float64) + 1e300,
    "a set": {1, 2},
}


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("case", BAD_INPUTS)
def test_inputs_that_are_no_samples_are_refused(case):
    for name in METHODS:
        learner = make(name, NETWORKS["mlp"]())
        learner.seen = [SeenTask.of(stream()[0])]
        with pytest.raises(DataError) as caught:
            learner.predict(BAD_INPUTS[case], task=0)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("recipe", None), ("recipe", {"epochs": 3}), ("search", {"trials": 3}), ("growth", "full"), ("reward", 0.1),
        ("searcher", "random"), ("seed", "x"), ("seed", -1), ("seed", 1.5), ("seed", True), ("seed", None),
    ],
)  # fmt: skip
def test_a_setting_of_another_kind_is_refused(method, name, value):
    if name not in inspect.signature(METHODS[method].load()).parameters:
        return
    with pytest.raises(ConfigError, match=rf"{name} is {re.escape(repr(value))}; it must be"):
        METHODS[method].load()(NETWORKS["mlp"](), **{"device": "cpu", name: value})


def test_seeds_of_numpy_and_devices_of_torch_are_taken(method):
    learner = METHODS[method].load()(NETWORKS["mlp"](), seed=np.int64(3), device=torch.device("cpu"))
    assert type(learner.seed) is int
    assert learner.device == torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("reduction_nodes", None), ("reduction_nodes", 0), ("reduction_channels", 2.5), ("reduction_nodes", 10**9 + 1),
        ("gate_bias", "a"), ("gate_bias", 1e308), ("gate_bias", np.nan), ("attention", "no"), ("attention", 1),
        ("wiring", "ful"), ("wiring", None),
    ],
)  # fmt: skip
def test_a_growth_that_cannot_be_is_refused(name, value):
    with pytest.raises(ConfigError, match=rf"growth\.{name} is {re.escape(repr(value))}; it must be"):
        GrowthSettings(**{name: value})
