"""The price of a unit, against values computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from bocl.errors import ConfigError
from bocl.methods.reward import RewardSettings, make_cost, unit_costs
from bocl.networks.architectures import mlp
from bocl.networks.growth import GrowthSettings, GrowthSpace
from bocl.networks.trace import trace

GRAPH = trace(mlp(784, [312, 128]))
SPACE = GrowthSpace(GRAPH, GRAPH.widths, 10, GrowthSettings(attention=False))


def penalty(weighting: str, alpha: float = 0.01):
    cost = make_cost(weighting, 2, parameters=SPACE.count_all, by_group=SPACE.count_by_group)
    return lambda z: alpha * cost(z)


def test_unit_weighting_prices_a_unit_by_its_edges():
    price = penalty("unit")([(2, 3), (0, 1), (1, 1)])
    assert price == pytest.approx([0.01 * (2 * 913 + 3 * 323) / 1236, 0.01 * 323 / 1236, 0.01])


def test_added_weighting_prices_a_layer_by_what_z_adds_inside_it():
    first = 2 * (784 + 1)
    second = 3 * (312 + 2 + 1) + 128 * 2
    assert penalty("added")([(2, 3)]) == pytest.approx([0.01 * (2 * first + 3 * second) / (first + second)])
    # one layer alone bears all of the price
    assert penalty("added")([(0, 3)]) == pytest.approx([0.01 * 3])


def test_uniform_weighting_prices_every_layer_alike():
    assert penalty("uniform")([(2, 3), (5, 0)]) == pytest.approx([0.01 * 2.5, 0.01 * 2.5])


@pytest.mark.parametrize("weighting", ["unit", "added", "uniform"])
def test_adding_nothing_is_free(weighting):
    assert penalty(weighting)([(0, 0)]).tolist() == [0.0]


@pytest.mark.parametrize("weighting", ["unit", "added", "uniform"])
def test_the_price_is_alpha_times_the_same_and_vectorised(weighting):
    z = np.random.default_rng(0).integers(0, 20, (7, 2))
    many = penalty(weighting, 0.02)(z)
    assert many.shape == (7,)
    assert many == pytest.approx(2 * penalty(weighting)(z))
    assert many == pytest.approx([penalty(weighting, 0.02)([row])[0] for row in z])
    assert (penalty(weighting, 0.0)(z) == 0).all()


def test_unit_costs_are_taken_one_group_at_a_time():
    assert unit_costs(lambda z: 5 + 3 * z[:, 0] + 7 * z[:, 1] + 100 * z[:, 0] * z[:, 1], 2).tolist() == [3, 7]


@pytest.mark.parametrize("alpha", [-1e-3, math.nan, math.inf, 2e6, "a", True])
def test_a_price_that_cannot_be_is_refused(alpha):
    with pytest.raises(ConfigError, match=rf"reward\.alpha is {alpha!r}; it must be"):
        RewardSettings(alpha)


def test_an_unknown_weighting_is_refused():
    for weighting in ("units", None, 3):
        with pytest.raises(ConfigError, match=r"reward\.weighting.*'unit', 'added' or 'uniform'"):
            RewardSettings(weighting=weighting)
