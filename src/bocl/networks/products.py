"""The product of a layer for K children at once, in the form that is fastest for its shape and device.

    weight (K, out, in, *kernel), bias (K, out), x (K, n, in, *space) or, shared by all children, (n, in, *space)

Linear layers are one batched product. A convolution of several children is a grouped one, on a CPU with channels last
in memory; cuDNN runs that group by group, so on a GPU the windows are laid out (im2col) and multiplied as a batch
instead, or, in networks with batch norm, read where they lie. The measurements behind the choice are in
replication/README.md.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from bocl.networks.compact import CONVOLUTIONS
from bocl.networks.graph import Layer
from bocl.networks.own_kernels import has_matrix_units, kernels_of
from bocl.networks.stack_layout import children_first, children_in_channels

_MOST_TAPS = 31  # of ``gated_product``, whose kernel has a bit for each
_MOST_CHANNELS, _FEWEST_PIXELS = 128, 16
_SLOW_TO_LEARN = ("ieee",)  # products in which training with it is slower than without; a test empties this


def plain_product(layer: Layer, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int = 1) -> Tensor:
    """Return one ordinary product of x (n, in, *space) and weight (out, in, *kernel)."""
    if not layer.kernel:
        return F.linear(x, weight, bias)
    convolve, stride = CONVOLUTIONS[len(layer.kernel)], layer.stride
    if _skips_pixels(layer) and not x.is_cuda:
        pixels: Any = (..., *(slice(None, None, step) for step in stride))
        x, stride = x[pixels], (1,) * len(stride)
    return convolve(x, weight, bias, stride, layer.padding, layer.dilation, groups)


def _skips_pixels(layer: Layer) -> bool:
    """Return whether the layer reads only every s-th pixel: a strided convolution of kernel 1, as in a shortcut.

    oneDNN's gradient for such a weight writes past its memory where an image of few channels has them last and several
    threads share the batch (github.com/uxlfoundation/oneDNN/issues/6035). So the pixels are picked out first and
    convolved without a stride.
    """
    return (
        set(layer.kernel) == {1} and set(layer.stride) != {1} and layer.padding in ("valid", (0,) * len(layer.kernel))
    )


def own_product(layer: Layer, x: Tensor, weight: Tensor, bias: Tensor | None, groups: int = 1) -> Tensor:
    """Return the product of each child's weight and its own x: (K, n, out, *space); ``groups`` of each child."""
    count, samples = x.shape[:2]
    if not layer.kernel:
        if bias is None:
            return torch.bmm(x, weight.mT)
        return torch.baddbmm(bias.unsqueeze(1), x, weight.mT)
    if count > 1 and groups == 1 and _lays_out_windows(layer, x):
        flat: Tensor = _WindowedProduct.apply(x.flatten(0, 1), weight, bias, layer)  # type: ignore[no-untyped-call]
        return flat.reshape(count, samples, *flat.shape[1:])
    flat_bias = None if bias is None else bias.flatten()
    out = plain_product(layer, children_in_channels(x), weight.flatten(0, 1), flat_bias, groups=count * groups)
    return children_first(out, count)


