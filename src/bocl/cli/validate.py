"""``bocl validate``: check a config without running it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from bocl.cli.run import Overrides


def validate_command(
    source: Annotated[str, typer.Argument(metavar="PRESET|CONFIG", help="A preset by name, or a .toml file.")],
    overrides: Overrides = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole config as JSON.")] = False,
) -> None:
    """Check a config: every key and value, and that its network can be traced and grown."""
    from bocl.experiment.build import build_method, build_network, build_stream
    from bocl.experiment.config import load_config
    from bocl.methods.checks import check_task
    from bocl.settings import to_plain

    config = load_config(source, overrides or [])
    graph = build_network(config.network)
    build_method(config, graph, "cpu")
    if config.stream.name == "permuted-digits":  # needs no download, so that the network is tried on its samples too
        check_task(graph, build_stream(config)[0], seen=[])
    if as_json:
        typer.echo(json.dumps(to_plain(config), indent=1))
        return
    widths = ", ".join(f"{group.name} {group.width}" for group in graph.groups)
    typer.echo(f"{source} is valid: {config.method} on {config.stream.tasks} tasks of {config.stream.name}")
    typer.echo(f"network {config.network.build}: hidden groups {widths}")
