"""``bocl validate``: check a config without running it."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from bocl.cli.options import Methods, Overrides, complete_preset


def validate_command(
    source: Annotated[
        str,
        typer.Argument(
            metavar="PRESET|CONFIG", help="A preset by name, or a .toml file.", autocompletion=complete_preset
        ),
    ],
    overrides: Overrides = None,
    methods: Methods = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole config of each method as JSON.")] = False,
) -> None:
    """Check a config: every key and value, and that its network can be traced and grown by every method named."""
    from bocl.cli.comma_lists import parse_methods
    from bocl.experiment.build import build_method, build_network, build_stream
    from bocl.experiment.grid import plan
    from bocl.methods.seen import check_task
    from bocl.settings import to_plain
    from bocl.wording import counted

    def warn(line: str) -> None:
        typer.echo(f"bocl: {line}", err=True)

    configs = [
        config for config, _ in plan(source, overrides or [], methods=parse_methods(methods), device="cpu", tell=warn)
    ]
    config, graph = configs[0], build_network(configs[0].network)
    if config.stream.name == "permuted-digits":  # needs no download, so the network is tried on its samples too
        first = build_stream(config)[0]
        check_task(graph, first, seen=[])
        for each in configs:
            build_method(each, graph, "cpu").check_budget(first.classes)
    if as_json:
        plain = [to_plain(each) for each in configs]
        typer.echo(json.dumps(plain if methods else plain[0], indent=1))
        return
    widths = ", ".join(f"{group.name} {group.width}" for group in graph.groups)
    named = ", ".join(each.method for each in configs)
    tasks = counted(config.stream.tasks, "task")
    typer.echo(f"{source} is valid: {named} on {tasks} of {config.stream.name}")
    typer.echo(f"network {config.network.build}: hidden groups {widths}")
