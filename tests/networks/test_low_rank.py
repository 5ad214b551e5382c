"""Low-rank growth: children together and apart, what is counted, cut and kept, and that nothing old ever changes."""

from __future__ import annotations

import hashlib
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from low_rank_examples import MODULES, Mobile, Transformer, Vision, factored, randomise, ranks, samples, trained
from torch import nn

from bocl.errors import NetworkError
from bocl.networks.growth import GrowthSettings, count_tensors
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.low_rank.fused import can_fuse, fused
from bocl.networks.low_rank.network import FactoredNetwork
from bocl.training.batches import DeviceSplit, DeviceTask
from bocl.training.recipe import Recipe
from bocl.training.trainer import train

FEW = settings(max_examples=20, deadline=None, derandomize=True)
DOUBLE = torch.float64
NORMS = ("frozen", "task")


def two_tasks(name: str, dtype: torch.dtype = torch.float32, **options: object) -> FactoredNetwork:
    """Return a network whose second task reads the first."""
    plain = factored(name, dtype=dtype, **options)
    return factored(name, [(ranks(plain, 2, 0, 1), ()), (ranks(plain, 1, 2), (0,))], dtype, **options)


# -- children together -------------------------------------------------------------------------------


@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("reads", [(), (0,), (0, 1)])
@pytest.mark.parametrize("name", MODULES)
def test_children_together_compute_what_each_computes_alone(name, reads, norms):
    network = two_tasks(name, DOUBLE, norms=norms)
    several = [ranks(network, 1), ranks(network, 3, 0), ranks(network, 0), ranks(network, 2, 1, 3)]
    children = network.grow(several, 4, seeds=range(4), reads=reads, dtype=DOUBLE, pad_to=ranks(network, 4))
    randomise(children)
    children.training = False
    x = samples(name, dtype=DOUBLE)
    with torch.no_grad():
        together = children(x)
        for index in range(4):
            alone = network.candidate(children.growth(index))(x)
            torch.testing.assert_close(together[index], alone, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(children.kept([2, 0])(x), together[[2, 0]], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", MODULES)
def test_a_child_begins_as_the_module_it_grows_from(name):
    """Its factors add nothing yet: its features are the module's own, whatever the ranks."""
    network = factored(name)
    children = network.grow([ranks(network, 3)], 4, seeds=[0])
    children.training = False
    x, head = samples(name), children.growth(0).tensors
    with torch.no_grad():
        wanted = network.graph.run(x) @ head["head/weight"].mT + head["head/bias"]
        torch.testing.assert_close(children(x)[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("name", MODULES)
def test_children_trained_together_take_the_steps_that_each_takes_alone(name, norms):
    network = two_tasks(name, DOUBLE, norms=norms)
    several = [ranks(network, 2), ranks(network, 0, 1), ranks(network, 0)]
    task = a_task(name)
    recipe = Recipe("sgd", 0.05, momentum=0.9, weight_decay=1e-3, batch_size=4, epochs=2)
    together = network.grow(several, 3, seeds=range(3), reads=(0, 1), dtype=DOUBLE)
    fits = train(together, [task], recipe, seed=1)
    for index, z in enumerate(several):
        alone = network.grow([z], 3, seeds=[index], reads=(0, 1), dtype=DOUBLE)
        (fit,) = train(alone, [task], recipe, seed=1)
        assert fits[index].loss == pytest.approx(fit.loss, rel=1e-9)
        for (key, one), other in zip(
            together.growth(index).tensors.items(), alone.growth(0).tensors.values(), strict=True
        ):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-9, msg=key)


@pytest.mark.parametrize("name", MODULES)
def test_padding_stays_zero(name):
    network = factored(name)
    children = network.grow([ranks(network, 1), ranks(network, 0)], 3, seeds=[0, 1], pad_to=ranks(network, 4))
    train(children, [a_task(name, torch.float32)], Recipe(batch_size=4, epochs=2), seed=0)
    for key, tensor in children.parameters.items():
        for index, corners in enumerate(children._corners):
            inside = torch.zeros_like(tensor[index], dtype=torch.bool)
            inside[tuple(slice(size) for size in corners[key])] = True
            assert not tensor[index][~inside].any()


def a_task(name: str, dtype: torch.dtype = DOUBLE) -> DeviceTask:
    x, y = samples(name, 10, dtype=dtype), torch.arange(10) % 3
    lengths = (x != 0).sum(1) if name == "text" else None
    split = DeviceSplit(x, y, lengths=lengths)
    return DeviceTask("task", 2, 3, split, split)


# -- what is computed once ---------------------------------------------------------------------------

CUTS = {  # name: (layers from which on there are factors, the part after which the module is cut)
    "transformer": (("layers.1", "layers.0"),),
    "vision": (("blocks.2", "blocks.1"), ("blocks.1", "blocks.0"), ("blocks.0", "patches")),
    "mobile": (("blocks.3", "blocks.2"), ("blocks.1", "blocks.0"), ("blocks.0", "stem")),
    "series": (("body.6", "body.5"), ("body.3", "body.2")),
    "text": (("encoder.layer.2", "encoder.layer.1"), ("encoder.layer.0", "embeddings")),
}


@pytest.mark.parametrize(("name", "first", "part"), [(name, *pair) for name in CUTS for pair in CUTS[name]])
def test_a_module_is_cut_where_nothing_else_passes(name, first, part):
    backbone = factored(name).graph
    begin = next(at for at, layer in enumerate(backbone.plan.layers) if layer.name.startswith(first))
    cut = backbone.cut_before(list(backbone.plan.layers[begin:]))
    assert cut is not None
    assert cut.part == part


@pytest.mark.parametrize("name", MODULES)
def test_what_was_computed_before_changes_nothing(name):
    network = factored(name, depth=0.4, norms="frozen")
    several = [ranks(network, 2), ranks(network, 1)]
    cut = network.grow(several, 3, seeds=[0, 1])
    network.graph._example = None  # without samples to watch it on, the module cannot be cut
    whole = network.grow(several, 3, seeds=[0, 1])
    for children in (cut, whole):
        randomise(children)
    x = samples(name)
    assert cut.precompute(x) is not None
    assert whole.precompute(x) is None
    with torch.no_grad():
        torch.testing.assert_close(cut(x, 0, cut.precompute(x)), whole(x), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(cut(x), whole(x), rtol=1e-4, atol=1e-5)


class Crossed(nn.Module):
    """A module whose input goes round everything: it can be cut only before it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("table", torch.ones(4))

    def forward(self, x):
        early = self.first(x)
        return self.third(torch.relu(self.second(early))) + early * self.table + x


def test_a_value_that_goes_round_the_cut_is_seen():
    backbone = Backbone(Crossed(), GrowthSettings(form="low-rank", norms="frozen", head="none"))
    backbone.fit(torch.randn(3, 4))
    third = [layer for layer in backbone.plan.layers if layer.name == "third"]
    cut = backbone.cut_before(third)
    assert cut is None or cut.part == "first", "what `second` gives is not all that the rest needs"


def test_with_heads_alone_only_features_are_kept():
    network = factored("vision", norms="frozen")
    children = network.grow([ranks(network, 0)] * 2, 3, seeds=[0, 1])
    assert children.precompute(samples("vision")).shape == (7, 6)


# -- nothing is forgotten ----------------------------------------------------------------------------


@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("name", MODULES)
def test_old_tasks_keep_their_bits_and_the_module_its_own(name, norms):
    network = two_tasks(name, norms=norms)
    before, remembered = hashes(network.graph.tensors), {}
    inputs = [samples(name, count) for count in (1, 7, 64)]
    for number in range(3):
        for task in range(len(network.tasks)):
            for place, x in enumerate(inputs):
                logits = network.predict(x, task)
                assert torch.equal(remembered.setdefault((task, place), logits), logits)
        several = [ranks(network, 1, 2), ranks(network, 0)]
        children = network.grow(several, 3, seeds=[number, 9], reads=network.all_tasks)
        train(children, [a_task(name, torch.float32)], Recipe(batch_size=4, epochs=1), seed=0)
        network.commit(children.growth(0))
    assert hashes(network.graph.tensors) == before


def test_the_users_module_is_left_as_it_was():
    module = trained(Mobile())
    module.train()
    before = hashes(module.state_dict())
    network = FactoredNetwork(Backbone(module, GrowthSettings(form="low-rank", norms="task")))
    network.graph.fit(samples("mobile"))
    children = network.grow([ranks(network, 2)], 3, seeds=[0])
    train(children, [a_task("mobile", torch.float32)], Recipe(batch_size=4, epochs=2), seed=0)
    network.commit(children.growth(0))
    assert hashes(module.state_dict()) == before
    assert module.training
    assert all(parameter.requires_grad for parameter in module.parameters())
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    assert hashes(network.graph.tensors) != hashes({name: module.state_dict()[name] for name in network.graph.tensors})


def test_the_check_of_forgetting_can_fail():
    network = two_tasks("vision")
    x, before = samples("vision"), hashes(network.graph.tensors)
    logits = network.predict(x, 0)
    with torch.no_grad():
        network.graph.module.patches.weight.add_(1e-3)
    assert not torch.equal(network.predict(x, 0), logits)
    assert hashes(network.graph.tensors) != before


def hashes(tensors) -> dict[str, str]:
    return {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in tensors.items()}


@FEW
@given(st.data())
def test_random_transformers_and_mobile_blocks_forget_nothing(data):
    kind = data.draw(st.sampled_from(["vision", "mobile", "transformer"]))
    depth, width = data.draw(st.integers(1, 3)), 2 * data.draw(st.integers(2, 4))
    make = {
        "vision": lambda: Vision(depth, width, data.draw(st.sampled_from(["dropout", "plain"]))),
        "mobile": lambda: Mobile(depth),
        "transformer": lambda: Transformer(depth, 2 * width),
    }[kind]
    growth = GrowthSettings(
        form="low-rank",
        norms=data.draw(st.sampled_from(NORMS)),
        depth=data.draw(st.sampled_from([0.3, 1.0])),
        attention=data.draw(st.booleans()),
    )
    network = FactoredNetwork(Backbone(trained(make()), growth))
    network.graph.fit(samples(kind))
    count, x = len(network.graph.groups), samples(kind)
    base, seen = hashes(network.graph.tensors), []
    for number in range(3):
        z = tuple(data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count)))
        reads = tuple(sorted(data.draw(st.sets(st.sampled_from(network.all_tasks))))) if number else ()
        children = network.grow([z, (1,) * count], 3, seeds=[number, 7], reads=reads)
        train(children, [a_task(kind, torch.float32)], Recipe(batch_size=4, epochs=1), seed=number)
        growth_of = children.growth(0)
        assert count_tensors(growth_of.tensors) == {
            part: int(found) for part, found in network.space(3, reads).count(z).items()
        }
        network.commit(growth_of)
        seen.append(network.predict(x, number))
        assert all(torch.equal(network.predict(x, task), logits) for task, logits in enumerate(seen))
    assert hashes(network.graph.tensors) == base


# -- what is counted ---------------------------------------------------------------------------------


@pytest.mark.parametrize("norms", NORMS)
@pytest.mark.parametrize("name", MODULES)
def test_counts_are_those_of_the_tensors_for_one_point_and_for_many(name, norms):
    network = two_tasks(name, norms=norms)
    for reads in ((), (0,), (0, 1)):
        space = network.space(5, reads)
        points = np.array([ranks(network, 0), ranks(network, 1), ranks(network, 3, 0, 2)])
        found = space.count_all(points)
        for point, count in zip(points, found, strict=True):
            growth = space.initialise(tuple(point.tolist()), gate_bias=0.0, reads=reads, seed=0)
            assert sum(count_tensors(growth.tensors).values()) == count == space.count_all(point)
        by_group = space.count_by_group(points)
        for group in range(points.shape[1]):
            layers = [layer for layer in network.graph.plan.layers if layer.group == group]
            per_rank = sum(layer.inputs * prod(layer.kernel) + layer.outputs for layer in layers)
            assert (by_group[:, group] == per_rank * points[:, group]).all()


def test_what_is_read_costs_one_number_for_each_rank_and_layer():
    network = two_tasks("vision")
    read = network.widths((0, 1))
    gates = network.space(3, (0, 1)).count(ranks(network, 0))["attention"]
    assert gates == sum(read[layer.group] for layer in network.graph.plan.layers)


# -- plans -------------------------------------------------------------------------------------------


def test_groups_are_found_by_purpose_and_depth():
    names = [group.name for group in factored("text").graph.groups]
    assert names == [
        f"{kind} {third}" for third in ("lower", "middle", "upper") for kind in ("attention-in", "attention-out", "mlp")
    ]
    assert [group.name for group in factored("text", depth=1 / 3).graph.groups] == names[6:]
    mobile = factored("mobile").graph
    assert {group.name.split()[0] for group in mobile.groups} == {"expand", "project"}
    assert not any("depthwise" in layer.name for layer in mobile.plan.layers)


def test_groups_of_ones_own_are_patterns():
    backbone = factored("vision", groups={"queries": r"qkv$", "rest": r"mlp\.0|proj"}).graph
    assert [group.name for group in backbone.groups] == ["queries", "rest"]
    layers = [(layer.group, layer.name.rpartition(".")[2]) for layer in backbone.plan.layers]
    assert {name for group, name in layers if group == 0} == {"qkv"}
    assert [group for group, _ in layers].count(1) == 6


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"groups": {"a": "qkw"}}, r"growth\.groups\.a: no layer is named like 'qkw'"),
        ({"groups": {"a": "("}}, r"growth\.groups\.a is '\(', which is no pattern"),
        (
            {"groups": {"a": "qkv|proj", "b": "proj"}},
            r"growth\.groups\.b: 'blocks\.0\.proj' is in the group 'a' already",
        ),
        ({"groups": {"a": "patches"}, "depth": 0.5}, r"growth\.groups\.a: growth\.depth = 0\.5 leaves out 'patches'"),
        ({"head": "blocks.9"}, r"growth\.head is 'blocks\.9', which is no linear layer of Vision"),
        ({"head": "blocks.0.proj"}, r"'blocks\.0\.proj' was taken for the head of Vision, but its output is not"),
    ],
)
def test_wrong_settings_are_named(settings_, message):
    with pytest.raises(NetworkError, match=message):
        factored("vision", **settings_)


def test_a_module_without_layers_is_refused():
    with pytest.raises(NetworkError, match="no layer that can have low-rank factors"):
        Backbone(nn.Sequential(nn.ReLU()), GrowthSettings(form="low-rank"))


class Odd(nn.Module):
    """Returns whatever it is told to."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.body, self.spare, self.what = nn.Linear(4, 4), nn.Linear(4, 4), what

    def forward(self, x):
        y = self.body(x)
        return {
            "tuple": (y,),
            "one": y.sum(),
            "matrix": y[:, None],
            "linear": y,
            "unused": torch.relu(y) + 0 * self.spare(x).detach(),
        }[self.what]


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("tuple", "Odd returns a tuple; it must return one tensor"),
        ("one", "one vector of features for each"),
        ("matrix", "one vector of features for each"),
        ("linear", r"'spare' was taken for the head of Odd, but its output is not the module's"),
    ],
)
def test_a_module_that_gives_no_features_is_refused(what, message):
    backbone = Backbone(Odd(what), GrowthSettings(form="low-rank"))
    with pytest.raises(NetworkError, match=message):
        backbone.fit(torch.randn(3, 4))


def test_a_last_linear_layer_is_a_head_or_not_by_name():
    module = nn.Sequential(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Sequential(nn.Linear(4, 3)))
    backbone = Backbone(module, GrowthSettings(form="low-rank"))
    with pytest.raises(NetworkError, match=r"ends in the linear layer '1\.0'\. If that is its head, set growth\.head"):
        backbone.fit(torch.randn(2, 4))
    with_head = Backbone(module, GrowthSettings(form="low-rank", head="1.0"))
    with_head.fit(torch.randn(2, 4))
    without = Backbone(module, GrowthSettings(form="low-rank", head="none"))
    without.fit(torch.randn(2, 4))
    assert (with_head.features, without.features) == (4, 3)
    assert [layer.name for layer in without.plan.layers] == ["0.0", "1.0"]


def test_layers_that_do_not_take_part_are_left_out():
    backbone = Backbone(Odd("unused"), GrowthSettings(form="low-rank", head="none", groups={"all": "."}))
    backbone.fit(torch.randn(3, 4))
    assert [layer.name for layer in backbone.plan.layers] == ["body", "spare"], "0 · NaN is not 0"
    module = nn.ModuleDict({"used": nn.Linear(4, 4), "spare": nn.Linear(4, 4)})
    module.forward = lambda x: torch.relu(module["used"](x))
    backbone = Backbone(Two(), GrowthSettings(form="low-rank", head="none", groups={"all": "."}))
    backbone.fit(torch.randn(3, 4))
    assert [layer.name for layer in backbone.plan.layers] == ["used"]


class Two(nn.Module):
    """Has a layer that it does not call."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.used(x))


# -- what only samples show ----------------------------------------------------------------------------


class Strange(nn.Module):
    """A module that does one thing that several children, or tasks, cannot have: (n, 12) to (n, 5)."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self.what, self.tokens, self.inner, self.last = what, nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        first = what != "tokens first"
        self.encoder = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=first)
        self.norm = nn.BatchNorm1d(8, track_running_stats=what != "batch statistics")
        self.position, self.head = nn.Parameter(torch.randn(1, 8)), nn.Linear(8, 5)
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        if self.what == "input in place":
            x.mul_(2)
        hidden = self.tokens(x.view(len(x), -1, 4))
        if self.what == "tokens first":
            hidden = self.encoder(hidden.transpose(0, 1)).transpose(0, 1)
        elif self.what == "rows in another order":
            rows = torch.relu(self.inner(hidden.transpose(0, 1).reshape(-1, 8)))
            hidden = rows.view(-1, len(x), 8).transpose(0, 1)
        elif self.what == "a layer of a parameter":
            hidden = hidden + self.inner(self.position)
        hidden = self.norm(self.last(hidden).mean(1))
        if self.what == "buffer in place":
            self.mean.lerp_(hidden.mean(0), 0.1)
        elif self.what == "buffer assigned":
            self.mean = 0.9 * self.mean + 0.1 * hidden.mean(0)
        elif self.what == "random":
            hidden = nn.functional.dropout(hidden, 0.5)
        elif self.what == "squeezed":
            hidden = hidden.squeeze()
        return self.head(hidden - self.mean)


GROUPS = {"tokens first": {"all": "linear|last"}, "rows in another order": {"all": "inner|last"}}
STRANGE = {
    "tokens first": r"'encoder\.linear1' of Strange reads .* must have as many rows for each .* batch_first=True",
    "rows in another order": r"children of Strange compute together something else than each alone\. Build the module",
    "a layer of a parameter": r"'inner' of Strange reads a tensor of shape \(1, 8\) for 4 samples, and \(1, 8\)",
    "input in place": r"Strange changes its input in place",
    "random": r"Strange gives another result for the same samples when it is called again",
    "batch statistics": r"what Strange computes for a sample depends on the others of its batch",
    "squeezed": r"depends on the others of its batch: alone, it becomes a tensor of shape \(8,\)",
    "buffer in place": r"the forward of Strange changes its tensor 'mean' in evaluation mode",
    "buffer assigned": r"the forward of Strange changes its tensor 'mean' in evaluation mode",
}


@pytest.mark.parametrize("tokens", [3, 4])
@pytest.mark.parametrize("what", STRANGE)
def test_a_module_that_children_cannot_share_is_refused_and_left_as_it_was(what, tokens):
    """Also with as many tokens as there are samples, so that shapes alone do not tell."""
    groups = GROUPS.get(what, {"all": "inner|last"})
    backbone = Backbone(trained(Strange(what)), GrowthSettings(form="low-rank", groups=groups))
    before, x = hashes(backbone.tensors), torch.randn(4, 4 * tokens, generator=torch.Generator().manual_seed(0))
    given = x.clone()
    with pytest.raises(NetworkError, match=STRANGE[what]) as caught:
        backbone.fit(x)
    assert "\n" not in str(caught.value)
    assert hashes(backbone.tensors) == before
    assert torch.equal(x, given)
    assert backbone.features is None


def test_what_is_wrong_with_a_module_is_seen_with_the_first_task_only():
    backbone = Backbone(trained(Strange("")), GrowthSettings(form="low-rank", groups={"all": "last"}))
    calls = []
    backbone.module.last.register_forward_hook(lambda *_: calls.append(1))
    backbone.fit(torch.randn(4, 12))
    several = len(calls)
    backbone.fit(torch.randn(4, 12))
    assert len(calls) == several + 1


def test_other_features_are_found_for_samples_of_another_shape():
    """As where the first task could not be learnt, and the next has other samples."""
    module = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.ReLU(), nn.Flatten())
    backbone = Backbone(module, GrowthSettings(form="low-rank"))
    backbone.fit(torch.randn(4, 2, 6, 6))
    assert backbone.features == 108
    backbone.fit(torch.randn(4, 2, 4, 4))
    assert backbone.features == 48


