"""``bocl memory``: what the searches of runs tried, for the searches of another run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def memory_command(
    runs: Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of runs, or of folders of runs.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The file to write.")] = Path("memory.json"),
) -> None:
    """Write every trial of runs to a file that another run starts from: `bocl run … --set memory=FILE`."""
    from bocl.records.experience_file import memory_of, write_memory
    from bocl.records.files import check_place
    from bocl.records.summary import summarise_all
    from bocl.wording import counted

    check_place(out, b'{"format":', "memory of bocl")
    memory = memory_of(summarise_all(runs))
    write_memory(memory, out)
    children = counted(sum(len(task.trials) for task in memory.tasks), "child", "children")
    typer.echo(f"{children} of {counted(len(memory.tasks), 'task')} written to {out}")
