"""Our own GPU kernels compute what PyTorch does in float64; and what decides where they run, on any machine."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from bocl.networks import own_kernels, products
from bocl.networks.architectures import lenet, resnet
from bocl.networks.attention import gates_of
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Layer, Norm, Source
from bocl.networks.norm_chains import norm_chains
from bocl.networks.norms import normalise_batch_chain
from bocl.networks.products import gated_product
from bocl.networks.trace import trace
from bocl.training.precision import repeatable_products

CLOSE = {"tf32": 3e-3, "bf16": 3e-2, "ieee": 1e-5}  # of a norm, relative
CONVOLUTIONS = [
    # kernel, stride, padding, in, out, height, width
    ((3, 3), (1, 1), (1, 1), 20, 33, 12, 15),
    ((3, 3), (2, 2), (1, 1), 37, 20, 16, 16),
    ((1, 1), (2, 2), (0, 0), 24, 40, 17, 16),
    ((2, 3), (3, 2), (1, 1), 20, 37, 14, 18),
    ((3, 3), (1, 2), (0, 2), 3, 130, 13, 6),
    ((5, 5), (1, 1), (0, 2), 1, 7, 40, 9),
]


def layer_of(kernel, stride, padding):
    return Layer("c", (0,), Source(0, 4), 0, bias=True, kernel=kernel, stride=stride, padding=padding, dilation=(1, 1))


def random(*shape, seed=0, low=None):
    generator = torch.Generator().manual_seed(seed + sum(shape))
    values = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return (values if low is None else values.abs() + low).requires_grad_()


def on_gpu(*tensors):
    return [None if each is None else each.detach().float().cuda().requires_grad_() for each in tensors]


def gradients(outputs, inputs):
    total = sum((out * random(*out.shape, seed=9).detach().to(out)).sum() for out in outputs)
    return torch.autograd.grad(total, inputs)


def assert_near(found, wanted, most):
    for one, other in zip(found, wanted, strict=True):
        assert one.shape == other.shape
        assert (one.double().cpu() - other).norm() <= most * other.norm()


@pytest.mark.gpu
@pytest.mark.parametrize("multiplied", ["tf32", "bf16", "ieee"])
@pytest.mark.parametrize("given", ["own", "own, gated", "own, gated alike", "shared"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding", "inputs", "units", "height", "width"), CONVOLUTIONS)
def test_a_convolution_on_a_gpu_is_one_in_float64(
    kernel, stride, padding, inputs, units, height, width, biased, given, multiplied
):
    count, samples = 3, 5
    x = random(1 if given == "shared" else count, samples, inputs, height, width)
    gates = random(count, 1 if given.endswith("alike") else samples, inputs, low=0.1) if "gated" in given else None
    weight, bias = random(count, units, inputs, *kernel), random(count, units) if biased else None
    gated_x = x.expand(count, -1, -1, -1, -1) * (1 if gates is None else gates[..., None, None])
    wanted = torch.stack(
        [F.conv2d(gated_x[at], weight[at], bias[at] if biased else None, stride, padding) for at in range(count)]
    )
    x_, gates_, weight_, bias_ = on_gpu(x, gates, weight, bias)
    x_.requires_grad_(given != "shared")  # input has no gradient
    layer = layer_of(kernel, stride, padding)

    def computed():
        precision = "tf32" if multiplied == "tf32" else "float32"
        with repeatable_products(precision), torch.autocast("cuda", torch.bfloat16, enabled=multiplied == "bf16"):
            return gated_product(layer, x_, gates_, weight_, bias_)

    found = computed()
    assert torch.equal(computed(), found)
    learnt = [each for each in (x_, gates_, weight_, bias_) if each is not None and each.requires_grad]
    inputs_of = [each for each in (x if given != "shared" else None, gates, weight, bias) if each is not None]
    assert_near([found, *gradients([found], learnt)], [wanted, *gradients([wanted], inputs_of)], CLOSE[multiplied])


@pytest.mark.gpu
def test_what_children_share_has_no_gradient():
    x, weight = random(1, 5, 4, 8, 8).float().detach().cuda().requires_grad_(), random(3, 6, 4, 3, 3).float().cuda()
    with pytest.raises(ValueError, match="has no gates and no gradient"):
        gated_product(layer_of((3, 3), (1, 1), (1, 1)), x, None, weight, None)


@pytest.mark.gpu
@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("rectifies", [False, True])
@pytest.mark.parametrize("size", [(4, 5, 20, 16, 16), (2, 7, 37, 9, 5), (1, 3, 130, 2, 2), (3, 64, 3, 33, 33)])
def test_a_batch_norm_on_a_gpu_is_one_in_float64(size, rectifies, affine, adds):
    count, _, channels = size[:3]
    norm = Norm("norm", (0,), Source(0, 4), kind="batch", affine=affine, eps=1e-5, momentum=0.1, num_groups=1)
    x, other = random(*size), random(*size, seed=1) if adds else None
    weight, bias = (random(count, channels, low=0.5), random(count, channels)) if affine else (None, None)
    running = random(count, channels).detach(), random(count, channels, low=0.1).detach()
    given = [each for each in (x, other, weight, bias) if each is not None]
    moved = [each.clone() for each in running]
    wanted, _ = normalise_batch_chain(norm, x + 3, other, *moved, weight, bias, rectifies=rectifies, training=True)
    moved_ = [each.float().cuda() for each in running]
    x_, other_, weight_, bias_ = on_gpu(x, other, weight, bias)
    found, means = normalise_batch_chain(
        norm, x_ + 3, other_, *moved_, weight_, bias_, rectifies=rectifies, training=True
    )
    learnt = [each for each in (x_, other_, weight_, bias_) if each is not None]
    outputs, expected = [found, means], [wanted, wanted.mean((3, 4))]
    assert_near([*outputs, *moved_], [*expected, *moved], 1e-5)
    assert_near(gradients(outputs, learnt), gradients(expected, given), 1e-4)
    with torch.no_grad():
        calm = normalise_batch_chain(norm, x_, other_, *moved_, weight_, bias_, rectifies=rectifies, training=False)
    wanted, _ = normalise_batch_chain(norm, x, other, *moved, weight, bias, rectifies=rectifies, training=False)
    assert_near(calm, [wanted, wanted.mean((3, 4))], 1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize(("count", "samples", "channels", "hidden"), [(2, 5, 20, 2), (3, 70, 80, 5), (1, 64, 130, 40)])
def test_gates_on_a_gpu_are_those_in_float64(count, samples, channels, hidden):
    v = random(count, samples, channels)
    names = ("reduce.weight", "reduce.bias", "expand.weight", "expand.bias")
    shapes = ((count, hidden, channels), (count, hidden), (count, channels, hidden), (count, channels))
    weights = {f"gate/{name}": random(*shape) for name, shape in zip(names, shapes, strict=True)}
    wanted = gates_of(v.unsqueeze(-1), weights, "gate")
    v_, *moved = on_gpu(v, *weights.values())
    found = gates_of(v_, dict(zip(weights, moved, strict=True)), "gate", means=v_)
    assert_near(
        [found, *gradients([found], [v_, *moved])], [wanted, *gradients([wanted], [v, *weights.values()])], 1e-5
    )


def deep_children(device, count=3):
    graph = trace(resnet(3, (5, 8, 9)))
    network = ExpandableNetwork(graph, device=device)
    network.commit(network.grow([graph.widths], 4, seeds=[0]).growth(0))
    widths = [(1, 2, 3, 1, 2, 4), (2, 0, 1, 3, 1, 1), (0, 0, 0, 0, 0, 0)][:count]
    return network.grow(widths, 4, seeds=range(count), pad_to=(2, 3, 3, 3, 4, 4), reads=(0,))


def learns_something(device, precision):
    """Return logits, running statistics and gradients of a deep stack, in training."""
    children = deep_children(device)
    x = torch.randn(6, 3, 12, 10, generator=torch.Generator().manual_seed(0)).to(device)
    with repeatable_products(precision), torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
        logits = children(x)
        found = torch.autograd.grad(logits.float().square().sum(), list(children.parameters.values()))
    return [logits.detach(), *map(torch.clone, children.buffers.values())], found


def assert_close(found, wanted, most):
    for one, other in zip(found, wanted, strict=True):
        assert (one.cpu().double() - other.double()).norm() <= most * max(other.double().norm(), 0.1)


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "most"), [("float32", 1e-4), ("tf32", 5e-3), ("bf16", 5e-2)])
def test_a_deep_stack_on_a_gpu_computes_what_pytorch_does(monkeypatch, precision, most):
    monkeypatch.setattr(products, "_SLOW_TO_LEARN", ())
    values, slopes = learns_something("cuda", precision)
    monkeypatch.setattr(own_kernels, "_run_on", lambda _device: False)
    wanted, wanted_slopes = learns_something("cpu", "float32")
    assert_close(values, wanted, most)
    if precision == "float32":  # what rounding does to a ReLU near 0 moves gradients by a tenth otherwise
        assert_close(slopes, wanted_slopes, 10 * most)


def chains_of(module):
    graph = trace(module)
    chains, inside = norm_chains(graph)
    assert not inside & set(chains)
    return {end: (chain.norm.name, chain.other is not None, chain.rectifies) for end, chain in chains.items()}


def test_chains_are_norms_with_what_alone_reads_them():
    assert chains_of(resnet(3, (5, 6))) == {
        3: ("norm", False, True),
        6: ("stage1_1.norm1", False, True),
        11: ("stage1_1.norm2", True, True),
        14: ("stage2_1.norm1", False, True),
        19: ("stage2_1.norm2", True, True),
    }
    assert (
        chains_of(lenet())
        == chains_of(nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)))
        == {}
    )


class Pooled(nn.Module):
    """A norm of one pixel, to which a whole image is added, and the other way round."""

    def __init__(self, mirrored):
        super().__init__()
        self.mirrored, self.pool = mirrored, nn.AdaptiveAvgPool2d(1)
        self.stem, self.conv, self.norm = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 1), nn.BatchNorm2d(6)
        self.relu, self.last, self.flatten, self.head = (
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(6, 4),
        )

    def forward(self, x):
        x = self.stem(x)
        small = self.pool(x)
        y = self.norm(self.conv(x)) + small if self.mirrored else self.norm(self.conv(small)) + x
        return self.head(self.flatten(self.last(self.relu(y))))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("module", [Pooled(False), Pooled(True), resnet(3, (5, 8, 9))])
def test_chains_compute_what_their_steps_do(module, device):
    """What a GPU computes in chains, a CPU can too, without kernels."""
    graph = trace(module)
    x = torch.randn(6, 3, 12, 10, generator=torch.Generator().manual_seed(0))

    def children(place):
        network = ExpandableNetwork(graph, device=place)
        network.commit(network.grow([graph.widths], 4, seeds=[0]).growth(0))
        most = tuple(2 + number % 2 for number, _ in enumerate(graph.groups))
        return network.grow([most, tuple(1 for _ in most)], 4, seeds=[1, 2], pad_to=most, reads=(0,))

    step_by_step, in_chains = children("cpu"), children(device)
    in_chains._chains, in_chains._inside = norm_chains(graph)
    in_chains._prefix = (0, 0)
    assert in_chains._chains
    losses = []
    for one, place in ((step_by_step, "cpu"), (in_chains, device)):
        losses.append(one(x.to(place)).square().sum())
        losses[-1].backward()
    torch.testing.assert_close(losses[1].cpu(), losses[0])
    for name, parameter in step_by_step.parameters.items():
        torch.testing.assert_close(in_chains.parameters[name].grad.cpu(), parameter.grad, rtol=1e-3, atol=1e-4)


def test_a_gpu_for_which_kernels_cannot_be_built_does_without(monkeypatch, caplog):
    def no_compiler(name):
        raise RuntimeError("no C compiler")

    monkeypatch.setattr(own_kernels, "import_module", no_compiler)
    own_kernels._run_on.cache_clear()
    assert not own_kernels._run_on(torch.device("cuda"))
    assert not own_kernels._run_on(torch.device("cuda"))
    own_kernels._run_on.cache_clear()
    assert caplog.messages == ["our GPU kernels do not run here, PyTorch's are used: RuntimeError: no C compiler"]


@pytest.mark.parametrize(("channels", "ours"), [(5, False), (8, True)])
def test_values_lie_channels_last_with_room_for_whole_groups(channels, ours):
    layout = runpy.run_path(str(Path(own_kernels.__file__).with_name("kernels") / "layout.py"))
    x = torch.randn(2, 3, channels, 4, 6)
    kept = layout["stored"](x)
    assert kept.shape == (2, 3, 4, 6, 8)
    assert torch.equal(layout["as_values"](kept, channels), x)
    assert not kept[..., channels:].any()
    again = layout["stored"](layout["as_values"](kept, channels))
    assert again.data_ptr() == kept.data_ptr()
    assert torch.equal(again, kept)
    assert (layout["stored"](x.contiguous(memory_format=torch.contiguous_format)).data_ptr() == x.data_ptr()) is False
    dense = kept[..., :channels].clone().permute(0, 1, 4, 2, 3)
    assert (layout["stored"](dense).data_ptr() == dense.data_ptr()) is ours
