"""How far runs are, on a terminal, while they are made somewhere else."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from bocl.progress.overview import overview
from bocl.records.outlook import outlook
from bocl.records.progress import Progress, progress_of

PAUSE = 2.0  # seconds between two looks


@contextmanager
def watching(folders: Sequence[Path], console: Console | None = None) -> Iterator[Console]:
    """Show how far the runs in these folders are until the work inside ends; nothing where there is no terminal.

    Lines that are printed meanwhile on the console that it yields stay, above.
    """
    console = console or Console(stderr=True, force_jupyter=False)
    if not console.is_terminal:
        yield console
        return
    known: dict[Path, Progress] = {}

    def draw() -> RenderableType:
        for folder in folders:
            found = progress_of(folder, known.get(folder))
            if found is not None:
                known[folder] = found
        if not known:
            return Text("no run has begun yet")
        seen = outlook(list(known.values()), time.time(), to_come=len(folders) - len(known))
        return overview(seen, console.width, console.height)

    with Live(
        console=console,
        get_renderable=draw,
        refresh_per_second=1 / PAUSE,
        transient=True,
        redirect_stdout=False,  # what goes to a file or a pipe must get there
    ):
        yield console
