"""Tracing: an ordinary module becomes the right graph, or is refused with its name and the reason."""

from __future__ import annotations

import json

import pytest
import torch
import torch.nn.functional as F
from network_examples import NETWORKS, copy_into, grown, make_task
from torch import Tensor, nn

from bocl.errors import InputError, NetworkError
from bocl.networks.architectures import lenet, mlp, resnet
from bocl.networks.compact import assemble
from bocl.networks.graph import from_json, to_json
from bocl.networks.growth import GrowthSpace, initialise
from bocl.networks.trace import trace


class Functional(nn.Module):
    """A small convolutional network whose forward is a function given to it."""

    def __init__(self, forward, **layers: nn.Module) -> None:
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.head = nn.Linear(64, 3)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.steps = forward

    def forward(self, x: Tensor) -> Tensor:
        """Run the function."""
        return self.steps(self, x)


def assert_follows(module: nn.Module, shape: tuple[int, ...] = (2, 6, 6)) -> None:
    """Check that a traced module computes what it did, and that it can be grown and trained."""
    module.eval()
    graph = trace(module)
    classes = [layer.out_features for layer in module.modules() if isinstance(layer, nn.Linear)][-1]
    growth = initialise(GrowthSpace.first(graph, classes), graph.widths, seed=0)
    copy_into(module, growth.tensors)
    x = torch.randn(3, *shape, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(assemble(graph, None, growth)(x), module(x.clone()))
    if shape == (2, 6, 6):
        network = grown(graph, [(2,) * len(graph.groups)])
        assert network.predict(x, 1).isfinite().all()


# -- what is followed ------------------------------------------------------------------------------


def test_a_stack_of_layers_has_one_group_each():
    graph = trace(lenet())
    assert [(group.name, group.width) for group in graph.groups] == [
        ("conv1", 6),
        ("conv2", 16),
        ("fc1", 120),
        ("fc2", 84),
    ]
    assert [layer.source.spread for layer in graph.layers] == [1, 1, 25, 1]
    assert graph.head.source.width == 84


def test_the_residual_stream_of_a_resnet_is_one_entry_of_z():
    graph = trace(resnet(3, (16, 32), blocks=2))
    names = [group.name for group in graph.groups]
    assert names == ["stem", "stage1_1.conv1", "stage1_2.conv1", "stage2_1.conv1", "stage2_1.conv2", "stage2_2.conv1"]
    stream = {layer.name: layer.group for layer in graph.layers}
    assert stream["stem"] == stream["stage1_1.conv2"] == stream["stage1_2.conv2"] == 0
    assert stream["stage2_1.conv2"] == stream["stage2_1.shortcut"] == stream["stage2_2.conv2"] == 4
    assert graph.widths == (16, 16, 16, 32, 32, 32)


def test_ties_of_ties_are_one_group():
    class Dense(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c, self.d = (nn.Linear(72 if n == 0 else 5, 5) for n in range(4))
            self.head = nn.Linear(5, 3)

        def forward(self, x: Tensor) -> Tensor:
            a = self.a(x.flatten(1))
            b, c = self.b(a), self.c(a)
            d = self.d(b + c)
            return self.head(torch.relu(d + a + b))

    graph = trace(Dense())
    assert len(graph.groups) == 1
    assert_follows(Dense())


FOLLOWED = {
    "F.relu and torch.flatten": Functional(lambda m, x: m.head(torch.flatten(F.relu(m.conv(x)), 1))),
    "flatten by keyword": Functional(lambda m, x: m.head(F.relu(m.conv(x)).flatten(start_dim=1))),
    "view by size": Functional(lambda m, x: m.head(m.conv(x).relu().view(x.size(0), -1))),
    "reshape by shape": Functional(lambda m, x: m.head(torch.reshape(m.conv(x).tanh(), (x.shape[0], -1)))),
    "view by number": Functional(lambda m, x: m.head(torch.tanh(m.conv(x)).contiguous().view(-1, 64))),
    "view by size(0) and number": Functional(lambda m, x: m.head(m.conv(x).sigmoid().view(x.size()[0], 64))),
    "mean over space": Functional(lambda m, x: m.head(F.relu(m.conv(x)).mean((2, 3))), head=nn.Linear(4, 3)),
    "mean by negative dims": Functional(lambda m, x: m.head(m.conv(x).mean(dim=[-1, -2])), head=nn.Linear(4, 3)),
    "functional pools": Functional(
        lambda m, x: m.head(F.avg_pool2d(F.max_pool2d(m.conv(x), 2, stride=1), 3).flatten(1)), head=nn.Linear(4, 3)
    ),
    "functional pool, rectangular": Functional(
        lambda m, x: m.head(F.max_pool2d(m.conv(x), (2, 4), ceil_mode=True).flatten(1)), head=nn.Linear(8, 3)
    ),
    "adaptive pool by function": Functional(
        lambda m, x: m.head(F.adaptive_avg_pool2d(m.conv(x), (1, 2)).flatten(1)), head=nn.Linear(8, 3)
    ),
    "adaptive max pool": Functional(
        lambda m, x: m.head(m.pool(m.conv(x)).flatten(1)), pool=nn.AdaptiveMaxPool2d((2, None)), head=nn.Linear(32, 3)
    ),
    "dropout by function": Functional(lambda m, x: m.head(F.dropout(m.conv(x), 0.5, m.training).flatten(1))),
    "identity": Functional(lambda m, x: m.head(m.nothing(m.conv(m.nothing(x))).flatten(1)), nothing=nn.Identity()),
    "a relu used twice": Functional(
        lambda m, x: m.head(m.act(m.other(m.act(m.conv(x)))).flatten(1)), act=nn.ReLU(), other=nn.Conv2d(4, 4, 1)
    ),
    "relu in place": Functional(lambda m, x: m.head(m.act(m.conv(x)).flatten(1)), act=nn.ReLU(inplace=True)),
    "relu_ and iadd": Functional(lambda m, x: m.head(m.other(m.conv(x)).relu_().flatten(1)), other=nn.Conv2d(4, 4, 1)),
    "a value added to itself": Functional(lambda m, x: m.head((lambda h: h + h)(m.conv(x)).flatten(1))),
    "torch.add": Functional(lambda m, x: m.head(torch.add(m.conv(x), m.other(x)).flatten(1)), other=nn.Conv2d(2, 4, 3)),
    "a branch that is unused": Functional(
        lambda m, x: (m.other(x), m.head(m.conv(x).flatten(1)))[1], other=nn.Conv2d(2, 9, 3, groups=1)
    ),
    "an addition that broadcasts over space": Functional(
        lambda m, x: (lambda h: m.head((h + F.adaptive_avg_pool2d(h, 1)).flatten(1)))(m.conv(x))
    ),
    "flattened twice": Functional(lambda m, x: m.head(m.conv(x).flatten(1).flatten(1))),
    "two flattened maps added": Functional(
        lambda m, x: m.head(m.conv(x).flatten(1) + m.other(x).flatten(1)), other=nn.Conv2d(2, 4, 3)
    ),
    "batch norm of a flattened map": Functional(
        lambda m, x: m.head(torch.relu(m.norm(m.conv(x).flatten(1)))), norm=nn.BatchNorm1d(64)
    ),
    "nested Sequentials": nn.Sequential(
        nn.Sequential(nn.Sequential(nn.Conv2d(2, 4, 3), nn.Hardswish()), nn.Identity()),
        nn.Sequential(nn.Flatten(), nn.Sequential(nn.Linear(64, 5), nn.ELU(0.3), nn.Dropout(0.2)), nn.Linear(5, 3)),
    ),
    "stride, dilation, padding": nn.Sequential(
        nn.Conv2d(2, 4, (3, 2), stride=(1, 2), padding=(2, 1), dilation=(2, 1)),
        nn.Hardtanh(0.1, 2.0),
        nn.Flatten(),
        nn.Linear(96, 3),
    ),
    "padding same": nn.Sequential(
        nn.Conv2d(2, 4, 3, padding="same"), nn.SiLU(), nn.AvgPool2d(6), nn.Flatten(), nn.Linear(4, 3)
    ),
    "sigmoid of a flattened map": nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Sigmoid(), nn.Linear(64, 3)),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_module_computes_the_same_when_traced_and_grows(name):
    assert_follows(FOLLOWED[name])


@pytest.mark.parametrize("name", NETWORKS)
def test_example_networks_compute_the_same_when_traced(name):
    assert_follows(NETWORKS[name]())


def test_one_dimensional_convolutions_are_followed():
    module = nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.MaxPool1d(2), nn.Flatten(), nn.Linear(16, 3))
    assert_follows(module, (2, 10))


@pytest.mark.parametrize("module", [mlp(72, [6, 5], 3), lenet(), resnet(), NETWORKS["cnn, group norm"]()])
def test_a_graph_survives_json(module):
    graph = trace(module)
    assert from_json(json.loads(json.dumps(to_json(graph), allow_nan=False))) == graph


@pytest.mark.parametrize("name", FOLLOWED)
def test_every_followed_graph_survives_json(name):
    graph = trace(FOLLOWED[name])
    assert from_json(json.loads(json.dumps(to_json(graph), allow_nan=False))) == graph


def test_tracing_changes_neither_the_module_nor_the_random_state():
    module = NETWORKS["residual, batch norm"]().eval()
    state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    before = torch.random.get_rng_state()
    trace(module)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not module.training
    assert all(torch.equal(tensor, state[name]) for name, tensor in module.state_dict().items())


def test_dropout_drops_in_training_alone():
    network = grown(nn.Sequential(nn.Flatten(), nn.Linear(72, 40), nn.Dropout(0.5), nn.Linear(40, 3)))
    children = network.grow([(3,)], 3, seeds=[0])
    x = make_task().validation.inputs
    with torch.random.fork_rng():
        assert not torch.equal(children(x), children(x))
    children.training = False
    assert torch.equal(children(x), children(x))


# -- what is refused -------------------------------------------------------------------------------


def tail(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3), *layers, nn.Flatten(), nn.Linear(64, 3))


