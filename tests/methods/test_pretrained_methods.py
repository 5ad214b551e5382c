"""Learners that start from a trained module, in both forms: learning, saving, loading, and what they refuse."""

from __future__ import annotations

import hashlib
import re
import sys
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

import bocl
from bocl.errors import ConfigError, DataError, InputError, NetworkError
from bocl.methods.saving import load, read_state
from bocl.search.settings import SearchSettings
from bocl.training.recipe import Recipe

sys.path.append(str(Path(__file__).parents[1] / "networks"))
from low_rank_examples import Mobile, Transformer, Vision, trained

RECIPE = Recipe("adam", learning_rate=0.01, batch_size=16, epochs=4)
SEARCH = SearchSettings(trials=2, patience=2, warm_points=2, round_size=2)
LOW_RANK = bocl.GrowthSettings(form="low-rank")
FORMS = {
    "low-rank": LOW_RANK,
    "low-rank, own norms": replace(LOW_RANK, norms="task"),
    "units": bocl.GrowthSettings(),
    "units, aside": bocl.GrowthSettings(wiring="forward", attention=False, norms="frozen"),
}
METHODS = {"bocl": {"search": SEARCH}, "fixed": {"settings": bocl.FixedSettings(widths=2)}, "frozen": {}}
WHOLE = {"recipe": RECIPE, "device": "cpu", "pretrained": True}


def module_for(form: str) -> nn.Module:
    return trained(Mobile())


def make(method: str, form: str, module: nn.Module | None = None, **options):
    kind = {"bocl": bocl.BOCL, "fixed": bocl.Fixed, "frozen": bocl.Frozen}[method]
    given = {"growth": FORMS[form], "recipe": RECIPE, "device": "cpu", "pretrained": True, **METHODS[method], **options}
    return kind(module or module_for(form), **given)


def stream(tasks: int = 3, shape: tuple[int, ...] = (2, 8, 8), samples: int = 60):
    pairs = []
    for task in range(tasks):
        rng = np.random.default_rng(task)
        y = np.arange(samples) % 3
        x = rng.normal(size=(3, *shape))[y] + rng.normal(size=(samples, *shape))
        pairs.append((x.astype(np.float32), y))
    return bocl.from_arrays(pairs, validation=0.3)


