"""What a report holds, in order: systems compared, then what each network did. There is no HTML here.

A ``Report`` is data: add sections to it to show more, and ``page`` and ``assets`` show those too.
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
from bocl.report.systems import StreamResults, arrange, by_tolerance
from bocl.report.trial_curves import accuracy_against_trials

_SPACING = "Where accuracies lie far apart, equal steps are equal factors of the error; where counts do, of the count."
_ERRORS = "Where accuracies lie far apart, equal steps up are equal factors of the error."

Rows = tuple[tuple[str, tuple[Chart, ...]], ...]


@dataclass(frozen=True)
class Section:
    """One part of a report.

    key     its name in links
    rows    charts side by side, each row under a heading unless that is ''
    tables  each under a heading
    html    more to show at its end
    files   tables that are only written as files
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
    """What is shown of some runs: the sections that compare them, and the inside of every network.

    css  rules that its sections need in addition to those of the page
    """

    streams: tuple[StreamResults, ...]
    sections: tuple[Section, ...]
    title: str = "Networks that grow, task after task"
    css: str = ""


@dataclass(frozen=True)
class Group:
    """Charts of a portrait that belong together; there are many ``small`` ones in a row."""

    charts: tuple[Chart, ...]
    heading: str = ""
    caption: str = ""
    small: bool = False


@dataclass(frozen=True)
class Portrait:
    """The inside of one run, and the other runs of its system by title."""

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
            "BWT is the mean change since each task was learnt; parameters are all that are stored, heads and "
            "attention included; “extra numbers” counts others that are kept, such as old samples and what tasks are "
            "guessed by. "
            + _of_settings(compared)
            + "Time is wall-clock time of runs that had their device to themselves, on the machine of most runs; "
            "“shared” marks times of runs that shared a device, which do not compare.",
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
            "One mark for each system and setting. A line joins the settings of a system that are more accurate on "
            "validation samples than all its smaller ones; the others are drawn small. Up and to the left is better. "
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
            "The accuracy of the child with the best reward so far, averaged over the tasks with a search; trial 0, "
            "which adds no units, is left out. The reward charges for units, so accuracy may fall when a smaller child "
            "takes the lead. A search that has ended stays level. Bands are one standard deviation over the seeds that "
            "all systems were run with, or over all seeds if there are none.",
            trials,
        ),
    ]


def portraits(stream: StreamResults) -> list[Portrait]:
    """Return the inside of the first seed of every system's headline, and of runs that are not finished."""
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
    """Return one row with a chart for each stream that has something to show in it."""
    charts = drawn([figure(stream) for stream in streams])
    return ((title, charts),) if charts else ()


def drawn(charts: Sequence[Plot | Bars]) -> tuple[Chart, ...]:
    """Return the charts that hold anything."""
    return tuple(chart for chart in charts if (chart.series if isinstance(chart, Plot) else chart.rows))


def _portrait(stream: StreamResults, title: str, run: RunSummary, others: Sequence[tuple[str, RunSummary]]) -> Portrait:
    name = f"{stream.slug}-{title}-seed-{run.seed}"
    groups = (
        Group((growth(run, name), accuracy_matrix(run, name), *reuse(run, name))),
        Group(tuple(searches(run, name)), "The search of each task", _of_stopped(run), small=True),
        Group(
            tuple(gains(run, name)),
            "Expected gain in reward, when a trial was asked for",
            "Other trials were spread evenly over the widths, to start the search or to check what earlier tasks "
            "suggest. " + _of_least_gain(run),
            small=True,
        ),
        Group(
            (*posteriors(run, name), *calibration(run, name)),
            "What the search believed in the end",
            "Bars: the probability that the best widths, among those tried and some hundreds of others, have so many "
            "units in a layer; the dot marks what was kept. Calibration: each trial’s accuracy less what the process "
            "predicts from all others, in the standard deviations it predicts, and the share of trials inside its 50 % "
            "(hollow) and 90 % intervals; the dotted and dashed lines show these intervals.",
        ),
    )
    shown = tuple(group for group in groups if group.charts)
    return Portrait(f"{title}, seed {run.seed}", run, shown, tuple(others))


def _of_settings(streams: Sequence[StreamResults]) -> str:
    if not any(len(system.settings) > 1 for stream in streams for system in stream.systems):
        return ""
    return (
        "If a system was run with several settings, this table and the figures below show the one marked as its "
        "headline, else the one with the highest validation accuracy; the others are folded, with what they change. "
    )


def _of_time(streams: Sequence[StreamResults]) -> str:
    """Return whose time is shown, whose is not, and why."""
    times = [system.headline.time for stream in streams for system in stream.systems]
    if not any(times):
        return "No run here had its device to itself, so the number of training samples is shown in place of time. "
    missing = "" if all(times) else "; systems whose runs shared one have no bar"
    return f"Time is that of runs that had their device to themselves{missing}. "


def _of_least_gain(run: RunSummary) -> str:
    if by_tolerance(run.config):
        return "A gain is accuracy, or parameters saved within the tolerance; the search ends when little is promised."
    return "After a few trials, the search ends when no widths promise as much as the dotted line."


def _of_stopped(run: RunSummary) -> str:
    if not any(trial.stopped for task in run.tasks for trial in task.trials):
        return ""
    return "Children that were stopped early, because others did better, have no accuracy and are not shown."


def _of_values_below(rows: Rows) -> str:
    plots = [chart for _, charts in rows for chart in charts if isinstance(chart, Plot)]
    return " Values below the axis are listed under the title." if any(plot.below for plot in plots) else ""
