"""What runs on the nodes of a Ray cluster: actors that make runs, and actors that train parts of a run's rounds."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue
from subprocess import DEVNULL
from typing import Any

from bocl.engines.mirror import Change, write_content
from bocl.engines.orders import RunOrder, carry_out
from bocl.engines.part_server import PartServer, Subject
from bocl.engines.shared_arrays import Packed, unpack
from bocl.engines.spread import SpreadTrainer
from bocl.errors import BoclError
from bocl.experiment.build import import_function
from bocl.experiment.provenance import machine, versions
from bocl.extras import needed
from bocl.methods.parts import PartDone, PartWork
from bocl.methods.rounds import Round
from bocl.training.device import resolve_device
from bocl.wording import one_line


@dataclass(frozen=True)
class About:
    """What an actor is, and where."""

    node: str
    device: str
    versions: dict[str, str]


def about(device: str) -> About:
    """Describe this process."""
    return About(platform.node(), machine(resolve_device(device))["name"], versions())


@dataclass(frozen=True)
class Ended:
    """A run has ended; why it failed, '' if it did not."""

    error: str = ""


class RunWorker:
    """An actor that makes runs, one after another, each in a folder of its own, which passes.

    What a run writes is sent to who asked for it, who keeps the run: this node may go at any time.

    folder  in which the command was given
    """

    def __init__(self, device: str, folder: str) -> None:
        self._device = device
        _go_to(folder)

    def about(self) -> About:
        """Describe this actor."""
        return about(self._device)

    def make(
        self, order: RunOrder, content: dict[str, bytes], stream: Packed, parts: Sequence[Any]
    ) -> Iterator[Change | Ended]:
        """Make or resume a run, and yield what is new in its folder after every record, then how it ended.

        content  of its folder so far
        stream   its tasks
        parts    actors that train parts of its rounds
        """
        news: SimpleQueue[Change | Ended] = SimpleQueue()
        with passing_folder() as place:
            changes = write_content(Path(place), content)
            there = replace(order, folder=place)
            helpers = [RayHelper(actor, self._device) for actor in parts]
            trainer = SpreadTrainer(helpers) if helpers else None

            def work() -> None:
                error = ""
                try:
                    tasks = unpack(stream, needed("ray", "ray", "tasks come through Ray").get)
                    carry_out(there, self._device, tasks, trainer=trainer, on_record=lambda: news.put(changes()))
                except BoclError as mistake:
                    error = one_line(str(mistake)).replace(place, order.folder)
                except BaseException as mistake:  # SystemExit of the user's module too: somebody waits for the end
                    error = one_line(f"{type(mistake).__name__}: {mistake}")
                news.put(Ended(f"{error} (on {platform.node()})" if error else ""))

            threading.Thread(target=work, daemon=True).start()
            while True:
                new = news.get()
                yield new
                if isinstance(new, Ended):
                    return


class PartActor:
    """An actor that trains parts of rounds (``part_server.py``).

    folder   in which the command was given
    imports  ``package.module:function`` of the user's that makes the network, whose classes it must know
    """

    def __init__(self, device: str, folder: str, imports: str | None) -> None:
        self._device = device
        _go_to(folder)
        if imports is not None:
            import_function(imports, "network")
        self._server = PartServer(resolve_device(device))

    def about(self) -> About:
        """Describe this actor."""
        return about(self._device)

    def train(self, name: str, boxed: list[Any], asked: Round, works: Sequence[PartWork]) -> list[PartDone]:
        """Train parts of a round; the box holds a reference to the subject, which is fetched if it is new."""
        if self._server.given != name:
            self._server.give(name, needed("ray", "ray", "parts of rounds come through Ray").get(boxed[0]))
        return self._server.train(asked, works)


def _go_to(folder: str) -> None:
    """Work in a folder if this node has it: what is named by a place in it is then found as on the other nodes."""
    with suppress(OSError):
        os.chdir(folder)


@contextmanager
def passing_folder() -> Iterator[str]:
    """Yield a folder that goes when it is left, or when this process ends, however it ends.

    Ray kills workers, and what they started. So a shell leaves another behind, which is nobody's. It waits for the end
    of a pipe that only this process can write to, and removes the folder.
    """
    place = tempfile.mkdtemp(prefix="bocl-")
    theirs, ours = os.pipe()
    script = 'exec 3<&0; { read -r _ <&3; rm -rf -- "$0"; } &'
    try:
        words = ["sh", "-c", script, place]
        subprocess.run(words, stdin=theirs, stdout=DEVNULL, stderr=DEVNULL, start_new_session=True, check=True)
        yield place
    finally:
        os.close(theirs)
        os.close(ours)


class RayHelper:
    """A helper (``spread.py``) that is an actor. If the actor is lost, this process does its parts from then on."""

    def __init__(self, actor: Any, device: str) -> None:
        self._ray = needed("ray", "ray", "parts of rounds go through Ray")
        self._actor = actor
        self._device = device
        self._shared: tuple[str, Any] = ("", None)  # a subject's name, and where the cluster keeps it
        self._begun: tuple[Subject, Round, Sequence[PartWork]] | None = None
        self._coming: Any = None
        self._here: PartServer | None = None

    def start(self, subject: Subject, asked: Round, works: Sequence[PartWork]) -> None:
        """Begin this work; see ``Helper``."""
        self._begun, self._coming = (subject, asked, works), None
        if self._actor is not None:
            if self._shared[0] != subject.name:
                self._shared = subject.name, self._ray.put(subject.packed())
            self._coming = self._actor.train.remote(subject.name, [self._shared[1]], asked, works)

    def result(self) -> list[PartDone]:
        """Wait for what was begun; see ``Helper``."""
        assert self._begun is not None
        subject, asked, works = self._begun
        if self._coming is not None:
            try:
                done: list[PartDone] = self._ray.get(self._coming)
                return done
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self._ray.exceptions.RayError:
                self._actor = None
        if self._here is None:
            self._here = PartServer(resolve_device(self._device))
        if self._here.given != subject.name:
            self._here.give(subject.name, subject.packed())
        return self._here.train(asked, works)

    def drop(self) -> None:
        """Give up what was begun; see ``Helper``. What the actor is in the middle of ends before what comes next."""
        self._begun = self._coming = None
