"""The command line. Exit codes: 0 done, 1 the work failed, 2 the input was wrong."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import typer

from bocl.cli.audit import audit_command
from bocl.cli.bench import bench_command
from bocl.cli.export import export_command
from bocl.cli.learn import learn_command
from bocl.cli.list import list_command
from bocl.cli.pareto import pareto_command
from bocl.cli.pick import pick_command
from bocl.cli.predict import predict_command
from bocl.cli.report import report_command
from bocl.cli.run import run_command
from bocl.cli.serve import serve_command
from bocl.cli.show import show_command
from bocl.cli.status import status_command
from bocl.cli.study import study_command
from bocl.cli.tasks import tasks_command
from bocl.cli.track import track_command
from bocl.cli.trials import trials_command
from bocl.cli.validate import validate_command
from bocl.errors import BoclError, DataWarning, GoalWarning, InputError, NetworkWarning
from bocl.version import __version__
from bocl.wording import one_line

UsageError: Any = typer.BadParameter.__base__  # Typer does not export it under a name

app = typer.Typer(
    name="bocl",
    help="Networks that learn one task after another, never forget, and grow only as much as each task needs.",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("run")(run_command)
app.command("learn")(learn_command)
app.command("tasks")(tasks_command)
app.command("predict")(predict_command)
app.command("export")(export_command)
app.command("serve")(serve_command)
app.command("study")(study_command)
app.command("status")(status_command)
app.command("show")(show_command)
app.command("pareto")(pareto_command)
app.command("pick")(pick_command)
app.command("audit")(audit_command)
app.command("report")(report_command)
app.command("track")(track_command)
app.command("list")(list_command)
app.command("trials")(trials_command)
app.command("validate")(validate_command)
app.command("bench")(bench_command)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        typer.echo(f"bocl {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(2)


def main(commands: typer.Typer = app) -> None:
    """Run a command line, by default that of bocl, and turn every mistake into one clear message."""
    name = commands.info.name
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show an arrow is no reason to stop
    try:
        if any("\0" in word for word in sys.argv):
            raise InputError("the command line holds a null character, which no name or value can have")
        with _warnings_in_one_line(name):
            sys.exit(commands(standalone_mode=False))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except BoclError as error:
        print(f"{name}: " + "\n  ".join(one_line(str(line)) for line in error.args), file=sys.stderr)
        sys.exit(2 if isinstance(error, InputError) else 1)
    except UsageError as error:
        print(
            f"{name}: {one_line(error.format_message())} (see {name} --help)",
            file=sys.stderr,
        )
        sys.exit(2)
    except OSError as error:
        if error.filename is not None:  # what is written is told as a WorkError, so this was to be read
            print(f"{name}: {one_line(str(error.filename))} cannot be read: {error.strerror}", file=sys.stderr)
            sys.exit(2)
        # Whoever reads the output has gone, or its disk is full.
        with contextlib.suppress(OSError):
            print(f"{name}: cannot write: {error.strerror}", file=sys.stderr)
        os._exit(1)  # an ordinary exit would try to write the rest again


@contextlib.contextmanager
def _warnings_in_one_line(name: str | None) -> Iterator[None]:
    """Show our own warnings as messages, without the line of code that they come from."""
    usual = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], filename: str, lineno: int, *more: Any) -> None:
        if issubclass(category, DataWarning | GoalWarning | NetworkWarning):
            print(f"{name}: {one_line(str(message))}", file=sys.stderr)
        else:
            usual(message, category, filename, lineno, *more)

    with warnings.catch_warnings():
        warnings.showwarning = show  # type: ignore[assignment]
        yield
