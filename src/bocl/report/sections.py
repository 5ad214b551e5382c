"""What a report holds, in order: the paper's figures and tables, then what each network did. No word of HTML here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from bocl.records.summary import RunSummary
from bocl.report.beliefs import calibration, gains, posteriors
from bocl.report.charts import Bars, Chart, Plot, Series, Table
from bocl.report.figures import (
    accuracy_against_parameters,
    accuracy_against_trials,
    accuracy_bars,
    attention_ablation,
    comparison,
    cost_bars,
    first_task,
    named,
    parameter_bars,
    reward_against_trials,
    times,
)
from bocl.report.findings import ON_PAR, Finding, findings, reductions
from bocl.report.inside import accuracy_matrix, growth, reuse, searches
from bocl.report.systems import Stream
from bocl.report.trial_curves import all_tested, compared_searches, searchers

_SPACING = "Where accuracies lie far apart, equal steps are equal factors of the error; where counts do, of the count."
_ERRORS = "Where accuracies lie far apart, equal steps up are equal factors of the error."
_WHO = {
    "bocl": "searches in our way",
    "bocl, paper's search": "as the paper does",
    "fixed": "adds the same units for every task",
    "frozen": "adds no units, attention and heads alone",
    "independent": "trains a network for each task",
    "joint": "learns all tasks so far at once",
}


@dataclass(frozen=True)
class Section:
    """A figure or table of the paper, made from our records; ``filled`` where these runs tell it.

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
    def filled(self) -> bool:
        """Whether there is anything to show."""
        return any(charts for _, charts in self.rows) or any(table.rows for _, table in self.tables)

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
    gains: tuple[Chart, ...]
    beliefs: tuple[Chart, ...]

    @property
    def all_charts(self) -> tuple[Chart, ...]:
        """Everything that is drawn of it."""
        return (*self.charts, *self.reuse, *self.searches, *self.gains, *self.beliefs)