class TwoInputs(nn.Module):
    """A network of two inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Add both."""
        return self.head(self.a(x) + self.a(y))


class Doubled(nn.Linear):
    """A linear layer that is not one."""

    def forward(self, x: Tensor) -> Tensor:
        """Double the input first."""
        return super().forward(2 * x)


def tied() -> nn.Module:
    module = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    module[2].weight = module[0].weight
    return module


def changed_and_read(m: Functional, x: Tensor) -> Tensor:
    h = m.conv(x)
    return m.head((m.act(h) + h).flatten(1))


def changed_in_passing(m: Functional, x: Tensor) -> Tensor:
    h = m.conv(x)
    F.relu(h, inplace=True)
    return m.head(h.flatten(1))


def branches(m: Functional, x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = -x
    return m.head(m.conv(x).flatten(1))


REFUSED = {
    "control flow on values": (Functional(branches), "Functional cannot be traced"),
    "a loop over samples": (
        Functional(lambda m, x: torch.stack([m.conv(y) for y in x])),
        "Functional cannot be traced",
    ),
    "a layer used twice": (Functional(lambda m, x: m.head((m.conv(x) + m.conv(x)).flatten(1))), "'conv' is used twice"),
    "a weight used directly": (
        Functional(lambda m, x: F.linear(x.flatten(1), m.head.weight)),
        "'head.weight' is a parameter",
    ),
    "a buffer added": (
        Functional(lambda m, x: m.head(m.conv(x).flatten(1)) + m.head.bias),
        "'head.bias' is a parameter",
    ),
    "grouped convolution of the input": (nn.Sequential(nn.Conv2d(2, 4, 1, groups=2)), "'0' convolves the raw input"),
    "transposed convolution": (tail(nn.ConvTranspose2d(4, 4, 1)), "'1' is a ConvTranspose2d"),
    "layer norm": (tail(nn.LayerNorm([4, 4, 4])), "'1' is a LayerNorm"),
    "instance norm": (tail(nn.InstanceNorm2d(4)), "'1' is a InstanceNorm2d"),
    "prelu": (tail(nn.PReLU()), "'1' is a PReLU"),
    "lstm": (nn.Sequential(nn.Linear(4, 4), nn.LSTM(4, 4), nn.Linear(4, 3)), "'1' is a LSTM"),
    "attention": (
        Functional(lambda m, x: m.head(m.attend(x, x, x)[0]), attend=nn.MultiheadAttention(4, 2)),
        "'attend' is a MultiheadAttention",
    ),
    "parametrised layer": (
        nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)), nn.ReLU(), nn.Linear(4, 3)),
        "'0' is a ParametrizedLinear",
    ),
    "lazy layer": (nn.Sequential(nn.LazyLinear(4), nn.ReLU(), nn.Linear(4, 3)), "'0' is a LazyLinear"),
    "a subclass that computes something else": (nn.Sequential(Doubled(4, 4), nn.Linear(4, 3)), "mul|parameter"),
    "shared weights": (tied(), "'2' shares its weights"),
    "adding the raw input": (
        Functional(lambda m, x: m.head((x + m.other(x)).flatten(1)), other=nn.Conv2d(2, 2, 1)),
        "'add' adds the raw input",
    ),
    "adding different widths": (
        Functional(lambda m, x: m.head((m.conv(x) + m.other(x)).flatten(1)), other=nn.Conv2d(2, 1, 3)),
        "'add' adds 4 channels and 1",
    ),
    "adding a number": (Functional(lambda m, x: m.head((m.conv(x) + 1).flatten(1))), "'add' adds something"),
    "a weighted addition": (
        Functional(lambda m, x: m.head(torch.add(m.conv(x), m.conv(x), alpha=2).flatten(1))),
        "conv|add",
    ),
    "multiplication": (Functional(lambda m, x: m.head((m.conv(x) * 2).flatten(1))), "'mul' multiplies something"),
    "subtraction": (Functional(lambda m, x: m.head((m.conv(x) - 1).flatten(1))), r"'sub' calls sub\(\)"),
    "concatenation": (Functional(lambda m, x: m.head(torch.cat([m.conv(x)], 1).flatten(1))), r"'cat' calls cat\(\)"),
    "transposition": (Functional(lambda m, x: m.head(m.conv(x).transpose(2, 3).flatten(1))), r"calls transpose\(\)"),
    "indexing": (Functional(lambda m, x: m.head(m.conv(x)[:, 0].flatten(1))), r"calls getitem\(\)"),
    "ending in softmax": (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3), nn.Softmax(1)), "'2' is a Softmax"),
    "ending in relu": (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3), nn.ReLU()), "does not end in a Linear"),
    "ending in a convolution": (nn.Sequential(nn.Conv2d(2, 3, 1), nn.Conv2d(3, 3, 1)), "does not end in a Linear"),
    "ending in a flatten": (nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 3), nn.Flatten()), "does not end in a Linear"),
    "ending in an addition": (
        Functional(lambda m, x: (lambda h: m.head(h) + m.other(h))(m.conv(x).flatten(1)), other=nn.Linear(64, 3)),
        "'add' ends the network",
    ),
    "two results": (Functional(lambda m, x: (m.head(m.conv(x).flatten(1)), x)), "does not end in a Linear"),
    "no hidden layer": (nn.Sequential(nn.Flatten(), nn.Linear(72, 3)), "no hidden layer"),
    "no layer at all": (nn.Sequential(nn.Flatten()), "does not end in a Linear"),
    "two inputs": (TwoInputs(), "takes 2 inputs"),
    "batch norm without statistics": (tail(nn.BatchNorm2d(4, track_running_stats=False)), "'1' keeps no running"),
    "batch norm of cumulative average": (tail(nn.BatchNorm2d(4, momentum=None)), "'1' keeps no running"),
    "circular padding": (
        tail(nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular")),
        "'1' has padding_mode='circular'",
    ),
    "flatten of samples": (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(0), nn.Linear(64, 3)),
        "'1' flattens dimensions 0",
    ),
    "flatten of space alone": (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(2), nn.Linear(16, 3)),
        "'1' flattens dimensions 2",
    ),
    "functional flatten of samples": (
        Functional(lambda m, x: m.head(m.conv(x).flatten())),
        "'flatten' flattens dimensions 0",
    ),
    "functional flatten of part": (
        Functional(lambda m, x: m.head(torch.flatten(m.conv(x), 1, 2)), head=nn.Linear(4, 3)),
        "'flatten' flattens dimensions 1 … 2",
    ),
    "view of another size": (Functional(lambda m, x: m.head(m.conv(x).view(x.size(1), -1))), "'view' reshapes"),
    "view of a number of samples": (Functional(lambda m, x: m.head(m.conv(x).view(8, -1))), "'view' reshapes"),
    "view to a map": (Functional(lambda m, x: m.head(m.conv(x).view(-1, 8, 8))), "'view' reshapes"),
    "mean of samples": (Functional(lambda m, x: m.head(m.conv(x).mean(0))), "'mean' takes a mean over 0"),
    "mean that keeps dimensions": (
        Functional(lambda m, x: m.head(m.conv(x).mean((2, 3), keepdim=True).flatten(1))),
        "'mean' takes a mean",
    ),
    "mean over half of space": (
        Functional(lambda m, x: m.head(m.conv(x).mean((2,)).flatten(1)), head=nn.Linear(16, 3)),
        "'head' expects 16",
    ),
    "a pool over units": (nn.Sequential(nn.Linear(4, 4), nn.MaxPool1d(3, 1, 1), nn.Linear(4, 3)), "'1' pools a vector"),
    "an average with another divisor": (tail(nn.AvgPool2d(1, divisor_override=2)), "'1' has divisor_override=2"),
    "a functional average with another divisor": (
        Functional(lambda m, x: m.head(F.avg_pool2d(m.conv(x), 1, divisor_override=3).flatten(1))),
        "divisor_override=3",
    ),
    "changed in place and read again": (
        Functional(changed_and_read, act=nn.ReLU(inplace=True)),
        "changes 'conv' in place",
    ),
    "changed in place in passing": (Functional(changed_in_passing), "changes 'conv' in place"),
    "a head that does not fit": (
        nn.Sequential(nn.Conv2d(2, 4, 3), nn.Flatten(), nn.Linear(63, 3)),
        "'2' expects 63 features but reads a multiple of 4",
    ),
    "a layer that does not fit": (
        nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(6, 3)),
        "'2' expects 6 features but reads 5",
    ),
    "channels that do not fit": (tail(nn.Conv2d(5, 4, 1)), "'1' expects 5 channels but reads 4"),
    "a norm that does not fit": (tail(nn.BatchNorm2d(8)), "'1' expects 8 channels but reads 4"),
    "a group norm that does not fit": (tail(nn.GroupNorm(2, 8)), "'1' expects 8 channels but reads 4"),
    "a group norm on a vector": (
        nn.Sequential(nn.Linear(4, 4), nn.GroupNorm(2, 4), nn.Linear(4, 3)),
        "'1' is a GroupNorm on a vector",
    ),
    "linear on a map": (nn.Sequential(nn.Conv2d(2, 4, 3), nn.Linear(4, 3)), "'1' is linear but reads a feature map"),
    "convolution on a vector": (
        nn.Sequential(nn.Flatten(), nn.Conv2d(2, 4, 3), nn.Linear(4, 3)),
        "'1' is a convolution but",
    ),
    "not a module": (lambda x: x, "must be an nn.Module"),
    "a class of module": (nn.Linear, "must be an nn.Module"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_grown_is_refused_with_its_name_and_the_reason(name):
    module, reason = REFUSED[name]
    with pytest.raises(NetworkError, match=reason):
        trace(module)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_a_layer_without_units_is_refused():
    with pytest.raises(NetworkError, match="'1' has 0 units; a layer starts with one or more"):
        trace(nn.Sequential(nn.Flatten(), nn.Linear(8, 0), nn.Linear(0, 3)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mlp(0, [3]), "mlp.inputs is 0; it must be at least 1"),
        (lambda: mlp(4, [3, 2.5]), r"mlp.hidden\[1\] is 2.5; it must be an integer"),
        (lambda: mlp(4, 3), "mlp.hidden is 3; it must be a list"),
        (lambda: mlp(4, [3] * 1001), "mlp.hidden is .*; it must be a list of 1 to 1000"),
        (lambda: lenet(channels=-1), "lenet.channels is -1; it must be at least 1"),
        (lambda: lenet(widths=[6, 16]), r"lenet.widths is \[6, 16\]; it must be four numbers"),
        (lambda: resnet(widths=[]), r"resnet.widths is \[\]; it must be a list"),
        (lambda: resnet(blocks=10**9), "resnet.blocks is 1000000000; it must be at most 333"),
    ],
)
def test_networks_of_impossible_sizes_are_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()