class Cut(nn.Module):
    """Computes a part without gradients in one way or another: (n, 4) to (n, 3)."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how, self.first, self.second, self.last = how, nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        y = torch.tanh(self.first(x))
        with torch.inference_mode() if self.how == "inference" else torch.set_grad_enabled(self.how != "no_grad"):
            y = torch.tanh(self.second(y))
        if self.how == "residual":
            y = y.detach() + self.second(y)
        if self.how == "dead":
            y = y + torch.relu(self.last(x) - 1e6)
        if self.how == "detached":
            y = y.detach()
        return self.head(torch.tanh(self.last(y)))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("no_grad", r"'first' of Cut gets no gradient, so that its factors would never train; take torch\.no_grad\(\)"),
        ("detached", r"'first' of Cut gets no gradient"),
        ("inference", r"Cut cannot be trained: .* take torch\.no_grad\(\), torch\.inference_mode\(\) and"),
    ],
)
def test_a_module_whose_factors_would_get_no_gradient_is_refused(how, message):
    module = trained(Cut(how))
    backbone = Backbone(module, GrowthSettings(form="low-rank"))
    with pytest.raises(NetworkError, match=message) as caught:
        backbone.fit(torch.randn(4, 4))
    assert "\n" not in str(caught.value)
    assert backbone.features is None
    for chosen in ({"groups": {"last": "last"}}, {"depth": 0.3}) if how != "inference" else ():
        Backbone(module, GrowthSettings(form="low-rank", **chosen)).fit(torch.randn(4, 4))


@pytest.mark.parametrize("how", ["", "residual", "dead"])
def test_layers_with_any_gradient_may_have_factors(how):
    backbone = Backbone(trained(Cut(how)), GrowthSettings(form="low-rank"))
    backbone.fit(torch.randn(4, 4))
    assert [layer.name for layer in backbone.plan.layers] == ["first", "second", "last"]


def test_a_module_that_gives_no_numbers_is_refused():
    module = Two()
    with torch.no_grad():
        module.used.weight[0, 0] = torch.inf
    backbone = Backbone(module, GrowthSettings(form="low-rank", groups={"all": "used"}, head="none"))
    with pytest.raises(NetworkError, match="Two returns NaN or infinity for samples of the task"):
        backbone.fit(torch.rand(3, 4))


class Guarded(nn.Module):
    """Fails where a number is NaN, and keeps what it saw."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.register_buffer("most", torch.zeros(()))

    def forward(self, x):
        hidden = self.inner(x)
        if hidden.isnan().any():
            self.most.fill_(torch.nan)
            raise ValueError
        return self.head(hidden)


