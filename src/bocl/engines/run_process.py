"""Runs in processes on this machine, as many at once as there are slots.

Both sides are here: ``RunProcesses`` starts them, and ``python -m bocl.engines.run_process`` makes runs. On a GPU,
processes fill each other's pauses; with NVIDIA's multi-process service their work overlaps too. A run has the same
bits, however many others there are. No run outlives who started it, however that ends.

Processes that share a device make one run after another. A run that has its device to itself also has a process to
itself, so that times can be compared. So has a run of the user's code, which may leave anything behind.

An order is a line of JSON on a process's standard input. The answer, on a pipe of its own, is the line ``made``, or
``made, and ended`` if it takes no more orders. A run that fails ends its process, with the reason on standard error.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import asdict, replace
from queue import SimpleQueue
from typing import Any

import torch

from bocl.engines.orders import RunOrder, carry_out
from bocl.errors import BoclError, InputError
from bocl.experiment.build import module_of
from bocl.experiment.provenance import machine
from bocl.records.interrupts import Terminated, stopping_on_terminate
from bocl.training.device import only_device, resolve_device
from bocl.wording import one_line

MADE, MADE_AND_ENDED = b"made\n", b"made, and ended\n"


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
        processes = [RunProcess(command(slot)) for slot in self.slots]
        free: SimpleQueue[RunProcess] = SimpleQueue()
        for process in processes:
            free.put(process)

        def make(order: RunOrder) -> str:
            process = free.get()
            try:
                return process.make(replace(order, shares_device=self.shares_device))
            finally:
                free.put(process)

        try:
            with ThreadPoolExecutor(len(self.slots)) as pool:
                try:
                    running = {pool.submit(make, order): order for order in orders}
                    for done in as_completed(running):
                        ended(running[done], done.result())
                finally:
                    pool.shutdown(wait=False, cancel_futures=True)
                    for process in processes:
                        process.stop()
        finally:
            for process in processes:
                process.wait()


class RunProcess:
    """A process that makes runs. It is started for the first one, and anew when it has ended.

    Only this process holds the other end of its input. Asked to stop, it finishes its record and ends. It does so too
    if this process is killed: the kernel then closes that end.

    words  the command, to which the descriptor for answers is added
    """

    def __init__(self, words: Sequence[str]) -> None:
        self._words = words
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False
        self._changing = threading.Lock()

    def make(self, order: RunOrder) -> str:
        """Make a run; return why it failed, '' if it did not."""
        with self._changing:
            if self._stopped:
                return "stopped"
            if self._process is not None and self._process.poll() is not None:  # killed while it had no order
                self._forget()
            process = self._process or self._start()
            said_before = os.fstat(self._said.fileno()).st_size
            assert process.stdin is not None
            with suppress(OSError):  # the process has ended: the answer will be none
                process.stdin.write(json.dumps(asdict(order)).encode() + b"\n")
                process.stdin.flush()
        answer = self._answers.readline()
        if answer == MADE:
            return ""
        code = process.wait()
        self._said.seek(said_before)
        reason = "" if answer == MADE_AND_ENDED else _last_words(code, self._said.read().decode(errors="replace"))
        with self._changing:
            self._forget()
        return reason

    def stop(self) -> None:
        """Stop it, and make no more runs."""
        with self._changing:
            self._stopped = True
            self._end_orders()

    def wait(self) -> None:
        """Wait until it has ended, after it was stopped."""
        if self._process is not None:
            self._process.wait()
            self._forget()

    def _start(self) -> subprocess.Popen[bytes]:
        ours, theirs = os.pipe()
        self._answers = os.fdopen(ours, "rb")
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            [*self._words, str(theirs)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            pass_fds=[theirs],
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )
        os.close(theirs)
        return self._process

    def _end_orders(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # of an order that it no longer took
                self._process.stdin.close()

    def _forget(self) -> None:
        self._end_orders()
        self._answers.close()
        self._said.close()
        self._process = None


def _last_words(code: int, said: str) -> str:
    if code < 0:
        return f"killed by {signal.Signals(-code).name}; run the same command again to resume"
    lines = said.strip().splitlines() or ["failed"]
    ours = [line.removeprefix("bocl: ") for line in lines if line.startswith("bocl: ")]
    return (ours or lines)[-1]  # a warning may come after it, when the process ends


def command(device: str) -> list[str]:
    """Return the command that makes runs on a device."""
    # -P: no file of the current folder is imported in place of ours
    return [sys.executable, "-P", "-m", "bocl.engines.run_process", device]


def orders_of_input() -> Iterator[RunOrder]:
    """Yield orders as they come. When the input ends, whoever gave them has gone: this process is then terminated."""
    lines: SimpleQueue[bytes | None] = SimpleQueue()
    given = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # what reads its input while a run is made takes no order

    def read() -> None:
        begun = b""
        while some := os.read(given, 1 << 16):  # no file, whose lock would hold up the end of the process
            *whole, begun = (begun + some).split(b"\n")
            for line in whole:
                lines.put(line)
        os.kill(os.getpid(), signal.SIGTERM)
        lines.put(None)  # code that a run calls may swallow what the signal raises

    threading.Thread(target=read, daemon=True).start()
    while (line := lines.get()) is not None:
        yield RunOrder(**json.loads(line))
    raise Terminated


def main() -> int:
    """Make runs: DEVICE DESCRIPTOR. It ends with the first that fails, as ``bocl`` would, with its exit codes."""
    answers = int(sys.argv[2])
    os.set_inheritable(answers, False)
    try:
        with stopping_on_terminate():
            device = only_device(sys.argv[1])
            for order in orders_of_input():
                carry_out(order, str(device))
                if order.shares_device == 1 or runs_code(order):
                    os.write(answers, MADE_AND_ENDED)
                    return 0
                gc.collect()  # what the run held on a GPU
                if device.type == "cuda":
                    torch.cuda.empty_cache()
                os.write(answers, MADE)
    except KeyboardInterrupt as stop:
        print("bocl: stopped", file=sys.stderr)
        return 143 if isinstance(stop, Terminated) else 130
    except BoclError as error:
        print(f"bocl: {one_line(str(error))}", file=sys.stderr)
        return 2 if isinstance(error, InputError) else 1
    return 0


def runs_code(order: RunOrder) -> bool:
    """Whether a run's tasks or network are made by code of the user's."""
    config = order.settings()
    return config.stream.is_code or module_of(config.network) is not None


if __name__ == "__main__":
    sys.exit(main())
