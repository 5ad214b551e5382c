"""Compares searchers by replay, makes the tables for it, and draws the results.

python -m replication.search replay [TABLE]                   standings of every searcher
python -m replication.search table PRESET -o TABLE            a table of real trials
python -m replication.search figure RECORD... -o FOLDER       regret against trials, from the output of `replay --json`
"""

from __future__ import annotations

import json
import math
import sys
from dataclasses import asdict
from datetime import date
from pathlib import Path
from typing import Annotated

import typer

from bocl.cli.main import main
from bocl.errors import ConfigError, FolderError
from bocl.experiment.provenance import versions
from bocl.records.files import check_place, write_whole
from bocl.report.layout import draw
from replication.search.growth_table import make_table
from replication.search.regret_figure import read_standings, regret_plots
from replication.search.standings import Standing, compare, contestants, streams_of, suggestion_milliseconds
from replication.search.trial_table import TrialTable, read_table, write_table

AFTER = (5, 10, 30)  # trials after which regret is reported
app = typer.Typer(name="python -m replication.search", add_completion=False, rich_markup_mode=None)


@app.command("replay")
def replay_command(
    table: Annotated[
        Path | None, typer.Argument(help="A table made by the command `table`; without one, simulated tasks.")
    ] = None,
    alphas: Annotated[str, typer.Option("--alpha", help="α of the reward, several separated by commas.")] = "5e-3,1e-2",
    replays: Annotated[int, typer.Option(min=2, help="How often each searcher is replayed.")] = 20,
    trials: Annotated[int, typer.Option(min=4, help="Trials of each replay.")] = 30,
    round_size: Annotated[int, typer.Option(min=1, help="Most children a searcher asks for at once.")] = 8,
    searchers: Annotated[
        str | None,
        typer.Option(help="Which searchers, separated by commas; default: all, Optuna's if it is installed."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the standings as JSON.")] = False,
) -> None:
    """Compare searchers by replay on a table of real trials, or on simulated tasks."""
    read = None if table is None else read_table(table)
    chosen = contestants(None if searchers is None else searchers.split(","), round_size=round_size)
    standings: list[Standing] = []

    def show(line: str) -> None:
        if not as_json:
            typer.echo(line)

    for alpha in _alphas(alphas):
        show(_heading(alpha, trials))
        standings += compare(
            streams_of(read, alpha),
            chosen,
            alpha=alpha,
            replays=replays,
            trials=trials,
            tell=lambda standing: show(_row(standing)),
        )
        limit = 100 * standings[-1].limit
        show(f"knowing every validation accuracy would still leave {limit:.2f} points of regret\n")
    milliseconds = suggestion_milliseconds()
    if not as_json:
        typer.echo(f"our search takes {milliseconds:.0f} ms for one point of a round of 8, at 200 trials")
        return
    about = {
        "command": f"{app.info.name} {' '.join(sys.argv[1:])}",
        "date": date.today().isoformat(),
        "versions": versions(),
        "round_size": round_size,
        "suggestion_milliseconds": round(milliseconds, 1),
    }
    typer.echo(json.dumps({**about, "standings": [asdict(standing) for standing in standings]}))


@app.command("table")
def table_command(
    preset: Annotated[str, typer.Argument(help="A preset or config file: its stream, network, recipe and bounds.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The JSON file to write.")],
    tasks: Annotated[int, typer.Option(min=1, help="Tasks after the first.")] = 5,
    widths: Annotated[int, typer.Option(min=8, help="Choices of widths per task.")] = 300,
    seeds: Annotated[int, typer.Option(min=2, help="Trainings per choice of widths.")] = 4,
    overrides: Annotated[list[str] | None, typer.Option("--set", metavar="a.b=c", help="Change one setting.")] = None,
    data: Annotated[str | None, typer.Option(help="Folder of the data files; else BOCL_DATA or the cache.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
) -> None:
    """Train hundreds of widths for several tasks and write their accuracies, for searchers to be replayed on.

    A table that exists already is continued after its last task.
    """
    check_place(out, b'{"format": ', "table of trials")
    if not out.parent.is_dir():
        raise FolderError(f"{out} cannot be written: there is no folder {out.parent}; give another file with -o")

    def save(table: TrialTable) -> None:
        write_table(table, out)
        task = table.tasks[-1]
        typer.echo(f"{task.name}: {len(task.widths)} widths, {seeds} trainings each, written to {out}")

    begun = read_table(out) if out.exists() else None
    table = make_table(
        preset,
        overrides or [],
        begun=begun,
        tasks=tasks,
        widths=widths,
        seeds=seeds,
        device=device,
        data=data,
        tell=save,
    )
    if begun is not None and table.tasks == begun.tasks:
        typer.echo(f"{out} has these tasks already: {', '.join(task.name for task in table.tasks)}")


@app.command("figure")
def figure_command(
    records: Annotated[list[Path], typer.Argument(metavar="RECORD...", help="What `replay --json` printed.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the figures.")],
) -> None:
    """Draw regret against trials, a figure for each record and α."""
    for record in records:
        for plot in regret_plots(record.stem, read_standings(record)):
            place = out / f"{plot.name}.svg"
            write_whole(place, draw(plot, legend=True).standalone().encode())
            typer.echo(str(place))


def _heading(alpha: float, trials: int) -> str:
    """Return the heading of the rows of one α."""
    after = "".join(f"{f'after {at}':>15}" for at in AFTER if at <= trials)
    return (
        f"α {alpha:g}: trials and rounds until as good as the best (median); regret in points (mean ± sd)\n"
        f"{'':12}{'to the best':>16}{'regret of widths':>{max(len(after), 16)}}{'as in a run':>27}\n"
        f"{'searcher':12}{'trials':>8}{'rounds':>8}{after}{'trials':>8}{'rounds':>8}{'kept child':>11}"
    )


def _row(standing: Standing) -> str:
    """Return one searcher's row."""
    most = len(standing.regret) - 1
    found = math.isfinite(standing.trials)
    numbers = (f"{standing.trials:.1f}", f"{standing.rounds:.1f}") if found else (f"> {most}", "")
    figures = [f"{100 * mean:.2f} ± {100 * sd:5.2f}" for mean, sd in zip(standing.regret, standing.spread, strict=True)]
    after = "".join(f"{figures[at]:>15}" for at in AFTER if at <= most)
    ended = standing.ended
    in_run = f"{ended.trials:8.1f}{ended.rounds:8.1f}{100 * ended.regret:11.2f}"
    return f"{standing.searcher:12}{numbers[0]:>8}{numbers[1]:>8}{after}{in_run}"


def _alphas(text: str) -> list[float]:
    from bocl.checks import NonNegative, checked

    try:
        return [checked("--alpha", float(word), NonNegative) for word in text.split(",")]
    except ValueError as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"--alpha is '{text}'; give numbers separated by commas, such as 5e-3,1e-2") from error


if __name__ == "__main__":
    main(app)
