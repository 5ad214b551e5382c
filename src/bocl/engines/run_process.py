"""Runs in processes on this machine, as many at once as there are slots; each process makes one run after another.

Both sides are here: ``RunProcesses`` starts them, and ``python -m bocl.engines.run_process`` makes runs. On a GPU,
processes fill each other's pauses; with NVIDIA's multi-process service their work overlaps too. A run has the same
bits, however many others there are, and whatever its process made before. No run outlives who started it, however that
ends.
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
from typing import IO, Any

import torch

from bocl.engines.orders import RunOrder, carry_out
from bocl.errors import BoclError, InputError
from bocl.experiment.provenance import machine
from bocl.records.interrupts import Terminated, stopping_on_terminate
from bocl.training.device import only_device, resolve_device
from bocl.wording import one_line

MADE = b"made\n"


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
                running = {pool.submit(make, order): order for order in orders}
                try:
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
    """A process that makes runs. It is started for the first one, and anew after a run that failed.

    Orders come through its standard input, of which only this process holds the other end. Asked to stop, it finishes
    its record and ends. It does so too if this process is killed: the kernel then closes that end.
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
            if self._process is None or self._process.poll() is not None:
                self._start()
            orders, answers = _pipes(self._process)
            with suppress(OSError):  # it has ended, as is found below
                orders.write(json.dumps(asdict(order)).encode() + b"\n")
                orders.flush()
        if answers.readline() == MADE:
            return ""
        assert self._process is not None
        code = self._process.wait()
        self._said.seek(0)
        return _last_words(code, self._said.read().decode(errors="replace"))

    def stop(self) -> None:
        """Stop it, and make no more runs."""
        with self._changing:
            self._stopped = True
            self._end_orders()

    def wait(self) -> None:
        """Wait until it has ended, after it was stopped."""
        if self._process is not None:
            self._process.wait()
            _pipes(self._process)[1].close()
            self._said.close()

    def _start(self) -> None:
        self._end_orders()  # of one that failed
        self.wait()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        self._process = subprocess.Popen(
            self._words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            env={"OMP_NUM_THREADS": "1", **os.environ},
        )

    def _end_orders(self) -> None:
        if self._process is not None:
            with suppress(OSError):  # of an order that it no longer took
                _pipes(self._process)[0].close()


def _pipes(process: subprocess.Popen[bytes] | None) -> tuple[IO[bytes], IO[bytes]]:
    """Return where orders go to a process, and where answers come from."""
    assert process is not None
    assert process.stdin is not None
    assert process.stdout is not None
    return process.stdin, process.stdout


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
    """Yield orders as they come. When the input ends, who gave them has gone, and SIGTERM is sent to this process."""
    lines: SimpleQueue[bytes] = SimpleQueue()

    def read() -> None:
        begun = b""
        while some := os.read(0, 1 << 16):  # not sys.stdin, whose lock would hold up the end of the process
            *whole, begun = (begun + some).split(b"\n")
            for line in whole:
                lines.put(line)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield RunOrder(**json.loads(lines.get()))


def main() -> int:
    """Make runs: DEVICE. It ends with the first that fails, as ``bocl`` would, with its exit codes."""
    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a module of the user's prints is no answer
    try:
        with stopping_on_terminate():
            device = only_device(sys.argv[1])
            for order in orders_of_input():
                carry_out(order, str(device))
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


if __name__ == "__main__":
    sys.exit(main())
