"""What a report holds, in order: the paper's figures and tables, then what each network did. No word of HTML here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bocl.records.summary import RunSummary
from bocl.report.charts import Bars, Chart, Plot, Series, Table
from bocl.report.figures import (
    accuracy_against_parameters,
    accuracy_against_trials,
    accuracy_bars,
    attention_ablation,
    comparison,
    first_task,
    named,
    parameter_bars,
    time_bars,
)
from bocl.report.findings import ON_PAR, Finding, findings, reductions
from bocl.report.inside import accuracy_matrix, growth, reuse, searches
from bocl.report.systems import Stream

_SPACING = "Where accuracies lie far apart, equal steps up are equal factors of the error."


@dataclass(frozen=True)
class Section:
    """A figure or table of the paper, made from our records.

    key       names it in links, files and claims
    rows      charts side by side, under a heading where it is not ''
    tables    each under a heading
    findings  what the paper claims here, and ours
    """

    key: str
    title: str
    caption: str
    rows: tuple[tuple[str, tuple[Chart, ...]], ...] = ()
    tables: tuple[tuple[str, Table], ...] = ()
    findings: tuple[Finding, ...] = ()

    @property
    def legend(self) -> tuple[Series, ...]:
        """One series for each name that its plots show."""
        plots = [chart for _, charts in self.rows for chart in charts if isinstance(chart, Plot)]
        return tuple({series.name: series for plot in plots for series in plot.series}.values())


@dataclass(frozen=True)
class Portrait:
    """One run from inside."""

    name: str
    title: str
    run: RunSummary
    charts: tuple[Chart, ...]
    reuse: tuple[Chart, ...]
    searches: tuple[Chart, ...]


def sections(streams: Sequence[Stream]) -> list[Section]:
    """Return the sections that compare runs; one that these runs cannot fill is left out."""
    compared = [stream for stream in streams if stream.systems]
    tables = tuple((stream.label, comparison(stream)) for stream in compared)
    found = [
        Section(
            "comparison",
            "All systems",
            "Mean ± standard deviation over seeds. Accuracy is the mean over all tasks at the end, on test samples; "
            "BWT is the mean change since each task was learnt; parameters are all that is stored, heads and attention "
            "included. An asterisk marks the setting with the highest validation accuracy, which stands for its system "
            "in the figures below. Time is wall-clock; “shared” marks runs that had a device together: their time is "
            "no one's own.",
            tables=tables,
        ),
        Section(
            "figure-2",
            "Figure 2: accuracy, parameters and time",
            "Marks and bars are means over seeds, whiskers one standard deviation. Of a system run with several "
            "settings, the one with the highest validation accuracy stands here. Time is that of runs alone on their "
            "device.",
            tuple(
                (stream.label, _filled([accuracy_bars(stream), parameter_bars(stream), time_bars(stream)]))
                for stream in compared
            ),
            findings=tuple(findings(compared, "figure-2")),
        ),
        Section(
            "figure-3",
            "Figure 3: accuracy against parameters",
            "One mark for each system and setting; the settings of one system make a curve. Up and to the left is "
            "better. " + _SPACING,
            _side_by_side(compared, accuracy_against_parameters),
            findings=tuple(findings(compared, "figure-3")),
        ),
        Section(
            "figure-4",
            "Figure 4: the first task, as more are learnt",
            "Test accuracy on task 1 after every later task. A system that forgets nothing draws a level line. "
            + _SPACING,
            _side_by_side(compared, first_task),
            findings=tuple(findings(compared, "figure-4")),
        ),
        Section(
            "figure-5",
            "Figure 5: accuracy against trials",
            "Accuracy of the child with the best reward so far, averaged over the tasks that were searched for, on the "
            "test split where every run has scored it there (test_curve); trial 0 adds no units. A search that ended "
            "stays level. Bands are one standard deviation over seeds.",
            _side_by_side(compared, accuracy_against_trials),
            findings=tuple(findings(compared, "figure-5")),
        ),
        Section(
            "table-1",
            "Table 1: parameters saved at matched accuracy",
            "Each rival stands with the setting that has its highest validation accuracy. Beside it stands the BOCL "
            f"setting of fewest parameters whose validation accuracy is no more than {100 * ON_PAR:g} points lower; "
            "the test split matches nothing. Only settings among these runs are used, nothing is interpolated.",
            tables=(("", reductions(compared)),),
            findings=tuple(findings(compared, "table-1")),
        ),
        Section(
            "attention",
            "Attention, with and without",
            "Runs that differ in attention alone, paired by seed: average test accuracy with it less that without.",
            _side_by_side(compared, attention_ablation),
            findings=tuple(findings(compared, "attention")),
        ),
    ]
    return [section for section in found if any(charts for _, charts in section.rows) or _any_rows(section.tables)]


def portraits(stream: Stream) -> list[Portrait]:
    """Return the first seed of every system's headline from inside, and runs that are not finished."""
    shown = [(named(system, system.headline), system.headline.runs[0]) for system in stream.systems]
    shown += [(f"{run.method}, not finished", run) for run in stream.unfinished if run.tasks]
    return [portrait(stream, title, run) for title, run in shown]


def portrait(stream: Stream, title: str, run: RunSummary) -> Portrait:
    """Return one run from inside."""
    name = f"{stream.slug}-{title}-seed-{run.seed}"
    return Portrait(
        name,
        f"{title}, seed {run.seed}",
        run,
        (growth(run, name), accuracy_matrix(run, name)),
        tuple(reuse(run, name)),
        tuple(searches(run, name)),
    )


def _side_by_side(
    streams: Sequence[Stream], figure: Callable[[Stream], Plot | Bars]
) -> tuple[tuple[str, tuple[Chart, ...]], ...]:
    return (("", _filled([figure(stream) for stream in streams])),)


def _filled(charts: Sequence[Plot | Bars]) -> tuple[Chart, ...]:
    return tuple(chart for chart in charts if (chart.series if isinstance(chart, Plot) else chart.rows))


def _any_rows(tables: Sequence[tuple[str, Table]]) -> bool:
    return any(table.rows for _, table in tables)
