"""Work in a child that meets a mishap at a call of its own, or at a moment of its parent's.

The child is forked from a process that has done such work itself, so it begins at once: a run takes less than a second.
Every call of ``os`` that changes a file or a folder is counted there, and so are files that are opened to be written
in any other way. The n-th of them can kill the process, stop it, or find the disk full or read-only.
"""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from bocl.records.run_log import JOURNAL

CALLS = ("write", "fsync", "replace", "ftruncate", "unlink", "rmdir", "mkdir")
WRITES = os.O_WRONLY | os.O_RDWR
NEEDS_SPACE = ("open", "write", "fsync", "replace", "mkdir")
Kind = Literal["kill", "half", "SIGINT", "SIGTERM", "full", "partly full", "read-only"]
Work = Callable[[], tuple[int, str]]


@dataclass(frozen=True)
class Mishap:
    """What goes wrong, and when.

    kind   kill: the process dies before the call; half: halfway through it, where it is a write
           full, partly full, read-only: this call fails and those after it; "partly" takes part of a write first
    at     the number of the call, from 1; 0 never
    after  or the seconds after which the parent kills the child
    """

    kind: Kind = "kill"
    at: int = 0
    after: float | None = None

    def __str__(self) -> str:
        return f"{self.kind} at call {self.at}" if self.after is None else f"killed after {self.after:.3f} s"


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    code      its exit code, less than zero for a signal
    said      what it told the user
    calls     the names of its calls
    promised  how many lines of a journal it wrote and synced
    """

    code: int
    said: str
    calls: list[str]
    promised: int

    @property
    def killed(self) -> bool:
        """Whether the mishap came before its end."""
        return self.code == -signal.SIGKILL


NOTHING = Mishap()


def in_a_fork(work: Work, mishap: Mishap = NOTHING) -> Ended:
    """Do some work in a child; it returns its exit code and what it says."""
    ears, mouth = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ears)
        write = os.write
        try:
            _watch_calls(mouth, mishap)
            code, said = work()
        except BaseException as error:  # whatever is not meant for the user is a fault
            code, said = 99, f"{type(error).__name__}: {error}"
        write(mouth, f"said {json.dumps(said)}\n".encode())
        os._exit(code)
    os.close(mouth)
    if mishap.after is not None:
        time.sleep(mishap.after)
        os.kill(child, signal.SIGKILL)
    with os.fdopen(ears) as told:
        words = told.read().split("\n")[:-1]
    _, status = os.waitpid(child, 0)
    said = "".join(json.loads(word[5:]) for word in words if word.startswith("said "))
    calls = [word for word in words if word != "promised" and not word.startswith("said ")]
    return Ended(os.waitstatus_to_exitcode(status), said, calls, words.count("promised"))


def every_kill(calls: list[str]) -> Iterator[Mishap]:
    """Yield a kill before each call, and one halfway through each write."""
    for at, name in enumerate(calls, start=1):
        yield Mishap("kill", at)
        if name == "write":
            yield Mishap("half", at)


def _watch_calls(mouth: int, mishap: Mishap) -> None:
    """Count every call that changes a file, tell the parent of each, and let the mishap happen."""
    tell, count, unsynced, is_full = os.write, 0, set[int](), False

    def fail(number: int) -> None:
        raise OSError(number, os.strerror(number))

    def meet(name: str, real: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Do what happens at or after the fatal call; return the result of a write that was cut short."""
        nonlocal is_full
        match mishap.kind:
            case "kill" | "half" if count == mishap.at:
                if mishap.kind == "half" and name == "write":
                    real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            case "SIGINT" | "SIGTERM" if count == mishap.at:
                signal.raise_signal(signal.Signals[mishap.kind])
            case "read-only":
                fail(errno.EROFS)
            case "full" | "partly full" if name == "write" or (count == mishap.at and name in NEEDS_SPACE):
                if mishap.kind == "partly full" and name == "write" and not is_full and len(arguments[1]) > 1:
                    is_full = True
                    return real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 3 + 1])
                fail(errno.ENOSPC)
        return None

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            if name == "open" and not arguments[1] & WRITES:
                return real(*arguments, **options)
            count += 1
            tell(mouth, f"{name}\n".encode())
            if mishap.at and count >= mishap.at:
                done = meet(name, real, arguments)
                if done is not None:
                    return done
            result = real(*arguments, **options)
            if name in ("write", "fsync") and os.readlink(f"/proc/self/fd/{arguments[0]}").endswith(JOURNAL):
                if name == "write":
                    unsynced.add(arguments[0])
                elif arguments[0] in unsynced:
                    unsynced.clear()
                    tell(mouth, b"promised\n")
            return result

        return call

    for name in ("open", *CALLS):
        setattr(os, name, watched(name, getattr(os, name)))
    _open_files_by_these_calls()


def _open_files_by_these_calls() -> None:
    """Let files that Python opens to write them go through ``os.open`` and ``os.write`` as well."""
    real = io.open

    class Written(io.FileIO):
        def write(self, data: Any) -> int:
            return os.write(self.fileno(), data)

    def opener(path: Any, flags: int) -> int:
        return os.open(path, flags, 0o666)

    def open_file(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if isinstance(file, int) or not set("wax+") & set(mode):
            return real(file, mode, *arguments, **options)
        raw = io.BufferedWriter(Written(file, mode.replace("b", "").replace("t", ""), opener=opener))
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding=options.get("encoding"))

    io.open = open_file
    sys.modules["builtins"].open = open_file
