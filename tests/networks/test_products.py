"""The forms a product can take give the same product."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

from bocl.networks import own_kernels, products
from bocl.networks.graph import Layer, Source

CONVOLUTIONS = [
    # kernel, stride, padding, height, width
    ((3, 3), (1, 1), (0, 0), 7, 8),
    ((5, 3), (1, 1), (0, 1), 8, 6),
    ((3, 3), (2, 2), (1, 1), 8, 8),
    ((2, 2), (3, 2), (0, 0), 9, 7),
    ((1, 1), (2, 2), (0, 0), 6, 6),
]


def layer_of(kernel, stride, padding):
    return Layer(
        "conv", (0,), Source(0, 4), 0, bias=True, kernel=kernel, stride=stride, padding=padding, dilation=(1, 1)
    )


def random(*shape, seed=0):
    tensor = torch.randn(*shape, generator=torch.Generator().manual_seed(seed + len(shape)), dtype=torch.float64)
    return tensor.requires_grad_()


def gradients(out, *inputs):
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64).to(out)
    return torch.autograd.grad((out * weights).sum(), inputs)


@pytest.mark.parametrize(("kernel", "stride", "padding", "height", "width"), CONVOLUTIONS)
@pytest.mark.parametrize("count", [1, 3])
def test_windows_laid_out_are_a_convolution(monkeypatch, kernel, stride, padding, height, width, count):
    layer = layer_of(kernel, stride, padding)
    x, weight, bias = random(count, 5, 4, height, width), random(count, 6, 4, *kernel), random(count, 6)
    grouped = products.own_product(layer, x, weight, bias)
    monkeypatch.setattr(products, "_lays_out_windows", lambda _layer, _x: True)
    laid_out = products.own_product(layer, x, weight, bias)
    torch.testing.assert_close(laid_out, grouped, rtol=1e-12, atol=1e-12)
    for one, other in zip(gradients(laid_out, x, weight, bias), gradients(grouped, x, weight, bias), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(("kernel", "stride", "padding"), [((1, 1), (2, 3), (0, 0)), ((1, 1), (2, 2), "valid")])
def test_skipped_pixels_are_picked_out_and_never_strided_over(monkeypatch, kernel, stride, padding, groups):
    strides, convolve = [], F.conv2d

    def noting(x, weight, bias, stride, *others):
        strides.append(stride)
        return convolve(x, weight, bias, stride, *others)

    monkeypatch.setitem(products.CONVOLUTIONS, 2, noting)
    x, weight, bias = random(7, 4, 8, 9), random(6, 4 // groups, *kernel), random(6)
    found = products.plain_product(layer_of(kernel, stride, padding), x, weight, bias, groups)
    wanted = convolve(x, weight, bias, stride, padding, groups=groups)
    assert strides == [(1, 1)]
    for one, other in zip(
        (found, *gradients(found, x, weight, bias)), (wanted, *gradients(wanted, x, weight, bias)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kernel", "stride", "padding"), [((1, 1), (2, 2), (1, 1)), ((3, 1), (2, 2), (0, 0))])
def test_a_stride_that_skips_nothing_alone_is_left_to_pytorch(kernel, stride, padding):
    x, weight, bias = random(7, 4, 8, 9), random(6, 4, *kernel), random(6)
    found = products.plain_product(layer_of(kernel, stride, padding), x, weight, bias)
    assert torch.equal(found, F.conv2d(x, weight, bias, stride, padding))


def test_the_gradient_of_a_narrow_shortcut_stays_within_its_memory():
    """In a process of its own, which dies where the gradient is computed over a stride."""
    script = """
import torch
from bocl.networks.graph import Layer, Source
from bocl.networks.products import shared_product
torch.set_num_threads(2)
form = dict(kernel=(1, 1), stride=(2, 2), padding=(0, 0), dilation=(1, 1))
layer = Layer("shortcut", (0,), Source(0, 8), 0, bias=False, **form)
weight = torch.randn(1, 16, 8, 1, 1, requires_grad=True)
for _ in range(5):
    shared_product(layer, torch.randn(7, 8, 32, 32), weight, None).sum().backward()
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("laid_out", [False, True])
@pytest.mark.parametrize(("kernel", "stride", "padding", "height", "width"), CONVOLUTIONS)
def test_a_shared_input_is_the_same_input_for_every_child(
    monkeypatch, kernel, stride, padding, height, width, laid_out
):
    layer = layer_of(kernel, stride, padding)
    x, weight, bias = random(5, 4, height, width), random(3, 6, 4, *kernel), random(3, 6)
    separate = products.own_product(layer, x.expand(3, *x.shape), weight, bias)
    monkeypatch.setattr(products, "_lays_out_windows", lambda _layer, _x: laid_out)
    shared = products.shared_product(layer, x, weight, bias)
    torch.testing.assert_close(shared, separate, rtol=1e-12, atol=1e-12)
    for one, other in zip(gradients(shared, x, weight, bias), gradients(separate, x, weight, bias), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


@pytest.mark.gpu
@pytest.mark.parametrize(("kernel", "stride", "padding", "height", "width"), CONVOLUTIONS)
@pytest.mark.parametrize("ours", [False, True])
def test_windows_on_a_gpu_are_a_convolution_in_float64(monkeypatch, kernel, stride, padding, height, width, ours):
    layer = layer_of(kernel, stride, padding)
    x, weight, bias = random(3, 5, 4, height, width), random(3, 6, 4, *kernel), random(3, 6)
    wanted = products.own_product(layer, x, weight, bias)
    on_gpu = [tensor.detach().float().cuda().requires_grad_() for tensor in (x, weight, bias)]
    if not ours:
        monkeypatch.setattr(own_kernels, "_run_on", lambda _device: False)
    found = products.own_product(layer, *on_gpu)
    pairs = zip((found, *gradients(found, *on_gpu)), (wanted, *gradients(wanted, x, weight, bias)), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one.double().cpu(), other, rtol=1e-4, atol=1e-4)