def hashes(tensors) -> dict[str, str]:
    return {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_forgotten_through_learning_saving_and_learning_on(method, form, tmp_path):
    module = module_for(form)
    own = hashes(module.state_dict())
    learner, remembered = make(method, form, module), {}
    inputs = [torch.randn(count, 2, 8, 8, generator=torch.Generator().manual_seed(count)) for count in (1, 7, 64)]
    base = learner.base_sha256()
    for number, task in enumerate(stream()):
        learner.learn(task)
        for seen in range(number + 1):
            for place, x in enumerate(inputs):
                logits = learner.predict(x, seen)
                assert torch.equal(remembered.setdefault((seen, place), logits), logits)
        learner.save(tmp_path / "model")
        given = {"network": trained(Mobile(), seed=9)} if form.startswith("low-rank") else {}
        learner = load(tmp_path / "model", device="cpu", **given)
    assert all(
        torch.equal(learner.predict(inputs[place], task), logits) for (task, place), logits in remembered.items()
    )
    assert learner.base_sha256() == base
    assert hashes(module.state_dict()) == own
    assert learner.parameters()["base"] == sum(
        parameter.numel() for name, parameter in module.named_parameters() if not name.startswith("fc.")
    )


@pytest.mark.parametrize("form", FORMS)
def test_a_loaded_learner_learns_what_the_one_that_was_saved_learns(form, tmp_path):
    tasks = stream()
    one = make("bocl", form)
    for index in range(2):
        one.learn(tasks[index])
    one.save(tmp_path / "model")
    given = {"network": trained(Mobile(), seed=9)} if form.startswith("low-rank") else {}
    other = load(tmp_path / "model", device="cpu", **given)
    first, second = one.learn(tasks[2]), other.learn(tasks[2])
    assert (first.widths, first.reads) == (second.widths, second.reads)
    assert repr(first.trials) == repr(second.trials), "NaN is not NaN"
    assert hashes(one.state().tensors) == hashes(other.state().tensors)


class Placed(Mobile):
    """It adds a table of places, which is in no file of its tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("places", torch.rand(1, 2, 8, 8), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, 2, 8, 8) to (n, 7)."""
        return super().forward(self.places.expand(len(x), -1, -1, -1) + x)


@pytest.mark.parametrize(
    ("kind", "form"), [*((Mobile, form) for form in (*FORMS, "whole")), (Placed, "low-rank"), (Placed, "whole")]
)
def test_what_is_learnt_does_not_depend_on_how_the_module_lies_in_memory(kind, form):
    """A file keeps no strides, so a loaded learner would learn something else."""
    module, task = trained(kind()), stream(1)[0]
    turned = deepcopy(module).to(memory_format=torch.channels_last)
    assert turned.stem.weight.stride() != module.stem.weight.stride()
    learner = partial(bocl.Independent, **WHOLE) if form == "whole" else partial(make, "frozen", form)
    one, other = learner(module), learner(turned)
    one.learn(task)
    other.learn(task)
    assert hashes(one.state().tensors) == hashes(other.state().tensors)
    x = torch.randn(64, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(one.predict(x, 0), other.predict(x, 0))


def test_with_heads_alone_nothing_but_heads_is_added():
    learner = make("frozen", "low-rank")
    for task in stream(2):
        learned = learner.learn(task)
        assert learned.parameters == {"shared": 0, "heads": 21, "attention": 0, "norms": 0}


def test_every_search_has_the_head_alone_as_a_candidate_and_reads_are_chosen():
    learner = make("bocl", "low-rank", search=replace(SEARCH, trials=6, patience=6))
    kinds = set()
    for task in stream():
        learned = learner.learn(task)
        assert learned.trials[0].widths == learner.graph.no_units
        assert learned.trials[0].reads == "base"
        kinds |= {trial.reads for trial in learned.trials}
    assert kinds <= {"base", "near", "all"}


def test_a_module_of_ones_own_code_must_be_given_to_load(tmp_path):
    learner = make("frozen", "low-rank")
    learner.learn(stream(1)[0])
    learner.save(tmp_path / "model")
    file = re.escape(str(tmp_path / "model" / "model.json"))
    mine = "adapts a Mobile, whose code is yours; give such a module with network="
    with pytest.raises(InputError, match=f"^{file} holds a model that {mine}"):
        load(tmp_path / "model", device="cpu")
    with pytest.raises(InputError, match=f"^{file} holds a model that adapts another module: a Mobile with"):
        load(tmp_path / "model", device="cpu", network=Vision())
    with pytest.raises(NetworkError, match=r"^a network must be an nn\.Module, not type"):
        load(tmp_path / "model", device="cpu", network=Mobile)
    units = make("frozen", "units")
    units.learn(stream(1)[0])
    units.save(tmp_path / "units")
    file = re.escape(str(tmp_path / "units" / "model.json"))
    with pytest.raises(InputError, match=f"^{file} holds all of its network; leave out network="):
        load(tmp_path / "units", device="cpu", network=Mobile())


class Choices(nn.Module):
    """A module of which tensors do not tell everything: (n, 12) to (n, 5)."""

    def __init__(self, heads: int = 2, activation: str = "relu", scale: float = 1.0) -> None:
        super().__init__()
        self.tokens = nn.Linear(4, 8)
        self.layer = nn.TransformerEncoderLayer(8, heads, 12, batch_first=True, activation=activation)
        self.register_buffer("scale", torch.tensor(scale), persistent=False)
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, 12) to (n, 5)."""
        return self.head(self.scale * self.layer(self.tokens(x.view(len(x), 3, 4))).mean(1))


@pytest.mark.parametrize("method", ["low-rank", "whole"])
@pytest.mark.parametrize("other", [{"heads": 4}, {"activation": "gelu"}, {"scale": 1.1}], ids=str)
def test_a_module_that_computes_something_else_is_not_loaded(method, other, tmp_path):
    torch.manual_seed(0)
    own = trained(Choices())
    learner = bocl.Independent(own, **WHOLE) if method == "whole" else make("fixed", "low-rank", own)
    learner.learn(stream(1, (12,))[0])
    learner.save(tmp_path / "model")
    message = r"model\.json: this Choices computes something else than the module that was saved; make it with the same"
    with pytest.raises(InputError, match=message):
        load(tmp_path / "model", device="cpu", network=Choices(**other))
    x = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    same = load(tmp_path / "model", device="cpu", network=Choices())
    assert torch.equal(same.predict(x, 0), learner.predict(x, 0))
    assert same.state().tensors.keys() == learner.state().tensors.keys(), "what is checked is no part of a state"


def test_a_model_without_made_up_outputs_loads(tmp_path, monkeypatch):
    """As those of earlier versions, and of modules that cannot take samples that are made up."""
    learner = make("frozen", "low-rank")
    learner.save(tmp_path / "nothing learnt")
    load(tmp_path / "nothing learnt", device="cpu", network=Mobile())
    learner.learn(stream(1)[0])
    with monkeypatch.context() as patch:
        patch.setattr("bocl.methods.saving.made_up_samples", lambda *_: torch.zeros(4, 1))
        learner.save(tmp_path / "model")
    (file,) = (tmp_path / "model").glob("weights-*")
    assert safetensors.torch.load_file(file).keys() == learner.state().tensors.keys()
    load(tmp_path / "model", device="cpu", network=Mobile())


def test_a_network_of_bocls_own_needs_nothing_to_load(tmp_path):
    from bocl.networks.library import make_network

    arguments = {"vocabulary": 30, "width": 8, "layers": 2, "heads": 2, "inner": 12, "positions": 16}
    learner = make("bocl", "low-rank", trained(make_network("text-encoder", arguments)))
    tasks = text_stream()
    learner.learn(tasks[0])
    learner.save(tmp_path / "model")
    other = load(tmp_path / "model", device="cpu")
    x = tasks.test_split(0).raw
    assert torch.equal(other.predict(x, 0), learner.predict(x, 0))
    assert other.seen[0].padding == 0


def text_stream(tasks: int = 2):
    """Return tasks of token ids: which of two ids is in a text."""
    from bocl.tasks.texts import Tokens

    pairs = []
    for task in range(tasks):
        rng = np.random.default_rng(task)
        ids = rng.integers(5, 30, size=(60, 12)).astype(np.int32)
        y = np.arange(60) % 2
        ids[np.arange(60), rng.integers(0, 4, 60)] = 1 + 2 * task + y
        ids[np.arange(12) >= rng.integers(4, 13, size=(60, 1))] = 0
        pairs.append((Tokens(ids, 0), y))
    return bocl.from_arrays(pairs)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"growth": LOW_RANK}, ConfigError, "growth.form is low-rank, which adapts a trained network"),
        ({"growth": LOW_RANK, "pretrained": True, "network": "graph"}, ConfigError, "a traced graph has no weights"),
        (
            {"pretrained": True, "network": "transformer"},
            NetworkError,
            r"cannot be .*; to adapt any module as it is, set growth\.form = 'low-rank'$",
        ),
        ({"pretrained": "yes"}, ConfigError, "pretrained"),
    ],
)
def test_what_makes_no_sense_is_refused(options, error, message):
    options = dict(options)
    network = {"graph": bocl.trace(Mobile()), "transformer": Transformer()}.get(options.pop("network", ""), Mobile())
    with pytest.raises(error, match=message):
        bocl.BOCL(network, device="cpu", **options)


def test_samples_of_another_shape_are_refused_in_one_line():
    learner = make("frozen", "low-rank")
    wrong = stream(1, shape=(3, 8, 8))[0]
    with pytest.raises(NetworkError, match=r"Mobile cannot take samples of shape \(3, 8, 8\)") as caught:
        learner.learn(wrong)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("('stem' reads 2 channels, not 3; build the network for these samples)")
    with pytest.raises(NetworkError, match=r"channels, which come first; give X\.transpose\(0, 3, 1, 2\)"):
        learner.learn(stream(1, shape=(8, 8, 2))[0])
    learner.learn(stream(1)[0])
    with pytest.raises(DataError, match="has samples of shape"):
        learner.learn(wrong)


def test_budgets_and_fixed_budgets_hold():
    learner = make("bocl", "low-rank", goal=bocl.GoalSettings(budget=60))
    for task in stream():
        assert learner.learn(task).added_parameters <= 60
    base = learner.parameters()["base"]
    total = make("bocl", "low-rank", goal=bocl.GoalSettings(total_budget=base + 200), tasks=3)
    for task in stream():
        total.learn(task)
    assert sum(total.parameters().values()) <= base + 200
    with pytest.raises(ConfigError, match=r"goal\.total_budget is 10, but what is stored"):
        make("bocl", "low-rank", goal=bocl.GoalSettings(total_budget=10)).learn(stream(1)[0])
    fixed = make("fixed", "low-rank", settings=bocl.FixedSettings(widths=4, budget=base + 300), tasks=3)
    for task in stream():
        fixed.learn(task)
    assert sum(fixed.parameters().values()) <= base + 300


class Narrow(nn.Module):
    """Its layers can use ranks up to 2 and 3 only, its convolution one up to 6: (n, 2, 8, 8) to (n, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.first = nn.Conv2d(2, 6, 3), nn.Linear(6, 2)
        self.second, self.head = nn.Linear(3, 5), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, 2, 8, 8) to (n, 3)."""
        two = torch.tanh(self.first(torch.tanh(self.stem(x)).mean((2, 3))))
        return self.head(torch.tanh(self.second(torch.cat([two, two.sum(1, keepdim=True)], 1))))


@pytest.mark.parametrize("bounds", [None, 8])
def test_no_rank_is_above_what_the_layers_of_its_group_can_use(bounds):
    search = replace(SEARCH, trials=12, patience=12, bounds=bounds)
    learner = make("bocl", "low-rank", trained(Narrow()), search=search)
    learned = learner.learn(stream(1)[0])
    assert learned.bounds == (6, 2, 3)
    assert all(rank <= most for trial in learned.trials for rank, most in zip(trial.widths, (6, 2, 3), strict=True))
    fixed = make("fixed", "low-rank", trained(Narrow()), settings=bocl.FixedSettings(widths=(4, 4, 1)))
    assert fixed.learn(stream(1)[0]).widths == (4, 2, 1)
    body = fixed.parameters()["base"]
    shared = make(
        "fixed",
        "low-rank",
        trained(Narrow()),
        settings=bocl.FixedSettings(widths=(1, 4, 2), budget=body + 330),
        tasks=3,
    )
    widths = [shared.learn(task).widths for task in stream(3)]
    assert widths[0] == widths[1] == widths[2]
    assert widths[0][1] == 2
    assert sum(shared.parameters().values()) <= body + 330


def test_a_model_with_larger_ranks_than_its_layers_can_use_is_read_and_learns_on(tmp_path, monkeypatch):
    """As those of earlier versions."""
    settings = bocl.FixedSettings(widths=8)
    learner = make("fixed", "low-rank", trained(Narrow()), settings=settings)
    with monkeypatch.context() as earlier:
        earlier.setattr("bocl.networks.low_rank.network.FactoredNetwork.useful", lambda _network, widths: widths)
        assert learner.learn(stream(1)[0]).widths == (8, 8, 8)
        learner.save(tmp_path / "model")
    other = load(tmp_path / "model", device="cpu", network=Narrow())
    assert read_state(tmp_path / "model", make("fixed", "low-rank", trained(Narrow()), settings=settings), tasks=1)
    x = torch.randn(5, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    assert torch.equal(other.predict(x, 0), learner.predict(x, 0))
    assert other.learn(stream(2)[1]).widths == (6, 2, 3)


def test_rcl_and_networks_of_fixed_size_take_no_pretrained_module():
    fixed_size = (bocl.SN, bocl.EWC, bocl.GEM, bocl.PGN, bocl.DEN, bocl.HAT, bocl.IMM, bocl.PC, bocl.CAB, bocl.Joint)
    for kind in (bocl.RCL, *fixed_size):
        with pytest.raises(TypeError):
            kind(Mobile(), pretrained=True)


# -- a whole copy for every task -----------------------------------------------------------------------


@pytest.mark.parametrize("module", [Mobile, Transformer, Vision], ids=lambda module: module.__name__)
def test_fine_tuning_per_task_starts_from_the_module_and_stores_all_of_it(module, tmp_path):
    shape = (12,) if module is Transformer else (2, 8, 8)
    own = trained(module())
    before, learner, remembered = hashes(own.state_dict()), bocl.Independent(own, **WHOLE), []
    x = torch.randn(5, *shape, generator=torch.Generator().manual_seed(0))
    for number, task in enumerate(stream(2, shape)):
        learned = learner.learn(task)
        remembered.append(learner.predict(x, number))
        body = sum(p.numel() for name, p in own.named_parameters() if not name.startswith(("fc.", "head.")))
        assert learned.parameters["shared"] == body
        assert all(torch.equal(learner.predict(x, task), logits) for task, logits in enumerate(remembered))
    learner.save(tmp_path / "model")
    other = load(tmp_path / "model", device="cpu", network=module())
    assert all(torch.equal(other.predict(x, task), logits) for task, logits in enumerate(remembered))
    assert hashes(own.state_dict()) == before


def test_fine_tuning_moves_everything_and_begins_where_the_module_is():
    own, task = trained(Mobile()), stream(1)[0]
    still = bocl.Independent(own, **{**WHOLE, "recipe": replace(RECIPE, learning_rate=1e-30, epochs=1)})
    still.learn(task)
    moved = bocl.Independent(own, **WHOLE)
    moved.learn(task)
    for name, parameter in own.named_parameters():
        if not name.startswith("fc."):
            assert torch.allclose(still.network.tensors[0][name], parameter, atol=1e-6)
            assert not torch.equal(moved.network.tensors[0][name], parameter)
    statistics = [name for name in own.state_dict() if "running" in name]
    assert statistics
    assert all(not torch.equal(moved.network.tensors[0][name], own.state_dict()[name]) for name in statistics)


class Recurrent(nn.Module):
    """A module in which no layer can have factors: (n, 12) to (n, 5)."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(4, 6, batch_first=True)
        self.head = nn.Linear(6, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, 12) to (n, 5)."""
        return self.head(self.cells(x.view(len(x), 3, 4))[0][:, -1])


def test_whole_copies_of_a_module_without_layers_for_factors_are_loaded(tmp_path):
    learner = bocl.Independent(trained(Recurrent()), **WHOLE)
    learner.learn(stream(1, (12,))[0])
    learner.save(tmp_path / "model")
    x = torch.randn(5, 12, generator=torch.Generator().manual_seed(0))
    other = load(tmp_path / "model", device="cpu", network=Recurrent())
    assert torch.equal(other.predict(x, 0), learner.predict(x, 0))


class Parts(nn.Module):
    """What a copy of a module must take along: (n, 6) to (n, 3).

    tied    weights of two layers are one
    shared  two layers are one
    order   a buffer of whole numbers, with which it computes
    scale   a single number that is trained
    """

    def __init__(self, order: tuple[int, ...] = (3, 1, 0, 2, 5, 4)) -> None:
        super().__init__()
        self.first, self.tied, self.norm = nn.Linear(6, 6), nn.Linear(6, 6), nn.BatchNorm1d(6, momentum=None)
        self.tied.weight, self.shared = self.first.weight, self.first
        self.scale, self.head = nn.Parameter(torch.tensor(1.5)), nn.Linear(6, 3)
        self.register_buffer("order", torch.tensor(order))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, 6) to (n, 3)."""
        hidden = self.norm(torch.tanh(self.first(x[:, self.order])))
        return self.head(self.scale * torch.tanh(self.shared(self.tied(hidden))))


def test_a_copy_has_every_buffer_and_each_shared_tensor_once(tmp_path):
    own, tasks = trained(Parts()), stream(2, (6,))
    learner, x = bocl.Independent(own, **WHOLE), torch.randn(5, 6, generator=torch.Generator().manual_seed(0))
    given = hashes(learner.graph.tensors)
    learned = learner.learn(tasks[0])
    assert learned.parameters["shared"] == 6 * 6 + 6 + 6 + 12 + 1, "first, the bias of tied, norm and scale"
    assert hashes(learner.graph.module.state_dict()) == given
    kept = learner.network.tensors[0]
    assert kept["norm.num_batches_tracked"] > 0
    assert kept["scale"].shape == ()
    assert kept["scale"] != own.scale
    learner.save(tmp_path / "model")
    other = load(tmp_path / "model", device="cpu", network=Parts(order=(0, 1, 2, 3, 4, 5)))
    assert torch.equal(other.predict(x, 0), learner.predict(x, 0)), "the order is the saved one"
    first, second = (one.learn(tasks[1]) for one in (learner, bocl.Independent(own, **WHOLE)))
    assert first.parameters == second.parameters
    assert hashes(learner.graph.module.state_dict()) == given


class Series(nn.Module):
    """No layer of it can have factors: (n, 6) to (n, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.spare, self.fc = nn.LSTM(2, 5, batch_first=True), nn.Linear(4, 4), nn.Linear(5, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, 6) to (n, 3)."""
        return self.fc(self.layer(x.view(len(x), 3, 2))[0][:, -1])


def circular() -> nn.Module:
    convolution = nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular")
    return nn.Sequential(convolution, nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))


