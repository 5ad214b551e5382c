"""What is printed. Names in records, configs and paths may come from anybody, and can hold characters that steer a
terminal, turn text around or break lines: everything is made printable here.
"""

from __future__ import annotations

import json

import typer
from rich.console import Console
from rich.markup import escape

from bocl.wording import one_line


def say(line: str) -> None:
    """Print a line of results."""
    typer.echo(one_line(line))


def warn(line: str, *below: str) -> None:
    """Print a line for the person, and others below it, where they do not mix with results."""
    typer.echo("\n  ".join([f"bocl: {one_line(line)}", *map(one_line, below)]), err=True)


def print_json(value: object) -> None:
    """Print results as JSON in ASCII."""
    typer.echo(json.dumps(value, indent=1, allow_nan=False).replace("\x7f", "\\u007f"))


def literal(text: str) -> str:
    """Return a text for a console, which shows it as it is."""
    return escape(one_line(text))


def make_console() -> Console:
    """Return the console for results: as wide as the terminal, or wide enough for any table if there is none."""
    console = Console(emoji=False)
    return console if console.is_terminal else Console(width=200, emoji=False)
