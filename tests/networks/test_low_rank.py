"""Low-rank growth: children together and apart, what is counted, cut and kept, and that nothing old ever changes."""

from __future__ import annotations

import hashlib

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
            per_rank = sum(layer.per_rank for layer in network.graph.plan.of_group(group))
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
    assert {layer.name.rpartition(".")[2] for layer in backbone.plan.of_group(0)} == {"qkv"}
    assert len(backbone.plan.of_group(1)) == 6


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"groups": {"a": "qkw"}}, r"growth\.groups\.a: no layer is named like 'qkw'"),
        ({"groups": {"a": "("}}, r"growth\.groups\.a is '\(', which is no pattern"),
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


# -- on a GPU ------------------------------------------------------------------------------------------


def on_gpu(name: str) -> tuple[FactoredNetwork, DeviceTask]:
    module = trained(MODULES[name][0]())
    network = FactoredNetwork(Backbone(module, GrowthSettings(form="low-rank"), "cuda"))
    x, y = samples(name, 40), torch.arange(40) % 3
    lengths = (x != 0).sum(1) if name == "text" else None
    split = DeviceSplit(x.cuda(), y.cuda(), lengths=lengths)
    network.graph.fit(split.inputs[:4])
    return network, DeviceTask("task", 0, 3, split, split)


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