@pytest.mark.parametrize(("module", "shape"), [(Series, (6,)), (circular, (2, 8, 8))], ids=["series", "circular"])
def test_a_whole_copy_needs_no_layers_that_can_have_factors(module, shape):
    learner = bocl.Independent(trained(module()), **WHOLE)
    learned = learner.learn(stream(1, shape)[0])
    assert learned.widths == (0,)
    assert learner.predict(torch.randn(2, *shape), 0).shape == (2, 3)


class Ends(nn.Module):
    """Ends in one way or another: (n, 6) to (n, 3)."""

    def __init__(self, end: str) -> None:
        super().__init__()
        self.end, self.body = end, nn.Sequential(nn.Linear(6, 8), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
        if end != "unnamed":
            self.head = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor):
        """Map (n, 6) to (n, 3)."""
        hidden = self.top(self.body(x))
        if self.end == "softmax":
            return self.head(hidden).softmax(1)
        if self.end == "two in training" and self.training:
            return self.head(hidden), hidden
        return self.head(hidden) if self.end != "unnamed" else hidden


@pytest.mark.parametrize(
    ("end", "message"),
    [
        ("unnamed", r"Ends ends in the linear layer 'top\.2'\. It must end in its last nn\.Linear, named head, fc or"),
        (
            "softmax",
            r"'head' was taken for the head of Ends, but .*; it must end in its last nn\.Linear, named head",
        ),
        ("two in training", r"in training mode, Ends returns a tuple; it must return one tensor"),
    ],
)
def test_a_whole_copy_whose_head_is_not_found_says_how_it_would_be(end, message):
    with pytest.raises(NetworkError, match=message) as caught:
        bocl.Independent(Ends(end), **WHOLE).learn(stream(1, (6,))[0])
    assert "growth." not in str(caught.value)
    assert "\n" not in str(caught.value)


