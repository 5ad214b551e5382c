"""Runs in processes of their own on this machine, as many at once as there are slots.

Both sides are here: ``RunProcesses`` starts them, and ``python -m bocl.engines.run_process`` makes one run. On a GPU,
processes fill each other's pauses; with NVIDIA's multi-process service their work overlaps too. A run in a process of
its own has the same bits, however many others there are. No run outlives who started it, however that ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, replace
from queue import SimpleQueue
from typing import Any

from bocl.engines.orders import RunOrder, carry_out
from bocl.errors import BoclError, InputError
from bocl.experiment.provenance import machine
from bocl.records.interrupts import Terminated, stopping_on_terminate, terminate_when_input_ends
from bocl.training.device import only_device, resolve_device
from bocl.wording import one_line


class RunProcesses:
    """An engine (``orders.py``) of processes on this machine.

    slots  the device of every process that may be at work at once; a device that stands there twice is shared
    """

    most_parts = 1

    def __init__(self, slots: Sequence[str]) -> None:
        self.slots = tuple(slots)
        self.workers: int | None = len(self.slots)
        self.shares_device = max(Counter(self.slots).values())

    def machine(self) -> dict[str, Any]:
        """Describe what they run on."""
        return machine(resolve_device(self.slots[0]))

    def __call__(self, orders: Sequence[RunOrder], ended: Callable[[RunOrder, str], None]) -> None:
        """Make runs; see ``Engine``."""
        free: SimpleQueue[str] = SimpleQueue()
        for slot in self.slots:
            free.put(slot)

        def make(order: RunOrder) -> str:
            device = free.get()
            try:
                return processes.run(command(replace(order, shares_device=self.shares_device), device))
            finally:
                free.put(device)

        with Processes() as processes, ThreadPoolExecutor(len(self.slots)) as pool:
            running = {pool.submit(make, order): order for order in orders}
            try:
                for done in as_completed(running):
                    ended(running[done], done.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                processes.stop()
                raise


class Processes:
    """Processes under way. Asked to stop, they finish their record and end; they do so too if this process is killed.

    Their standard input is a pipe that nobody writes to. Only this process holds its other end, and the kernel closes
    that whatever happens. It is what they wait for.
    """

    def __init__(self) -> None:
        self._input, held = os.pipe()
        self._held = os.fdopen(held, "wb")

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        os.close(self._input)

    def run(self, words: Sequence[str]) -> str:
        """Run a command to its end; return why it failed, '' if it did not."""
        if self._held.closed:
            return "stopped"
        done = subprocess.run(
            words,
            stdin=self._input,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env={"OMP_NUM_THREADS": "1", **os.environ},
            check=False,
        )
        return "" if done.returncode == 0 else _last_words(done.returncode, done.stderr)

    def stop(self) -> None:
        """Stop all of them."""
        self._held.close()


def _last_words(code: int, said: str) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}; run the same command again to resume"
    lines = said.strip().splitlines() or ["failed"]
    ours = [line.removeprefix("bocl: ") for line in lines if line.startswith("bocl: ")]
    return (ours or lines)[-1]  # a warning may come after it, when the process ends


def command(order: RunOrder, device: str) -> list[str]:
    """Return the command that makes a run, and stops when its standard input ends."""
    # -P: no file of the current folder is imported in place of ours
    return [sys.executable, "-P", "-m", "bocl.engines.run_process", json.dumps(asdict(order)), device]


def main() -> int:
    """Make one run: ORDER DEVICE. The exit codes are those of ``bocl``."""
    order, device = RunOrder(**json.loads(sys.argv[1])), sys.argv[2]
    terminate_when_input_ends()
    try:
        with stopping_on_terminate():
            carry_out(order, str(only_device(device)))
    except KeyboardInterrupt as stop:
        print("bocl: stopped", file=sys.stderr)
        return 143 if isinstance(stop, Terminated) else 130
    except BoclError as error:
        print(f"bocl: {one_line(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
