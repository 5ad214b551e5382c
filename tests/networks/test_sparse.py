"""Proximal steps, the reached sub-network, and the masks of what moves."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from network_examples import conv_net, small_mlp
from scipy.optimize import minimize, minimize_scalar
from torch import nn

from bocl.networks.architectures import mlp
from bocl.networks.growth import GrowthSpace, initialise
from bocl.networks.sparse import (
    masks_of_new,
    masks_within,
    reached_units,
    shrink_groups,
    shrink_units,
    soft_threshold,
    unit_norms,
)
from bocl.networks.trace import trace


def tensors_of(module: nn.Module, dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    graph = trace(module)
    return initialise(GrowthSpace.first(graph, 3), graph.widths, seed=1, dtype=dtype).tensors


@pytest.mark.parametrize("w", [-2.0, -0.3, 0.0, 0.25, 0.3, 1.7])
@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
def test_a_soft_threshold_minimises_its_objective(w, threshold):
    found = minimize_scalar(lambda v: 0.5 * (v - w) ** 2 + threshold * abs(v), tol=1e-12)
    assert soft_threshold(torch.tensor(w), threshold).item() == pytest.approx(found.x, abs=1e-6)


STEPS = {"alike": [0.7, 0.7, 0.7], "unlike": [0.1, 2.0, 0.5], "one without end": [0.3, 1e9, 0.2]}


@pytest.mark.parametrize("coefficient", [0.1, 0.5, 2.0, 40.0])
@pytest.mark.parametrize("steps", STEPS.values(), ids=STEPS)
def test_a_group_step_minimises_its_objective(coefficient, steps):
    w, s = np.array([0.9, -1.2, 0.4]), np.array(steps)
    found = minimize(
        lambda v: coefficient * np.linalg.norm(v) + ((v - w) ** 2 / (2 * s)).sum(),
        w / 2,
        method="Nelder-Mead",
        options={"xatol": 1e-10, "fatol": 1e-15, "maxiter": 10_000, "maxfev": 10_000},
    )
    stepped = shrink_groups(torch.tensor(w)[None], torch.tensor(s)[None], coefficient)[0]
    assert stepped.tolist() == pytest.approx(found.x, abs=1e-5)
    assert (stepped == 0).all() == (np.linalg.norm(w / s) <= coefficient)  # exactly zero, where zero is best


def test_a_group_step_is_exact_whatever_adam_makes_of_its_steps():
    draw = torch.Generator().manual_seed(0)
    w = torch.randn(50, 20, generator=draw, dtype=torch.float64)
    s = 10 ** (12 * torch.rand(50, 20, generator=draw, dtype=torch.float64) - 6)
    for coefficient in (1e-4, 1.0, 1e4):
        v = shrink_groups(w, s, coefficient)
        zero = (w / s).norm(dim=1) <= coefficient
        assert torch.equal(zero, ~v.any(1))
        slope = ((v - w) / s + coefficient * v / v.norm(dim=1, keepdim=True))[~zero]
        assert (slope.abs() / (w / s)[~zero].abs()).max() < 1e-9


def test_a_group_of_zeros_stays():
    assert not shrink_groups(torch.zeros(2, 3), torch.ones(2, 3), 0.3).any()


def test_both_steps_together_minimise_the_sparse_group_objective():
    graph, l1, lasso, size = trace(mlp(2, [2], 3)), 0.3, 0.5, 0.5
    tensors = tensors_of(mlp(2, [2], 3), torch.float64)
    weight, bias = tensors["layer/fc1/rows"].clone(), tensors["layer/fc1/bias"].clone()
    steps = {name: torch.full_like(tensor, size) for name, tensor in tensors.items()}
    steps["layer/fc1/rows"][:, 1] = 0.2
    tensors["layer/fc1/rows"] = soft_threshold(weight, l1 * steps["layer/fc1/rows"])
    shrink_units(graph, tensors, steps, (0,), lasso)
    for unit in range(2):
        start = np.array([*weight[unit].tolist(), bias[unit].item()])
        found = minimize(
            lambda v, w=start: (
                ((v - w) ** 2 / [2 * size, 0.4, 2 * size]).sum() + l1 * np.abs(v[:2]).sum() + lasso * np.linalg.norm(v)
            ),
            start / 2,
            method="Nelder-Mead",
            options={"xatol": 1e-10, "fatol": 1e-15, "maxiter": 10_000},
        )
        stepped = [*tensors["layer/fc1/rows"][unit].tolist(), tensors["layer/fc1/bias"][unit].item()]
        assert stepped == pytest.approx(found.x, abs=1e-5)


def test_a_unit_is_a_filter_with_its_bias_scale_and_shift():
    module = conv_net(nn.BatchNorm2d)
    graph, tensors = trace(module), tensors_of(module)
    parts = [tensors["layer/0/rows"].flatten(1), tensors["layer/0/bias"][:, None]]
    parts += [tensors["norm/1/weight"][:, None], tensors["norm/1/bias"][:, None]]
    assert torch.allclose(unit_norms(graph, tensors, 0), torch.cat(parts, 1).norm(dim=1))
    before = {name: tensor.clone() for name, tensor in tensors.items()}
    shrink_units(graph, tensors, {name: torch.ones_like(t) for name, t in tensors.items()}, (3, 3, 5), 1e9)
    for name in ("layer/0/rows", "layer/0/bias", "norm/1/weight", "norm/1/bias"):
        assert torch.equal(tensors[name][:3], before[name][:3])
        assert not tensors[name][3:].any()
    untouched = [name for name in tensors if name.startswith(("head", "layer/4", "layer/8"))]
    assert len(untouched) == 6
    assert all(torch.equal(tensors[name], before[name]) for name in untouched)


def test_exactly_the_units_with_a_path_to_the_head_are_reached():
    graph = trace(mlp(2, [3, 3], 2))
    tensors = tensors_of(mlp(2, [3, 3], 2))
    tensors["head/weight"] = torch.tensor([[0.0, 0.0, 0.0], [0.0, 1e-30, 0.0], [0.0, 0.0, 0.0]])
    tensors["layer/fc2/rows"] = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, -2.0], [0.0, 5.0, 0.0]])
    assert [units.tolist() for units in reached_units(graph, tensors)] == [[False, False, True], [False, True, False]]
    tensors["head/weight"] = torch.zeros(2, 3)
    assert not any(units.any() for units in reached_units(graph, tensors))


@pytest.mark.parametrize("seed", range(4))
def test_reached_filters_are_those_a_gradient_finds(seed):
    """With weights of one sign and no activation, a unit is reached if and only if the logits depend on it."""
    graph, tensors = trace(conv_net()), tensors_of(conv_net())
    generator = torch.Generator().manual_seed(seed)
    for name in ("layer/0/rows", "layer/3/rows", "layer/6/rows", "head/weight"):
        kept = torch.rand(tensors[name].shape, generator=generator) < 0.06
        tensors[name] = torch.where(kept, tensors[name].abs(), 0.0)
    first = torch.ones(1, 4, 3, 3, requires_grad=True)
    second = F.conv2d(first, tensors["layer/3/rows"]) + torch.zeros(1, 3, 2, 2, requires_grad=True)
    third = F.linear(second.flatten(1), tensors["layer/6/rows"])
    grads = torch.autograd.grad(F.linear(third, tensors["head/weight"]).sum(), (first, second, third))
    wanted = [grad[0].flatten(1).any(1) if grad.dim() > 2 else grad[0] != 0 for grad in grads]
    for units, expected in zip(reached_units(graph, tensors), wanted, strict=True):
        assert torch.equal(units, expected)


def whole(masks: dict[str, torch.Tensor], tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: mask.expand(tensors[name].shape) for name, mask in masks.items() if name in tensors}


def test_a_mask_inside_a_sub_network_has_both_ends_in_it():
    graph, tensors = trace(conv_net()), tensors_of(conv_net())
    units = [torch.tensor([1, 0, 0, 1]) > 0, torch.tensor([0, 1, 0]) > 0, torch.tensor([1, 1, 0, 0, 0]) > 0]
    masks = whole(masks_within(graph, tensors, units), tensors)
    assert masks.keys() == tensors.keys()
    assert torch.equal(masks["layer/0/rows"].flatten(1).all(1), units[0])  # raw input is always inside
    for out in range(3):
        for source in range(4):
            both = bool(units[1][out] and units[0][source])
            assert masks["layer/3/rows"][out, source].tolist() == [[both] * 2] * 2
    assert masks["layer/6/rows"].nonzero().tolist() == [[row, column] for row in (0, 1) for column in (4, 5, 6, 7)]
    assert masks["head/weight"].any(0).tolist() == units[2].tolist() == masks["head/weight"].all(0).tolist()
    assert masks["layer/3/bias"].tolist() == units[1].tolist()


def test_a_mask_of_what_came_later_has_an_end_there():
    graph, tensors = trace(small_mlp()), tensors_of(small_mlp())
    masks = whole(masks_of_new(graph, tensors, (4, 5)), tensors)
    assert masks["layer/fc1/rows"].all(1).tolist() == [False] * 4 + [True] * 2
    assert masks["layer/fc1/rows"].any(1).tolist() == [False] * 4 + [True] * 2
    assert masks["layer/fc2/rows"].all(0).tolist() == [False] * 4 + [True] * 2  # old units read new ones
    assert masks["layer/fc2/rows"].any(0).tolist() == [False] * 4 + [True] * 2
    assert not masks["layer/fc2/bias"].any()
    assert masks["head/weight"].all()
    assert masks["head/bias"].all()
