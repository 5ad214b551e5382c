"""What a report holds, in order: systems compared, then what each network did. No word of HTML here.

A ``Report`` is data: whoever has more to say of some runs adds sections to it, and ``page`` and ``assets`` show them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bocl.records.summary import RunSummary
from bocl.report.beliefs import calibration, gains, posteriors
from bocl.report.charts import Bars, Chart, Plot, Series, Table
from bocl.report.figures import (
    accuracy_against_parameters,
    accuracy_bars,
    comparison,
    cost_bars,
    first_task,
    named,
    parameter_bars,
)
from bocl.report.inside import accuracy_matrix, growth, reuse, searches
from bocl.report.systems import StreamResults, arrange
from bocl.report.trial_curves import accuracy_against_trials

_SPACING = "Where accuracies lie far apart, equal steps are equal factors of the error; where counts do, of the count."
_ERRORS = "Where accuracies lie far apart, equal steps up are equal factors of the error."

Rows = tuple[tuple[str, tuple[Chart, ...]], ...]


@dataclass(frozen=True)
class Section:
    """One part of a report; ``filled`` where these runs tell it.

    key     names it in links
    rows    charts side by side, under a heading where it is not ''
    tables  each under a heading
    html    what else stands at its end
    files   tables that are written as files only
    """

    key: str
    title: str
    caption: str
    rows: Rows = ()
    tables: tuple[tuple[str, Table], ...] = ()
    html: str = ""
    files: tuple[Table, ...] = ()

    @property
    def filled(self) -> bool:
        """Whether there is anything to show."""
        return any(charts for _, charts in self.rows) or any(table.rows for _, table in self.tables) or bool(self.html)

    @property
    def legend(self) -> tuple[Series, ...]:
        """One series for each name that its plots show."""
        plots = [chart for _, charts in self.rows for chart in charts if isinstance(chart, Plot)]
        return tuple({series.name: series for plot in plots for series in plot.series}.values())


@dataclass(frozen=True)
class Report:
    """What is shown of some runs: the sections that compare them, and every network from inside.

    css  rules that its own sections need besides those of the page
    """

    streams: tuple[StreamResults, ...]
    sections: tuple[Section, ...]
    title: str = "Networks that grow, task after task"
    css: str = ""


@dataclass(frozen=True)
class Group:
    """Charts of a portrait that belong together; ``small`` ones stand many in a row."""

    charts: tuple[Chart, ...]
    heading: str = ""
    caption: str = ""
    small: bool = False


@dataclass(frozen=True)
class Portrait:
    """One run from inside, and the titles of the other runs of its system."""

    title: str
    run: RunSummary
    groups: tuple[Group, ...]
    others: tuple[tuple[str, RunSummary], ...] = ()


def compare(runs: Sequence[RunSummary]) -> Report:
    """Return the report of any runs."""
    streams = arrange(runs)
    return Report(tuple(streams), tuple(sections(streams)))


def sections(streams: Sequence[StreamResults]) -> list[Section]:
    """Return the sections that compare runs: comparison, bars, size, first-task, trials."""
    compared = [stream for stream in streams if stream.systems]
    size = side_by_side(compared, accuracy_against_parameters)
    trials = side_by_side(compared, accuracy_against_trials)
    return [
        Section(
            "comparison",
            "All systems",
            "Mean ± standard deviation over seeds. Accuracy is the mean over all tasks at the end, on test samples; "
            "BWT is the mean change since each task was learnt; parameters are all that is stored, heads and attention "
            "included; kept beside them are numbers that later tasks are learnt with, such as old samples. "
            + _of_settings(compared)
            + "Time is wall-clock, of the runs that had their device to themselves, on the machine most runs were made "
            "on; “shared” marks those that had one together: their time is no one’s own.",
            tables=tuple((stream.label, comparison(stream)) for stream in compared),
        ),
        Section(
            "bars",
            "Accuracy, parameters and time",
            "Marks and bars are means over seeds, whiskers one standard deviation. " + _of_time(compared) + _SPACING,
            tuple(
                (stream.label, drawn([accuracy_bars(stream), parameter_bars(stream), cost_bars(stream)]))
                for stream in compared
            ),
        ),
        Section(
            "size",
            "Accuracy against parameters",
            "One mark for each system and setting. A line joins those settings of a system that none of its smaller "
            "ones equals on validation samples; the others are small. Up and to the left is better. "
            + _SPACING
            + _of_values_below(size),
            size,
        ),
        Section(
            "first-task",
            "The first task, as more are learnt",
            "Test accuracy on task 1 after every later task. A system that forgets nothing draws a level line. "
            + _ERRORS,
            side_by_side(compared, first_task),
        ),
        Section(
            "trials",
            "Accuracy against trials",
            "Of the child with the best reward so far, averaged over the tasks that were searched for; trial 0, which "
            "adds no units, is left out. The reward charges for units, so accuracy may fall where a smaller child "
            "takes the lead. A search that ended stays level. Bands are one standard deviation over seeds, those that "
            "all were run with where there are such.",
            trials,
        ),
    ]


def portraits(stream: StreamResults) -> list[Portrait]:
    """Return the first seed of every system's headline from inside, and runs that are not finished."""
    found = []
    for system in stream.systems:
        shown = system.headline.runs[0]
        others = [
            (f"{named(system, setting)}, seed {run.seed}", run)
            for setting in system.settings
            for run in setting.runs
            if run is not shown
        ]
        found.append(_portrait(stream, named(system, system.headline), shown, others))
    begun = [run for run in stream.unfinished if run.tasks]
    return [*found, *(_portrait(stream, f"{run.method}, not finished", run, ()) for run in begun)]


