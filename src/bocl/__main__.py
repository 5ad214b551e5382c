"""The command ``bocl``, and ``python -m bocl``."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line; Ctrl-C is heard before it is imported."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where Ctrl-C is ignored
        signal.signal(signal.SIGINT, _interrupt)
    from bocl.cli.main import main as command_line

    command_line()


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt as Python does, but end the process if something is being imported.

    Libraries catch what is raised while they are imported, and go on half made.
    """
    inner = frame
    while inner is not None:
        if inner.f_code.co_filename == "<frozen importlib._bootstrap>":
            if sys.stderr.isatty():
                os.write(2, b"\x1b[?25h\nbocl: stopped\n")  # the cursor, which a display may have hidden
            os._exit(130)
        inner = inner.f_back
    signal.default_int_handler(number, frame)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the current folder: its files are not ours to import, and `python -m` looks there first
    main()
