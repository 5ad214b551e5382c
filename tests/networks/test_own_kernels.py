"""Our own GPU kernels compute what PyTorch does in float64; and what decides where they run, on any machine."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from bocl.networks import own_kernels
from bocl.networks.architectures import lenet, resnet
from bocl.networks.attention import gates_of
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Layer, Norm, Source
from bocl.networks.norm_chains import norm_chains
from bocl.networks.norms import normalise_batch_chain
from bocl.networks.products import gated_product
from bocl.networks.trace import trace
from bocl.training.precision import repeatable_products

CLOSE = {"tf32": 3e-3, "bf16": 3e-2}  # of a norm, relative
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
@pytest.mark.parametrize("products", ["tf32", "bf16"])
@pytest.mark.parametrize("gated", [False, True, "all samples alike"])
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding", "inputs", "units", "height", "width"), CONVOLUTIONS)
def test_a_convolution_on_a_gpu_is_one_in_float64(
    kernel, stride, padding, inputs, units, height, width, shared, biased, gated, products
):
    count, samples = 3, 5
    x = random(1 if shared else count, samples, inputs, height, width)
    gates = random(count, 1 if gated == "all samples alike" else samples, inputs, low=0.1) if gated else None
    weight, bias = random(count, units, inputs, *kernel), random(count, units) if biased else None
    given = [each for each in (x, gates, weight, bias) if each is not None]
    gated_x = x.expand(count, -1, -1, -1, -1) * (1 if gates is None else gates[..., None, None])
    wanted = torch.stack(
        [F.conv2d(gated_x[at], weight[at], bias[at] if biased else None, stride, padding) for at in range(count)]
    )
    x_, gates_, weight_, bias_ = on_gpu(x, gates, weight, bias)
    layer = layer_of(kernel, stride, padding)
    with repeatable_products("tf32"), torch.autocast("cuda", torch.bfloat16, enabled=products == "bf16"):
        twice = [gated_product(layer, x_, gates_, weight_, bias_) for _ in range(2)]
    assert torch.equal(*twice)
    learnt = [each for each in (x_, gates_, weight_, bias_) if each is not None]
    if shared:  # input, which has no gradient: that of every child would have to be added up
        given, learnt = given[1:], learnt[1:]
        x_.requires_grad_(False)
        with repeatable_products("tf32"), torch.autocast("cuda", torch.bfloat16, enabled=products == "bf16"):
            twice[0] = gated_product(layer, x_, gates_, weight_, bias_)
    if shared and gated:
        given, learnt = given[1:], learnt[1:]  # nor are there gates before the input
    found = [twice[0], *gradients([twice[0]], learnt)]
    assert_near(found, [wanted, *gradients([wanted], given)], CLOSE[products])


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
    wanted, _ = normalise_batch_chain(norm, x + 3, other, *moved, weight, bias, rectifies, training=True)
    there = [None if each is None else each.detach() for each in (*running,)]
    moved_ = [each.float().cuda() for each in there]
    x_, other_, weight_, bias_ = on_gpu(x, other, weight, bias)
    found, means = normalise_batch_chain(norm, x_ + 3, other_, *moved_, weight_, bias_, rectifies, training=True)
    learnt = [each for each in (x_, other_, weight_, bias_) if each is not None]
    outputs, expected = [found, means], [wanted, wanted.mean((3, 4))]
    assert_near([*outputs, *moved_], [*expected, *moved], 1e-5)
    assert_near(gradients(outputs, learnt), gradients(expected, given), 1e-4)
    calm = normalise_batch_chain(norm, x_, other_, *moved_, weight_, bias_, rectifies, training=False)
    wanted, _ = normalise_batch_chain(norm, x, other, *moved, weight, bias, rectifies, training=False)
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


@pytest.mark.gpu
@pytest.mark.parametrize(("precision", "most"), [("tf32", 1e-2), ("bf16", 6e-2)])
def test_a_deep_stack_on_a_gpu_computes_what_pytorch_does(monkeypatch, precision, most):
    x = torch.randn(6, 3, 12, 10, generator=torch.Generator().manual_seed(0))
    results = []
    for runs in (True, False):
        if not runs:
            monkeypatch.setattr(own_kernels, "_can_run_on", lambda _: False)
        children = deep_children("cuda" if runs else "cpu")
        with repeatable_products(precision), torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            logits = children(x.to(children.parameters["head/weight"].device))
        found = torch.autograd.grad(logits.float().square().sum(), list(children.parameters.values()))
        results.append(
            [logits.detach().cpu(), *(each.cpu() for each in found), *map(torch.clone, children.buffers.values())]
        )
    for one, other in zip(*results, strict=True):
        assert (one.cpu().double() - other.cpu().double()).norm() <= most * max(other.double().norm(), 0.1)


def test_chains_are_norms_with_what_alone_reads_them():
    graph = trace(resnet(3, (5, 6)))
    chains, inside = norm_chains(graph)
    assert len(chains) == len(graph.norms)
    assert {
        end: (chain.norm.name, chain.add is not None, chain.function is not None) for end, chain in chains.items()
    } == {
        3: ("norm", False, True),
        6: ("stage1_1.norm1", False, True),
        11: ("stage1_1.norm2", True, True),
        14: ("stage2_1.norm1", False, True),
        19: ("stage2_1.norm2", True, True),
    }
    assert not inside & set(chains)
    assert norm_chains(trace(lenet())) == ({}, frozenset())


def test_chains_compute_what_their_steps_do(monkeypatch):
    """What a GPU computes in chains, a CPU can too, without kernels."""
    x = torch.randn(6, 3, 12, 10, generator=torch.Generator().manual_seed(0))
    step_by_step, in_chains = deep_children("cpu"), deep_children("cpu")
    in_chains._chains, in_chains._inside = norm_chains(in_chains.graph)
    in_chains._prefix = (0, 0)
    for children in (step_by_step, in_chains):
        children.loss = children(x).square().sum()
        children.loss.backward()
    torch.testing.assert_close(in_chains.loss, step_by_step.loss)
    for name, parameter in step_by_step.parameters.items():
        torch.testing.assert_close(in_chains.parameters[name].grad, parameter.grad, rtol=1e-3, atol=1e-4)
