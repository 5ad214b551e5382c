"""Whatever form a stack computes in, it computes the same."""

from __future__ import annotations

import pytest
import torch
from network_examples import IMAGE, NETWORKS, grown

from bocl.networks import products, stacked


def logits_and_gradients(children, x, precomputed=None):
    logits = children(x, 0, precomputed)
    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1), dtype=logits.dtype)
    gradients = torch.autograd.grad((logits * weights).sum(), list(children.parameters.values()), allow_unused=True)
    return [logits, *(gradient for gradient in gradients if gradient is not None)]


def assert_alike(one, other):
    for left, right in zip(one, other, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-10, atol=1e-12)


@pytest.fixture(params=sorted(NETWORKS))
def children(request):
    """Three children of unequal width, in float64."""
    network = grown(NETWORKS[request.param]())
    network.tasks[-1].weights = {name: tensor.double() for name, tensor in network.tasks[-1].weights.items()}
    groups = len(network.graph.groups)
    widths = [(0,) * groups, (2,) * groups, tuple(range(groups))]
    made = network.grow(widths, 3, seeds=range(3), pad_to=(max(groups, 3),) * groups, dtype=torch.float64)
    made.training = False
    return made


X = torch.randn(6, *IMAGE, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_frozen_and_new_weights_as_one_or_piece_by_piece(children, monkeypatch):
    forms = []
    for whole in (False, True):
        monkeypatch.setattr(stacked, "multiplies_whole", lambda layer, _frozen, whole=whole: whole or layer.kernel)
        forms.append(logits_and_gradients(children, X))
    assert_alike(*forms)


def test_windows_laid_out_or_grouped(children, monkeypatch):
    forms = [logits_and_gradients(children, X)]
    monkeypatch.setattr(products, "_lays_out_windows", lambda layer, _x: len(layer.kernel) == 2)
    assert_alike(forms[0], logits_and_gradients(children, X))


def test_frozen_units_of_the_first_layer_can_be_computed_once(children):
    precomputed = children.precompute(X)
    assert precomputed is not None
    assert precomputed.shape[0] == len(X)
    assert not precomputed.requires_grad
    assert_alike(logits_and_gradients(children, X), logits_and_gradients(children, X, precomputed))


def test_a_first_task_has_nothing_to_compute_once():
    from bocl.networks.expandable import ExpandableNetwork
    from bocl.networks.trace import trace

    network = ExpandableNetwork(trace(NETWORKS["mlp"]()))
    assert network.grow([network.graph.widths], 3, seeds=[0]).precompute(X.float()) is None