def shared_product(layer: Layer, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return every child's product with one shared x, computed as a single one: (K, n, out, *space)."""
    count = weight.shape[0]
    flat_weight, flat_bias = weight.flatten(0, 1), None if bias is None else bias.flatten()
    if _lays_out_windows(layer, x):
        lead_bias = None if flat_bias is None else flat_bias.unsqueeze(0)
        out: Tensor = _WindowedProduct.apply(x, flat_weight.unsqueeze(0), lead_bias, layer)  # type: ignore[no-untyped-call]
    else:
        out = plain_product(layer, _channels_last(x), flat_weight, flat_bias)
    return children_first(out, count)


def is_one_kernel(layer: Layer, x: Tensor) -> bool:
    """Whether ``gated_product`` computes this layer of x (…, in, H, W) now.

    It is for GPUs and products in TF32 or bf16. In float32 it serves only where nothing is learnt: it is slow, but
    takes little memory. It has been measured with so many channels and pixels.
    """
    if not _lays_out_windows(layer, x) or prod(layer.kernel) > _MOST_TAPS or not has_matrix_units(x):
        return False
    if x.shape[-3] > _MOST_CHANNELS or prod(_output_size(layer, x)) < _FEWEST_PIXELS:
        return False
    if _products() in _SLOW_TO_LEARN and torch.is_grad_enabled():
        return False
    return kernels_of("convolution", x) is not None


def gated_product(layer: Layer, x: Tensor, gates: Tensor | None, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Return the product of each child's weight and x ⊙ gates, by a kernel that writes out neither gates nor windows.

    x      (K, n, in, H, W), or (1, n, in, H, W), which all children share
    gates  (K, n, in) or (K, 1, in); None: ungated
    """
    found: Tensor = kernels_of("convolution", x).convolution(layer, x, gates, weight, bias, _products())
    return found


def _products() -> str:
    """Return how a GPU multiplies now; `ieee` is float32."""
    if torch.is_autocast_enabled("cuda"):
        return "bf16"
    return "tf32" if torch.backends.cuda.matmul.allow_tf32 else "ieee"


def _channels_last(x: Tensor) -> Tensor:
    """Lay images out as a CPU convolves and pools them fastest."""
    return x if x.is_cuda or x.dim() != 4 else x.contiguous(memory_format=torch.channels_last)


def _lays_out_windows(layer: Layer, x: Tensor) -> bool:
    return x.is_cuda and len(layer.kernel) == 2 and layer.dilation == (1, 1) and not isinstance(layer.padding, str)


class _WindowedProduct(torch.autograd.Function):
    """A 2-d convolution of G weights, each on its own share of the samples, by laying out the windows.

        x (G·n, in, H, W), weight (G, out, in, kh, kw), bias (G, out) → (G·n, out, H', W')

    Forward: windows (G·n, in·kh·kw, H'·W') times the weight. Backward: two batched products and one fold.
    """

    @staticmethod
    @torch.amp.custom_fwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, layer: Layer) -> Tensor:
        groups, out = weight.shape[:2]
        windows, shape = _windows(x, layer)
        per_group = len(x) // groups
        flat = weight.reshape(groups, 1, out, -1)
        spread = flat.expand(groups, per_group, *flat.shape[2:]).reshape(len(x), out, -1)
        if bias is None:
            result = torch.bmm(spread, windows)
        else:
            each = bias.unsqueeze(1).expand(groups, per_group, out).reshape(len(x), out, 1)
            result = torch.baddbmm(each.to(x.dtype), spread, windows)
        result = result.view(len(x), out, *shape)
        ctx.save_for_backward(windows, spread)
        ctx.layer, ctx.groups, ctx.input_shape, ctx.weight_shape = layer, groups, x.shape, weight.shape
        return result

    @staticmethod
    @torch.amp.custom_bwd(device_type="cuda")  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None]:
        windows, spread = ctx.saved_tensors
        gradient = gradients[0].flatten(2).contiguous()  # (G·n, out, H'·W')
        samples = len(gradient)
        for_weight = torch.bmm(gradient, windows.mT).view(ctx.groups, samples // ctx.groups, -1).sum(1)
        for_bias = None
        if ctx.needs_input_grad[2]:
            for_bias = gradient.view(ctx.groups, -1, *gradient.shape[1:]).sum((1, 3))
        for_x = None
        if ctx.needs_input_grad[0]:
            for_x = _fold(torch.bmm(spread.mT, gradient), ctx.input_shape, gradients[0].shape[2:], ctx.layer)
        return for_x, for_weight.view(ctx.weight_shape), for_bias, None


def _windows(x: Tensor, layer: Layer) -> tuple[Tensor, tuple[int, int]]:
    """Return the windows of x (n, in, H, W) as (n, in·kh·kw, H'·W'), and (H', W')."""
    pad_h, pad_w = _padding(layer)
    high, wide = _output_size(layer, x)
    kernels = kernels_of("windows", x)
    if kernels is not None:
        return kernels.windows(x, (high, wide), layer), (high, wide)
    if pad_h or pad_w:
        x = F.pad(x, (pad_w, pad_w, pad_h, pad_h))
    views = x.unfold(2, layer.kernel[0], layer.stride[0]).unfold(3, layer.kernel[1], layer.stride[1])
    return views.permute(0, 1, 4, 5, 2, 3).reshape(len(x), -1, high * wide), (high, wide)


def _fold(windows: Tensor, shape: tuple[int, ...], out: tuple[int, ...], layer: Layer) -> Tensor:
    """Add windows (n, in·kh·kw, H'·W') up where they came from, into ``shape`` (n, in, H, W): the adjoint of _windows.

    First along the width, then along the height: kw + kh additions of whole planes instead of kh·kw.
    """
    kernels = kernels_of("windows", windows)
    if kernels is not None:
        added: Tensor = kernels.fold(windows, shape, out, layer)
        return added
    samples, channels, height, width = shape
    (kernel_h, kernel_w), (stride_h, stride_w), (pad_h, pad_w) = layer.kernel, layer.stride, _padding(layer)
    high, wide = out
    parts = windows.view(samples, channels, kernel_h, kernel_w, high, wide)
    rows = windows.new_zeros(samples, channels, kernel_h, high, width + 2 * pad_w)
    for column in range(kernel_w):
        rows[..., column : column + stride_w * (wide - 1) + 1 : stride_w] += parts[:, :, :, column]
    folded = windows.new_zeros(samples, channels, height + 2 * pad_h, width + 2 * pad_w)
    for row in range(kernel_h):
        folded[:, :, row : row + stride_h * (high - 1) + 1 : stride_h] += rows[:, :, row]
    return folded[:, :, pad_h : pad_h + height, pad_w : pad_w + width]


def _output_size(layer: Layer, x: Tensor) -> tuple[int, int]:
    """Return (H', W') for x (…, H, W)."""
    high, wide = (
        (size + 2 * pad - kernel) // stride + 1
        for size, pad, kernel, stride in zip(x.shape[-2:], _padding(layer), layer.kernel, layer.stride, strict=True)
    )
    return high, wide


def _padding(layer: Layer) -> tuple[int, int]:
    height, width = (int(size) for size in layer.padding)  # a word such as "same" is not laid out
    return height, width
