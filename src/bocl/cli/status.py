"""``bocl status``: how far runs are, from their journals, while others write them."""

from __future__ import annotations

from typing import Annotated

import typer


def status_command(
    places: Annotated[
        list[str], typer.Argument(metavar="FOLDER...", help="Runs, or folders of runs at any depth, as of a study.")
    ],
    watch: Annotated[bool, typer.Option("--watch", help="Look again every two seconds, until Ctrl-C.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show how far runs are and how long they will take. It only reads, on any machine that sees the folder."""
    import time

    from rich.live import Live

    from bocl.cli.printing import make_console, print_json
    from bocl.errors import FolderError, InputError
    from bocl.progress.overview import overview
    from bocl.progress.watch import PAUSE
    from bocl.records.outlook import outlook
    from bocl.records.progress import progress_in

    console = make_console()
    if watch and (as_json or not console.is_terminal):
        raise InputError("--watch draws on a terminal; leave it out to print once, or as JSON")
    runs = progress_in(places)
    if not runs and not watch:
        raise FolderError(f"{', '.join(places)}: there is no run in it yet: no journal.jsonl")
    if as_json:
        print_json(outlook(runs, time.time()).as_json())
    elif not watch:
        console.print(overview(outlook(runs, time.time()), console.width))
    else:
        with Live(console=console, auto_refresh=False) as live:
            while True:
                live.update(overview(outlook(runs, time.time()), console.width, console.height), refresh=True)
                time.sleep(PAUSE)
                runs = progress_in(places, runs)
