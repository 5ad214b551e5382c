"""``bocl bench search`` and ``bocl bench table``: searchers compared by replay, and what they are replayed on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def bench_search_command(
    table: Annotated[
        Path | None, typer.Argument(help="A table made by `bocl bench table`; without one, simulated tasks.")
    ] = None,
    alphas: Annotated[str, typer.Option("--alpha", help="α of the reward, several separated by commas.")] = "5e-3,1e-2",
    replays: Annotated[int, typer.Option(min=2, help="How often each searcher is replayed.")] = 20,
    trials: Annotated[int, typer.Option(min=4, help="Trials of each replay.")] = 30,
    round_size: Annotated[int, typer.Option(min=1, help="Most children a searcher asks for at once.")] = 8,
    with_optuna: Annotated[bool, typer.Option("--optuna/--no-optuna", help="Compare with Optuna's samplers.")] = True,
    figure: Annotated[Path | None, typer.Option(help="Draw regret against trials into this SVG file.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the standings as JSON.")] = False,
) -> None:
    """Compare searchers by replay on a table of real trials, or on simulated tasks."""
    from bocl.benchmarks.search import compare, contestants, streams_of
    from bocl.benchmarks.trial_table import read_table
    from bocl.cli.regret_figure import draw_regret

    read = None if table is None else read_table(table)
    searchers = contestants(round_size=round_size, with_optuna=with_optuna)
    standings = []
    for alpha in _alphas(alphas):
        standings += compare(
            streams_of(read, alpha),
            searchers,
            alpha=alpha,
            replays=replays,
            trials=trials,
            tell=lambda standing: None if as_json else typer.echo(standing.describe()),
        )
    if figure is not None:
        draw_regret(standings, figure)
    if as_json:
        typer.echo(json.dumps([asdict(standing) for standing in standings], indent=1))


def bench_table_command(
    preset: Annotated[str, typer.Argument(help="A preset or config file: its stream, network, recipe and bounds.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The JSON file to write.")],
    tasks: Annotated[int, typer.Option(min=1, help="Tasks after the first.")] = 5,
    widths: Annotated[int, typer.Option(min=8, help="Widths of each task.")] = 300,
    seeds: Annotated[int, typer.Option(min=2, help="Trainings of each widths.")] = 4,
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="Change one setting.")] = None,
    data: Annotated[str | None, typer.Option(help="Folder of the data files; else BOCL_DATA or the cache.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Train hundreds of widths for several tasks and write what each came to: what searchers are replayed on."""
    from bocl.benchmarks.growth_table import make_table
    from bocl.benchmarks.trial_table import TrialTable, write_table

    def keep(table: TrialTable) -> None:
        write_table(table, out)
        task = table.tasks[-1]
        typer.echo(f"{task.name}: {len(task.widths)} widths, {seeds} trainings each, written to {out}")

    make_table(
        preset,
        overrides or [],
        tasks=tasks,
        widths=widths,
        seeds=seeds,
        device=device,
        data=data,
        tell=keep,
    )


def _alphas(text: str) -> list[float]:
    from bocl.checks import number
    from bocl.errors import ConfigError

    try:
        return [number(least=0)("--alpha", float(word)) for word in text.split(",")]
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"--alpha is '{text}'; give numbers separated by commas, such as 5e-3,1e-2") from error