def sections(streams: Sequence[Stream]) -> list[Section]:
    """Return the sections that compare runs."""
    compared = [stream for stream in streams if stream.systems]
    tables = tuple((stream.label, comparison(stream)) for stream in compared)
    size = _side_by_side(compared, accuracy_against_parameters)
    trials = (
        *_side_by_side(compared, accuracy_against_trials, "Accuracy, as in the paper"),
        *_side_by_side(compared, reward_against_trials, "Reward: accuracy less the price of units"),
    )
    return [
        Section(
            "comparison",
            "All systems",
            "Mean ± standard deviation over seeds. Accuracy is the mean over all tasks at the end, on test samples; "
            "BWT is the mean change since each task was learnt; parameters are all that is stored, heads and attention "
            "included; kept beside them are numbers that later tasks are learnt with, such as old samples. "
            + _who(compared)
            + _settings(compared)
            + "Time is wall-clock, of the runs that had their device to themselves, on the machine most runs were made "
            "on; “shared” marks those that had one together: their time is no one’s own.",
            tables=tables,
        ),
        Section(
            "figure-2",
            "Figure 2: accuracy, parameters and time",
            "Marks and bars are means over seeds, whiskers one standard deviation. Of a system run with several "
            "settings, the one its study calls by the method’s name stands here, else the one with the highest "
            "validation accuracy. " + _of_time(compared) + _SPACING,
            tuple(
                (stream.label, _filled([accuracy_bars(stream), parameter_bars(stream), cost_bars(stream)]))
                for stream in compared
            ),
            tables=tuple((f"Time, {stream.label}", table) for stream in compared if (table := times(stream)).rows),
            findings=tuple(findings(compared, "figure-2")),
        ),
        Section(
            "figure-3",
            "Figure 3: accuracy against parameters",
            "One mark for each system and setting. A line joins those settings of a system that none of its smaller "
            "ones equals on validation samples; the others are small. Up and to the left is better. "
            + _SPACING
            + _cut(size),
            size,
            findings=tuple(findings(compared, "figure-3")),
        ),
        Section(
            "figure-4",
            "Figure 4: the first task, as more are learnt",
            "Test accuracy on task 1 after every later task. A system that forgets nothing draws a level line. "
            + _ERRORS,
            _side_by_side(compared, first_task),
            findings=tuple(findings(compared, "figure-4")),
        ),
        Section(
            "figure-5",
            "Figure 5: accuracy and reward against trials",
            "Of the child with the best reward so far, averaged over the tasks that were searched for; trial 0, which "
            "adds no units, is left out. The reward, which all searches seek, charges for units, so accuracy may fall "
            "where a smaller child takes the lead. A search that ended stays level. Bands are one standard deviation "
            "over seeds, those that all were run with where there are such. " + _of_samples(compared),
            trials,
            findings=tuple(findings(compared, "figure-5")),
        ),
        Section(
            "table-1",
            "Table 1: parameters saved at matched accuracy",
            "Beside every setting of a rival (an asterisk marks the one of Figure 2, for which claims are judged) "
            "stands the BOCL setting of fewest parameters whose validation accuracy is no more than "
            f"{100 * ON_PAR:g} points lower; the test split matches nothing. A search picks its children by validation "
            "accuracy, which flatters them: a claim is met only where test accuracy, too, is no more than that lower. "
            "Only settings among these runs are used, nothing is interpolated.",
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
        tuple(gains(run, name)),
        (*posteriors(run, name), *calibration(run, name)),
    )


def _who(streams: Sequence[Stream]) -> str:
    """Say what systems are that the paper does not have; of BOCL, whose search it is where there are two."""
    names = {system.name for stream in streams for system in stream.systems}
    told = [name for name in _WHO if name in names and (name != "bocl" or "bocl, paper's search" in names)]
    return "Of the systems, " + "; ".join(f"“{name}” {_WHO[name]}" for name in told) + ". " if told else ""


def _settings(streams: Sequence[Stream]) -> str:
    if not any(len(system.settings) > 1 for stream in streams for system in stream.systems):
        return ""
    return (
        "Of a system run with several settings, the one its study calls by the method’s name stands here and in the "
        "figures below, else the one with the highest validation accuracy; the others, named by what they change, are "
        "folded. "
    )


def _of_time(streams: Sequence[Stream]) -> str:
    """Say whose time is shown, and whose is not, and why."""
    systems = [system for stream in streams for system in stream.systems]
    timed = [system for system in systems if system.headline.time]
    if not timed:
        return (
            "No run here had its device to itself, so that no time is shown and no claim about time is judged; "
            "(c) shows how many training samples were shown to networks instead. "
        )
    if len(timed) < len(systems):
        return "Time is that of runs alone on their device; systems whose runs shared one are not in (c). "
    return "Time is that of runs alone on their device. "


def _of_samples(streams: Sequence[Stream]) -> str:
    """Say on which samples Figure 5 scores, and what RCL has to do with it."""
    compared = [compared_searches(stream) for stream in streams]
    said = "Validation samples stand in where a run did not score test samples (test_curve)."
    if all(map(all_tested, compared)):
        said = "Test samples are scored once a task is learnt; nothing is chosen by them."
    if any(system.method == "rcl" for one in compared for system, _ in one):
        return said + " rcl grows a network of its own, without attention; the claims ask for other searches of bocl’s."
    left_out = any(searchers(stream, "rcl") for stream in streams)
    return said + (" rcl is left out, as its runs did not score them." if left_out else "")


def _cut(rows: Sequence[tuple[str, Sequence[Chart]]]) -> str:
    """Explain what is told below a title, where anything is."""
    plots = [chart for _, charts in rows for chart in charts if isinstance(chart, Plot)]
    return " Below the title stand values that lie under the axis." if any(plot.below for plot in plots) else ""


def _side_by_side(
    streams: Sequence[Stream], figure: Callable[[Stream], Plot | Bars], title: str = ""
) -> tuple[tuple[str, tuple[Chart, ...]], ...]:
    charts = _filled([figure(stream) for stream in streams])
    return ((title, charts),) if charts else ()


def _filled(charts: Sequence[Plot | Bars]) -> tuple[Chart, ...]:
    return tuple(chart for chart in charts if (chart.series if isinstance(chart, Plot) else chart.rows))