def test_looking_for_layers_that_take_part_touches_no_tensor_of_the_module():
    backbone = Backbone(Guarded(), GrowthSettings(form="low-rank"))
    backbone.fit(torch.randn(4, 4))
    assert [layer.name for layer in backbone.plan.layers] == ["inner"]
    assert backbone.tensors["most"] == 0


class Silenced(nn.BatchNorm2d):
    """A norm that does more than its class."""

    def forward(self, x):
        return torch.relu(super().forward(x))


def test_only_norms_that_are_known_have_copies_of_each_task():
    module = nn.Sequential(nn.Conv2d(2, 4, 3), Silenced(4), nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Flatten())
    network = FactoredNetwork(Backbone(trained(module), GrowthSettings(form="low-rank", norms="task")))
    network.graph.fit(torch.randn(4, 2, 8, 8))
    assert list(network.graph.norms_by_name) == ["3"]
    child = network.grow([ranks(network, 0)], 3, seeds=[0]).growth(0)
    x = torch.randn(3, 2, 8, 8)
    with torch.no_grad():
        torch.testing.assert_close(network.candidate(child).features(x), network.graph.run(x))


def test_a_norm_without_a_momentum_is_no_tasks_own():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None), nn.Linear(4, 3))
    with pytest.raises(NetworkError, match=r"'1' has momentum=None"):
        Backbone(module, GrowthSettings(form="low-rank", norms="task"))
    Backbone(module, GrowthSettings(form="low-rank"))


