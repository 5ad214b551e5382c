"""Runs side by side: who works when, and where it is refused. That results are the same is shown on a GPU."""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext, suppress

import pytest
import torch

from bocl.errors import DeviceError
from bocl.experiment.side_by_side import check_at_once, side_by_side
from bocl.training.cancellation import stop_if_cancelled
from bocl.training.gpu_lock import gpu_released

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def streams(monkeypatch):
    """Stand in for a GPU's streams, and note how many were handed out at once."""
    monkeypatch.setattr(torch.cuda, "Stream", lambda _device: object())
    monkeypatch.setattr(torch.cuda, "stream", lambda _stream: nullcontext())


def test_results_come_in_the_order_of_the_pieces(streams):
    assert side_by_side([lambda n=n: n * n for n in range(7)], at_once=3, device=GPU) == [0, 1, 4, 9, 16, 25, 36]


def test_one_works_at_a_time_but_where_it_lets_others_go_on(streams):
    working, together = [], threading.Barrier(3)

    def piece() -> int:
        working.append(1)
        most = len(working)
        with gpu_released():
            together.wait(timeout=20)  # passes only when all three are inside
        working.pop()
        return most

    # A piece that waits inside gpu_released has not left yet, so the ones after it count it.
    assert sorted(side_by_side([piece] * 3, at_once=3, device=GPU)) == [1, 2, 3]


def test_no_two_have_the_turn_at_once(streams):
    inside = []

    def piece() -> None:
        for _ in range(50):
            inside.append(1)
            assert len(inside) == 1
            inside.pop()
            with gpu_released():
                pass

    side_by_side([piece] * 4, at_once=4, device=GPU)


def test_the_first_failure_stops_the_others_and_is_told(streams):
    stopped = []

    def fails() -> None:
        raise DeviceError("this one")

    def waits() -> None:
        with gpu_released(), suppress(KeyboardInterrupt):
            for _ in range(2000):
                stop_if_cancelled()
                time.sleep(0.01)
            return
        stopped.append(True)

    with pytest.raises(DeviceError, match="this one"):
        side_by_side([waits, fails, waits], at_once=2, device=GPU)
    assert stopped


def test_a_run_that_is_alone_lets_nobody_in():
    with gpu_released(), gpu_released():
        pass


@pytest.mark.parametrize(
    ("at_once", "device", "draws", "reason"),
    [
        (0, GPU, False, "from 1 to 16"),
        (17, GPU, False, "from 1 to 16"),
        (2, CPU, False, "only on a GPU"),
        (2, GPU, True, "dropout"),
    ],
)
def test_it_is_refused_where_results_would_depend_on_it(at_once, device, draws, reason):
    with pytest.raises(DeviceError, match=reason):
        check_at_once(at_once, 2, device, draws)


@pytest.mark.parametrize(("at_once", "device", "draws"), [(1, CPU, True), (16, GPU, False)])
def test_it_is_taken_where_they_do_not(at_once, device, draws):
    check_at_once(at_once, 2, device, draws)


def test_of_a_single_run_it_is_said_for_the_record():
    check_at_once(2, 1, CPU, True)
