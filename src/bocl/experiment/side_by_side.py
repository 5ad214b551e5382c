"""Several runs at once on a GPU, a thread and stream each; ``training/gpu_lock.py`` says why results are the same."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from queue import SimpleQueue
from typing import TypeVar

import torch

from bocl.errors import DeviceError
from bocl.training.cancellation import cancelled_by
from bocl.training.gpu_lock import holding_gpu
from bocl.training.surroundings import usual_surroundings

MOST_AT_ONCE = 16  # PyTorch has 32 streams to hand out
Result = TypeVar("Result")


def check_at_once(at_once: int, runs: int, device: torch.device, draws: bool) -> None:
    """Refuse to run side by side where results would depend on it."""
    if not 1 <= at_once <= MOST_AT_ONCE:
        raise DeviceError(f"--at-once is {at_once}; give a number of runs from 1 to {MOST_AT_ONCE}")
    if at_once == 1 or runs == 1:
        return
    if device.type != "cuda":
        raise DeviceError(
            f"--at-once {at_once}: runs go side by side only on a GPU; on a CPU they would take threads from each "
            "other, which changes results; leave it out"
        )
    if draws:
        raise DeviceError(
            f"--at-once {at_once}: the network has dropout, and runs of one process would draw from the same random "
            "numbers; leave it out"
        )


@usual_surroundings()  # around all of them: what is the process's is given back once, when none is left
def side_by_side(pieces: Sequence[Callable[[], Result]], *, at_once: int, device: torch.device) -> list[Result]:
    """Do all pieces of work, ``at_once`` at a time, and return their results in order.

    When one of them fails, or the user stops, the others are cancelled.
    """
    stop = threading.Event()
    streams: SimpleQueue[torch.cuda.Stream] = SimpleQueue()
    for _ in range(at_once):
        streams.put(torch.cuda.Stream(device))

    def work(piece: Callable[[], Result]) -> Result:
        stream = streams.get()
        try:
            with holding_gpu(), cancelled_by(stop), torch.cuda.stream(stream):
                return piece()
        finally:
            streams.put(stream)

    with ThreadPoolExecutor(at_once, thread_name_prefix="run") as pool:
        futures = [pool.submit(work, piece) for piece in pieces]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
            for future in futures:
                if future.done():
                    future.result()
        except BaseException:
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]
