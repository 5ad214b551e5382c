"""Masks as bits."""

from __future__ import annotations

import pytest
import torch

from bocl.networks.bits import coded_size, count_bits, packed, unpacked


@pytest.mark.parametrize("shape", [(1,), (8,), (3, 5), (4, 2, 3, 3)])
def test_a_mask_is_what_was_packed(shape):
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < 0.3
    assert packed(mask).dtype == torch.uint8
    assert torch.equal(unpacked(packed(mask), shape), mask)


def test_bits_count_as_the_parameters_that_take_their_memory():
    assert count_bits([]) == 0
    assert count_bits([torch.zeros(1, dtype=torch.uint8)]) == 1
    assert count_bits([torch.zeros(3, dtype=torch.uint8), torch.zeros(2, dtype=torch.uint8)]) == 2
    assert count_bits([packed(torch.ones(320, dtype=torch.bool))]) == 10


def test_a_coded_mask_takes_its_entropy():
    free = torch.zeros(1000, dtype=torch.bool)
    half, tenth = torch.arange(1000) % 2 == 0, torch.arange(1000) % 10 == 0
    assert coded_size(half, free) == pytest.approx(1000)
    assert coded_size(tenth, free) == pytest.approx(469, abs=0.1)
    assert coded_size(half, half) == 0, "known from the tasks before"
    assert coded_size(half | tenth, half) == pytest.approx(0)
    assert coded_size(free, free) == 0


def test_equal_parts_take_the_entropy_of_who_owns_a_weight():
    used, total = torch.zeros(1000, dtype=torch.bool), 0.0
    for task in range(10):
        mask = used | (torch.arange(1000) % 10 == task)
        total += coded_size(mask, used)
        used = mask
    assert total == pytest.approx(1000 * torch.tensor(10.0).log2().item())
