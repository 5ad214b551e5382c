"""A process of its own that trains parts of rounds on one device of this machine.

Both sides are here: ``PartProcess`` starts it and asks, and ``python -m bocl.engines.part_process`` answers. They speak
over a socket that only the two hold. The process ends when the one that started it does, however that ends.
"""

from __future__ import annotations

import pickle
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any

import torch

from bocl.engines.part_server import PartServer, Subject
from bocl.errors import WorkError
from bocl.experiment.build import import_function
from bocl.methods.parts import PartDone, PartWork
from bocl.methods.rounds import Round
from bocl.records.interrupts import terminate_when_input_ends
from bocl.training.device import only_device
from bocl.wording import counted

MOST_LOSSES = 3  # of a process in one stage of a round


class PartProcess:
    """A helper (``spread.py``) in a process of its own.

    imports  ``package.module:function`` of the user's that makes the network, whose classes the process must know
    """

    def __init__(self, device: torch.device, imports: str | None = None) -> None:
        self.device = device
        self._imports = imports
        self._given: str | None = None
        self._begun: tuple[Subject, Round, Sequence[PartWork]] | None = None
        self._start_process()

    def _start_process(self) -> None:
        ours, theirs = socket.socketpair()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        options = [f"-W{option}" for option in sys.warnoptions]
        words = [str(theirs.fileno()), str(self.device), str(torch.get_num_threads()), self._imports or ""]
        self._process = subprocess.Popen(
            # -P: no file of the current folder is imported in place of ours
            [sys.executable, "-P", *options, "-m", "bocl.engines.part_process", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._said,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._given, self._connection = None, Connection(ours.detach())

    def start(self, subject: Subject, asked: Round, works: Sequence[PartWork]) -> None:
        """Begin this work; see ``Helper``."""
        self._begun = subject, asked, works
        if self._process.poll() is not None or self._connection.closed:
            self.close()
            self._start_process()
        try:
            if self._given != subject.name:
                self._send("give", subject.name, subject.packed())
                self._given = subject.name
            self._send("train", asked, works)
        except OSError:
            pass  # it has ended, as ``result`` will find

    def result(self) -> list[PartDone]:
        """Wait for what was begun; see ``Helper``."""
        assert self._begun is not None
        losses = 0
        while True:
            try:
                answer = pickle.loads(self._connection.recv_bytes())
                break
            except (EOFError, OSError) as error:
                losses += 1
                reason = self._last_words()
                if losses == MOST_LOSSES:
                    raise WorkError(
                        f"the process that trains children on {self.device} ended {counted(losses, 'time')}: {reason}; "
                        "run the same command again to resume, with fewer devices or smaller rounds"
                    ) from error
                self.close()
                self.start(*self._begun)
        self._begun = None
        if isinstance(answer, BaseException):
            raise answer
        done: list[PartDone] = answer
        return done

    def drop(self) -> None:
        """Give up what was begun; see ``Helper``."""
        self._begun = None
        self.close()  # whatever it is in the middle of

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.kill()
        self._process.wait()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._said.close()

    def _send(self, *message: Any) -> None:
        self._connection.send_bytes(pickle.dumps(message))

    def _last_words(self) -> str:
        code = self._process.wait()
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        self._said.seek(0)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {code}"


def answer_on(connection: Connection, server: PartServer) -> None:
    """Answer until whoever asks is gone."""
    while True:
        try:
            what, *values = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        try:
            if what == "give":
                server.give(*values)
                continue
            answer: Any = server.train(*values)
        except Exception as error:
            answer = error
        connection.send_bytes(_pickled(answer))


def _pickled(answer: Any) -> bytes:
    try:
        return pickle.dumps(answer)
    except Exception:  # an error of the user's may not be made to travel
        return pickle.dumps(RuntimeError(f"{type(answer).__name__}: {answer}"))


def main() -> None:
    """Train for the process that holds the other end of a socket: DESCRIPTOR DEVICE THREADS IMPORTS."""
    descriptor, device, threads, imports = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    terminate_when_input_ends()
    torch.set_num_threads(int(threads))
    if imports:
        import_function(imports, "network")
    answer_on(Connection(int(descriptor)), PartServer(only_device(device)))


if __name__ == "__main__":
    main()