class TokensFirst(nn.Module):
    """Has tokens first up to the middle, and samples first after it: (n, 16) to (n, 8)."""

    def __init__(self) -> None:
        super().__init__()
        self.early, self.middle, self.late = nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        early = torch.relu(self.early(x.view(len(x), 4, 4).transpose(0, 1)))
        return torch.relu(self.late(self.middle(early).mean(0)))


def test_four_tokens_are_not_taken_for_four_samples():
    backbone = Backbone(TokensFirst(), GrowthSettings(form="low-rank", groups={"all": "late"}, head="none"))
    backbone.fit(torch.randn(4, 16))
    assert backbone.cut_before(list(backbone.plan.layers)) is None


# -- modules that cannot be used ------------------------------------------------------------------------


class WithExtraState(nn.Linear):
    """Keeps something that is no tensor."""

    def get_extra_state(self):
        return {"version": 1}

    def set_extra_state(self, state):
        pass


def quantised() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.__class__ = type("Linear", (nn.Linear,), {"__module__": "torch.ao.nn.quantized.dynamic.modules.linear"})
    return nn.Sequential(layer, nn.ReLU(), nn.Linear(4, 3))


USELESS = {
    "lazy": (lambda: nn.Sequential(nn.LazyLinear(4), nn.Linear(4, 3)), "'0' of Sequential is lazy and has no weights"),
    "meta": (lambda: nn.Sequential(nn.Linear(4, 4, device="meta")), r"'0\.weight' of Sequential is on the meta device"),
    "scripted": (
        lambda: torch.jit.trace(Two(), torch.zeros(2, 4)),
        "is compiled .* give the nn.Module",
    ),
    "compiled": (lambda: torch.compile(Two()), "is compiled .* give the nn.Module"),
    "extra state": (lambda: nn.Sequential(WithExtraState(4, 4)), "'0._extra_state' in its state, which is no tensor"),
    "quantised": (quantised, "'0' of Sequential is quantised"),
    "double": (lambda: Two().double(), r"'used' of Two is torch\.float64.* convert the module with \.float\(\)"),
    "half": (lambda: Two().half(), r"'used' of Two is torch\.float16.* convert the module with \.float\(\)"),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.parametrize("kind", USELESS)
def test_a_module_whose_weights_cannot_be_used_is_refused_in_one_line(kind):
    make, message = USELESS[kind]
    with pytest.raises(NetworkError, match=message) as caught:
        Backbone(make(), GrowthSettings(form="low-rank"))
    assert "\n" not in str(caught.value)


class Rows(nn.Module):
    """Layers of these names in a row, of which some are not called."""

    def __init__(self, names: str, unused: int) -> None:
        super().__init__()
        parts = [nn.Sequential() for _ in names]
        for part, name in zip(parts, names, strict=True):
            part.add_module({"a": "q_proj", "m": "dense"}[name], nn.Linear(4, 4))
        self.parts, self.unused = nn.ModuleList(parts), unused

    def forward(self, x):
        for number, part in enumerate(self.parts):
            x = x if number == self.unused else torch.tanh(part(x))
        return x


@pytest.mark.parametrize("names", ["aamma", "mamma", "aaaa", "mm", "amammm"])
def test_layers_that_take_no_part_move_no_other_into_another_group(names):
    for unused in range(len(names)):
        backbone = Backbone(Rows(names, unused), GrowthSettings(form="low-rank", head="none"))
        before = {layer.name: backbone.groups[layer.group].name for layer in backbone.plan.layers}
        alone = list(before.values()).count(list(before.values())[unused]) == 1
        if alone:
            with pytest.raises(
                NetworkError, match=f"no layer of the group '{list(before.values())[unused]}' takes part"
            ):
                backbone.fit(torch.randn(4, 4))
            continue
        backbone.fit(torch.randn(4, 4))
        after = {layer.name: backbone.groups[layer.group].name for layer in backbone.plan.layers}
        assert after == {name: group for name, group in before.items() if name != list(before)[unused]}


# -- on a GPU ------------------------------------------------------------------------------------------


def on_gpu(name: str) -> tuple[FactoredNetwork, DeviceTask]:
    module = trained(MODULES[name][0]())
    network = FactoredNetwork(Backbone(module, GrowthSettings(form="low-rank"), "cuda"))
    x, y = samples(name, 40), torch.arange(40) % 3
    lengths = (x != 0).sum(1) if name == "text" else None
    split = DeviceSplit(x.cuda(), y.cuda(), lengths=lengths)
    network.graph.fit(split.inputs[:4])
    return network, DeviceTask("task", 0, 3, split, split)


@pytest.mark.parametrize("kind", ["linear", "pointwise"])
def test_a_layer_and_its_factors_in_one_product_have_the_gradients_of_the_two(kind):
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    base = nn.Linear(5, 4) if kind == "linear" else nn.Conv2d(5, 4, 1)
    base.double().requires_grad_(False)
    x = drawn(6, 3, 5) if kind == "linear" else drawn(6, 5, 2, 3)
    down, up, scale = drawn(2, 3, 5), drawn(2, 4, 3), drawn(2, 3)

    def in_two(x, down, up, scale):
        rows = x if kind == "linear" else x.movedim(1, -1)
        rows = rows.reshape(2, -1, 5)
        added = (rows @ down.mT * scale.unsqueeze(1)) @ up.mT
        added = added.reshape(*x.shape[:2], 4) if kind == "linear" else added.reshape(6, 2, 3, 4).movedim(-1, 1)
        return base(x) + added

    assert can_fuse(base, x)
    torch.testing.assert_close(fused(base, x, down, up, scale), in_two(x, down, up, scale))
    assert torch.autograd.gradcheck(lambda *given: fused(base, *given), (x, down, up, scale))


def test_what_does_more_than_a_product_is_not_fused():
    x = torch.zeros(2, 5, 2, 2)
    hooked = nn.Conv2d(5, 4, 1)
    hooked.register_forward_hook(lambda _part, _arguments, result: 2 * result)
    normed = torch.nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    options = ({"stride": 2}, {"padding": 1}, {"groups": 5}, {"kernel_size": 3})
    others = [nn.Conv2d(5, 5, **{"kernel_size": 1, **option}) for option in options]
    assert not any(can_fuse(base, x) for base in [hooked, normed, *others])


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("name", MODULES)
def test_a_captured_training_repeats_itself_and_is_about_the_eager_one(name, precision):
    torch.manual_seed(0)
    network, task = on_gpu(name)
    several = [ranks(network, 2), ranks(network, 0, 1), ranks(network, 0)]
    recipe = Recipe("adam", 0.01, batch_size=8, epochs=3, precision=precision)

    def states(graphed: bool) -> dict[str, torch.Tensor]:
        children = network.grow(several, 3, seeds=range(3), reads=())
        train(children, [task], recipe, seed=0, graphed=graphed)
        return {key: tensor.detach().clone() for key, tensor in children.state.items()}

    one, again, eager = states(graphed=True), states(graphed=True), states(graphed=False)
    for key, tensor in one.items():
        assert torch.equal(tensor, again[key]), key
        if precision == "float32":
            torch.testing.assert_close(tensor, eager[key], rtol=1e-3, atol=1e-4, msg=key)


@pytest.mark.gpu
@pytest.mark.parametrize("name", MODULES)
def test_children_on_a_gpu_compute_what_each_computes_alone(name):
    torch.manual_seed(0)
    network, task = on_gpu(name)
    children = network.grow([ranks(network, 2), ranks(network, 0, 1)], 3, seeds=[0, 1], reads=())
    train(children, [task], Recipe("adam", 0.01, batch_size=8, epochs=2, precision="float32"), seed=0)
    children.training = False
    with torch.no_grad():
        together = children(task.train.inputs)
        for index in range(2):
            alone = network.candidate(children.growth(index))(task.train.inputs)
            torch.testing.assert_close(together[index], alone, rtol=1e-3, atol=1e-3)
