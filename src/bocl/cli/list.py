"""``bocl list``: everything that has a name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer


def list_command(as_json: Annotated[bool, typer.Option("--json", help="Print as JSON.")] = False) -> None:
    """List presets, streams, networks, pretrained weights, methods and searchers."""
    from bocl.cli.printing import make_console, print_json
    from bocl.experiment.build import NETWORKS, PUBLISHED
    from bocl.experiment.config import presets
    from bocl.method_table import METHODS
    from bocl.search.searchers import SEARCHERS
    from bocl.tasks.streams import STREAMS

    names: dict[str, dict[str, str]] = {
        "presets": presets(),
        "streams": _first_lines(STREAMS),
        "networks": _first_lines(NETWORKS),
        "weights": {
            name: f"of {entry.build}, in the package {entry.weights.package}{entry.scale_words}"
            for name, entry in PUBLISHED.items()
        },
        "methods": _first_lines({name: entry.load() for name, entry in METHODS.items()}),
        "searchers": _first_lines(SEARCHERS),
    }
    if as_json:
        print_json(names)
        return
    from rich.table import Table

    console = make_console()
    hints = {
        "presets": "bocl run NAME",
        "streams": "--set stream.name=NAME",
        "networks": "--set network=NAME, or your own package.module:function",
        "weights": "--set network=NETWORK --set network.weights=NAME",
        "methods": "--methods NAME,NAME",
        "searchers": "--set search.kind=NAME",
    }
    for kind, entries in names.items():
        console.print(f"[bold]{kind}[/bold]  [dim]{hints[kind]}[/dim]")
        table = Table.grid(padding=(0, 2))
        table.add_column(no_wrap=True)
        table.add_column()
        for name, line in entries.items():
            table.add_row(f"  {name}", line)
        console.print(table)
        console.print()


def _first_lines(table: Mapping[Any, Any]) -> dict[str, str]:
    return {name: (entry.__doc__ or "").strip().splitlines()[0].replace("``", "") for name, entry in table.items()}