def side_by_side(
    streams: Sequence[StreamResults], figure: Callable[[StreamResults], Plot | Bars], title: str = ""
) -> Rows:
    """Return one row with a chart of each stream that has something to show in it."""
    charts = drawn([figure(stream) for stream in streams])
    return ((title, charts),) if charts else ()


def drawn(charts: Sequence[Plot | Bars]) -> tuple[Chart, ...]:
    """Return the charts that hold anything."""
    return tuple(chart for chart in charts if (chart.series if isinstance(chart, Plot) else chart.rows))


def _portrait(stream: StreamResults, title: str, run: RunSummary, others: Sequence[tuple[str, RunSummary]]) -> Portrait:
    name = f"{stream.slug}-{title}-seed-{run.seed}"
    groups = (
        Group((growth(run, name), accuracy_matrix(run, name), *reuse(run, name))),
        Group(tuple(searches(run, name)), "The search of each task", small=True),
        Group(
            tuple(gains(run, name)),
            "Expected gain in reward, when a trial was asked for",
            "Other trials were spread evenly over the widths, to open the search or to doubt what earlier tasks "
            "suggest. After a few trials, the search ends when no widths promise as much as the dotted line.",
            small=True,
        ),
        Group(
            (*posteriors(run, name), *calibration(run, name)),
            "What the search believed in the end",
            "Bars: the probability that the best widths, of those tried and some hundreds of others, have so many "
            "units in a layer; the dot is what was kept. Calibration: each trial’s accuracy less what the process "
            "predicts from all others, in its own standard deviations, and the share of trials inside its 50 % "
            "(hollow) and 90 % intervals, which the dotted and the dashed lines show.",
        ),
    )
    shown = tuple(group for group in groups if group.charts)
    return Portrait(f"{title}, seed {run.seed}", run, shown, tuple(others))


def _of_settings(streams: Sequence[StreamResults]) -> str:
    if not any(len(system.settings) > 1 for stream in streams for system in stream.systems):
        return ""
    return (
        "Of a system run with several settings, the one marked as its headline stands here and in the figures below, "
        "else the one with the highest validation accuracy; the others, named by what they change, are folded. "
    )


def _of_time(streams: Sequence[StreamResults]) -> str:
    """Say whose time is shown, and whose is not, and why."""
    times = [system.headline.time for stream in streams for system in stream.systems]
    if not any(times):
        return (
            "No run here had its device to itself, so no time is shown, but how many training samples were shown to "
            "networks. "
        )
    missing = "" if all(times) else "; systems whose runs shared one have no bar"
    return f"Time is that of runs alone on their device{missing}. "


def _of_values_below(rows: Rows) -> str:
    plots = [chart for _, charts in rows for chart in charts if isinstance(chart, Plot)]
    return " Below the title stand values that lie under the axis." if any(plot.below for plot in plots) else ""