class Halted(nn.Module):
    """Has a part that may be computed without gradients, and one that may be skipped: (n, 6) to (n, 3)."""

    def __init__(self, when: str) -> None:
        super().__init__()
        self.when, self.body, self.skipped = when, nn.Linear(6, 8), nn.Linear(8, 8)
        self.never, self.head = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map (n, 6) to (n, 3)."""
        with torch.set_grad_enabled(self.when != "always" and (self.when != "evaluation" or self.training)):
            hidden = torch.relu(self.body(x))
        return self.head(hidden if self.when == "skips" and self.training else torch.tanh(self.skipped(hidden)))


def test_a_whole_copy_with_a_part_that_would_not_train_is_refused():
    task = stream(1, (6,))[0]
    with pytest.raises(NetworkError, match=r"'body\.weight' of Halted gets no gradient, so that it would never train"):
        bocl.Independent(trained(Halted("always")), **WHOLE).learn(task)
    for when in ("never", "evaluation", "skips"):
        bocl.Independent(trained(Halted(when)), **WHOLE).learn(task)


def test_a_module_of_other_numbers_is_refused_with_the_way_out():
    with pytest.raises(NetworkError, match=r"it has float64 weights: convert it with \.float\(\)"):
        bocl.Independent(Mobile().double(), **WHOLE).learn(stream(1)[0])
    with pytest.raises(NetworkError, match=r"'stem' of Mobile is torch\.float16.* convert the module with \.float\(\)"):
        make("frozen", "low-rank", Mobile().half())


def test_a_first_task_that_fails_leaves_nothing_behind():
    def stop(_event) -> None:
        raise KeyboardInterrupt

    module = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten())
    learner = make("fixed", "low-rank", module)
    with pytest.raises(KeyboardInterrupt):
        learner.learn(stream(1, (2, 9, 9))[0], stop)
    learner.learn(stream(1)[0])
    assert learner.graph.features == 3 * 8 * 8
    assert learner.predict(torch.randn(2, 2, 8, 8), 0).shape == (2, 3)
