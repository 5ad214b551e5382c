"""Batch norm of K children at once is each child's own."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from bocl.networks.graph import Norm, Source
from bocl.networks.norms import normalise_batch
from bocl.networks.stack_layout import children_first

NORM = Norm("norm", (0,), Source(0, 4), "batch", True, 1e-5, momentum=0.1)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("shape", [(3, 6, 4), (3, 6, 4, 5), (3, 6, 4, 5, 5), (3, 1, 4, 2, 2)])
@pytest.mark.parametrize("affine", ["both", "weight", "none"])
def test_a_stack_is_normalised_as_each_child_alone(shape, affine, training):
    generator = torch.Generator().manual_seed(0)
    draw = lambda *size: torch.randn(*size, generator=generator, dtype=torch.float64)  # noqa: E731
    x, gradient = draw(*shape).requires_grad_(), draw(*shape)
    mean, var = draw(3, 4), draw(3, 4).square()
    weight = draw(3, 4).requires_grad_() if affine != "none" else None
    bias = draw(3, 4).requires_grad_() if affine == "both" else None
    own = mean.clone(), var.clone()
    out = normalise_batch(NORM, x, *own, weight, bias, training=training)
    leaves = [leaf for leaf in (x, weight, bias) if leaf is not None]
    found = torch.autograd.grad(out, leaves, gradient)
    alone = []
    for child in range(3):
        rows = [None if part is None else part[child] for part in (weight, bias)]
        alone.append(F.batch_norm(x[child], mean[child], var[child], *rows, training, 0.1, 1e-5))
    torch.testing.assert_close(out, torch.stack(alone))
    for one, other in zip(found, torch.autograd.grad(torch.stack(alone), leaves, gradient), strict=True):
        torch.testing.assert_close(one, other)
    for one, other in zip(own, (mean, var), strict=True):  # functional batch_norm has updated its own in place
        torch.testing.assert_close(one, other)


def test_a_single_value_leaves_the_statistics_finite():
    x = torch.ones(2, 1, 3, 1, 1)
    mean, var = torch.zeros(2, 3), torch.ones(2, 3)
    assert normalise_batch(NORM, x, mean, var, None, None, training=True).isfinite().all()
    assert var.isfinite().all()


def test_images_that_lie_channels_last_are_not_copied():
    flat = torch.randn(4, 6, 5, 5).contiguous(memory_format=torch.channels_last)
    out = normalise_batch(NORM, children_first(flat, 2), torch.zeros(2, 3), torch.ones(2, 3), None, None, training=True)
    assert out.permute(1, 3, 4, 0, 2).is_contiguous()
