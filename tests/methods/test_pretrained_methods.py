"""Learners that start from a trained module, in both forms: learning, saving, loading, and what they refuse."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import bocl
from bocl.errors import ConfigError, DataError, InputError, NetworkError
from bocl.methods.saving import load
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
    with pytest.raises(InputError, match=r"adapts a Mobile, whose code is yours; give such a module with network="):
        load(tmp_path / "model", device="cpu")
    with pytest.raises(InputError, match="adapts another module: a Mobile with"):
        load(tmp_path / "model", device="cpu", network=Vision())
    units = make("frozen", "units")
    units.learn(stream(1)[0])
    units.save(tmp_path / "units")
    with pytest.raises(InputError, match="holds all of its network; leave out network="):
        load(tmp_path / "units", device="cpu", network=Mobile())


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
        ({"pretrained": True, "network": "transformer"}, NetworkError, "cannot be"),
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


def test_rcl_and_networks_of_fixed_size_take_no_pretrained_module():
    for kind in (bocl.RCL, bocl.SN, bocl.EWC, bocl.GEM, bocl.PGN, bocl.DEN, bocl.Joint):
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
