"""The paper's figures, from our records: one chart for each stream, mean ± standard deviation over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean

from bocl.records.summary import RunSummary
from bocl.report.charts import Axis, Bar, Bars, Plot, Point, Series, Table
from bocl.report.scale import by_errors, spans_decades, without_the_lowest
from bocl.report.style import Style, style_of
from bocl.report.systems import Setting, Spread, Stream, System, pairs, seconds, shared
from bocl.report.trial_curves import (
    Compared,
    all_tested,
    by_the_paper,
    compared_searches,
    rewarded_alike,
    trial_curve,
)
from bocl.wording import counted, duration, mean_and_spread, millions, percent, points

ACCURACY = Axis("average test accuracy (%)", "percent")
_SCALES = ((7200.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))


def accuracy_bars(stream: Stream) -> Bars:
    """Figure 2 (a): average test accuracy over all tasks at the end."""
    rows = [
        _bar(system, system.headline, "accuracy", lambda value: f"{100 * value:.2f}") for system in main_systems(stream)
    ]
    axis = by_errors(ACCURACY, [row.value for row in rows])
    return Bars(f"figure-2a-{stream.slug}", "(a) accuracy", axis, tuple(rows), from_zero=False)


def parameter_bars(stream: Stream) -> Bars:
    """Figure 2 (b): parameters stored at the end: weights, heads and attention."""
    rows = [_bar(system, system.headline, "parameters", short_count) for system in main_systems(stream)]
    return _counts(f"figure-2b-{stream.slug}", "(b) parameters", "parameters stored", rows)


def cost_bars(stream: Stream) -> Bars:
    """Figure 2 (c): time; where no run had its device to itself, the samples trained, which no neighbour changes."""
    found = time_bars(stream)
    if found.rows:
        return found
    rows = [_bar(system, system.headline, "samples", short_count) for system in main_systems(stream)]
    return _counts(f"figure-2c-{stream.slug}", "(c) samples trained, not time", "training samples shown", rows)


def time_bars(stream: Stream) -> Bars:
    """Figure 2 (c): wall-clock time of learning all tasks, of runs that had their device to themselves."""
    timed = [(system, system.headline.time) for system in main_systems(stream)]
    longest = max((time.mean for _, time in timed if time), default=0.0)
    _, scale, unit = next(entry for entry in _SCALES if longest >= entry[0])
    rows = []
    for system, time in timed:
        if time is None:
            continue
        shown = millions(system.headline.spread("samples").mean)
        rows.append(
            Bar(
                system.name,
                style_of(system),
                time.mean / scale,
                None if time.sd is None else time.sd / scale,
                _with_sd(time, lambda value: f"{value / scale:.1f}"),
                f"{named(system, system.headline)}: {duration(time.mean)}, {shown} samples trained",
            )
        )
    return Bars(f"figure-2c-{stream.slug}", "(c) time", Axis(f"training time ({unit})"), tuple(rows))


def accuracy_against_parameters(stream: Stream) -> Plot:
    """Figure 3: one mark for each setting; a line joins those of one system that are on its front."""
    series = []
    for system in main_systems(stream):
        found = []
        for setting in system.settings:
            accuracy, size = setting.spread("accuracy"), setting.spread("parameters")
            note = f"{named(system, setting)}: {_accuracy(setting)}, {short_count(size.mean)} parameters"
            aside = setting not in system.front
            found.append(Point(size.mean, accuracy.mean, note, size.sd, accuracy.sd, aside=aside))
        series.append(Series(system.name, style_of(system), tuple(found)))
    factors = spans_decades(point.x for each in series for point in each.points)
    upward = _spaced(ACCURACY, series)
    return Plot(
        f"figure-3-{stream.slug}",
        stream.label,
        Axis("parameters stored", "count", "factors" if factors else "even"),
        upward,
        tuple(series),
        named=True,
        y_range=_near(upward, series),
    )


def first_task(stream: Stream) -> Plot:
    """Figure 4: test accuracy on task 1 after each task."""
    series = []
    for system in main_systems(stream):
        rows = [[row[0] for row in run.matrix] for run in system.headline.runs]
        spreads = [Spread.of(column) for column in zip(*rows, strict=True)]
        found = [
            Point(
                index + 1,
                spread.mean,
                f"{named(system, system.headline)}, after task {index + 1}: {percent_with_sd(spread)}",
                y_sd=spread.sd,
            )
            for index, spread in enumerate(spreads)
        ]
        series.append(Series(system.name, style_of(system), tuple(found)))
    return Plot(
        f"figure-4-{stream.slug}",
        stream.label,
        Axis("tasks learnt", "count"),
        _spaced(Axis("test accuracy on task 1 (%)", "percent"), series),
        tuple(series),
    )


def accuracy_against_trials(stream: Stream) -> Plot:
    """Figure 5: accuracy of the best child so far, averaged over tasks, as trials are made.

    On test samples where the searches for BOCL have scored them, else on validation samples.
    """
    return _against_trials(f"figure-5-{stream.slug}", stream.label, compared_searches(stream))


def reward_against_trials(stream: Stream) -> Plot:
    """Figure 5, of what is searched for: the same less the price of its units, where all searches pay the same."""
    return _against_trials(f"figure-5-reward-{stream.slug}", stream.label, rewarded_alike(stream), priced=True)


def _against_trials(name: str, title: str, compared: Compared, *, priced: bool = False) -> Plot:
    on_test = all_tested(compared)
    series = []
    for system, runs in compared:
        curve = trial_curve(runs, on_test=on_test, priced=priced)
        found = [
            Point(
                trial,
                spread.mean,
                f"{system.name}, {counted(trial, 'trial')}: {percent_with_sd(spread)}",
                y_sd=spread.sd,
            )
            for trial, spread in enumerate(curve)
        ]
        after_one = tuple(found[1:])  # trial 0, no units, is no search's choice and far below the others
        if after_one:
            series.append(Series(system.name, style_of(system), after_one, joined="steps"))
    samples, figure = "test" if on_test else "validation", "reward" if priced else "accuracy"
    upward = _spaced(Axis(f"{samples} {figure}, best so far (%)", "percent"), series)
    return Plot(name, title, Axis("trials per task", "count"), upward, tuple(series))


def attention_gains(stream: Stream) -> list[tuple[RunSummary, float]]:
    """Return for every pair of BOCL runs with and without attention, else alike, what attention is worth."""
    return [
        (with_it, with_it.figures()["accuracy"] - without.figures()["accuracy"])
        for with_it, without in pairs(stream, "growth.attention", True, False)
        if with_it.method == "bocl"
    ]


def attention_ablation(stream: Stream) -> Bars:
    """What attention adds to test accuracy, in points, pair by pair."""
    gains = attention_gains(stream)
    rows = [
        Bar(f"seed {run.seed}", Style("bocl", "circle", hollow=True), 100 * gain, None, points(gain))
        for run, gain in gains
    ]
    if gains:
        over = Spread.of([gain for _, gain in gains])
        sd = None if over.sd is None else 100 * over.sd
        rows.append(
            Bar("mean", Style("bocl"), 100 * over.mean, sd, _with_sd(over, lambda value: f"{100 * value:+.2f}"))
        )
    axis = Axis("accuracy gained by attention (points)")
    return Bars(f"attention-{stream.slug}", stream.label, axis, tuple(rows))


def comparison(stream: Stream) -> Table:
    """Every system side by side, as text, mean ± sd over seeds, and its other settings."""

    def row(system: System, setting: Setting) -> tuple[str, ...]:
        return (
            named(system, setting),
            str(len(setting.runs)),
            _cell(setting, "accuracy", _hundredths, _hundredths),
            _cell(setting, "backward_transfer", points, _hundredths),
            _cell(setting, "first_task_forgetting", points, _hundredths),
            _cell(setting, "parameters", _whole, _whole),
            _whole(setting.spread("attention").mean),
            short_count(setting.spread("extra_numbers").mean),
            millions(setting.spread("samples").mean),
            _time(setting),
        )

    header = (
        "system",
        "seeds",
        "accuracy (%)",
        "BWT (points)",
        "task 1 forgotten (points)",
        "parameters",
        "of them attention",
        "kept beside",
        "samples",
        "time",
    )
    settings = [(system, setting) for system in stream.systems for setting in system.settings]
    return Table(
        f"comparison-{stream.slug}",
        header,
        rows=tuple(row(system, system.headline) for system in stream.systems),
        others=tuple(row(system, setting) for system, setting in settings if setting is not system.headline),
    )


def times(stream: Stream) -> Table:
    """What learning all tasks took on a device of its own, with children trained together and one by one."""
    rows = []
    for system in stream.systems:
        for setting in system.settings:
            together, apart = setting.time, seconds(setting.one_by_one)
            if together or apart:
                groups = [runs for runs in (setting.timed, setting.one_by_one) if runs]
                shown = [fmean(run.figures()["samples"] for run in runs) for runs in groups]
                rows.append(
                    (
                        named(system, setting),
                        duration(together.mean) if together else "",
                        duration(apart.mean) if apart else "",
                        " and ".join(map(millions, shown)),
                        " and ".join(str(len(runs)) for runs in groups),
                    )
                )
    header = ("system", "time", "with children one by one", "samples", "runs")
    return Table(f"times-{stream.slug}", header, tuple(rows))


def _time(setting: Setting) -> str:
    """Return the time of runs alone on their device, or of those that shared one, marked; '' where none compares."""
    if setting.time:
        return duration(setting.time.mean)
    return f"{duration(setting.spread('seconds').mean)} (shared)" if any(map(shared, setting.runs)) else ""


def main_systems(stream: Stream) -> list[System]:
    """Return every method as it is, BOCL with the paper's search, RCL as released; others have figures of their own.

    Of a method that was run as a variant alone, the first stands for it, under its own name.
    """
    first: dict[str, System] = {}
    for system in stream.systems:
        first.setdefault(system.method, system)
    return [
        system
        for system in stream.systems
        if system is first[system.method] or system.changed == ("rcl.controller",) or by_the_paper(system)
    ]


def _spaced(axis: Axis, series: Sequence[Series]) -> Axis:
    return by_errors(axis, [point.y for each in series for point in each.points])


def _near(axis: Axis, series: Sequence[Series]) -> tuple[float, float] | None:
    """Return the range of an axis that shows most points well, where others lie far below."""
    found = [point for each in series for point in each.points]
    shown = without_the_lowest(axis, [point.y for point in found])
    if shown is None:
        return None
    near = [point for point in found if point.y >= shown[0]]
    return min(p.y - (p.y_sd or 0) for p in near), max(p.y + (p.y_sd or 0) for p in near)


def _counts(name: str, title: str, label: str, rows: Sequence[Bar]) -> Bars:
    """Return counts as bars from zero, or as marks on an axis of factors where they span decades."""
    factors = spans_decades(row.value for row in rows)
    return Bars(name, title, Axis(label, "count", "factors" if factors else "even"), tuple(rows), from_zero=not factors)


def _bar(system: System, setting: Setting, figure: str, say: Callable[[float], str]) -> Bar:
    spread = setting.spread(figure)
    note = f"{named(system, setting)}: {_with_sd(spread, say)}, {counted(spread.count, 'seed')}"
    return Bar(system.name, style_of(system), spread.mean, spread.sd, _with_sd(spread, say), note)


def _cell(setting: Setting, figure: str, mean: Callable[[float], str], sd: Callable[[float], str]) -> str:
    return mean_and_spread([entry[figure] for entry in setting.figures], mean, sd)


def named(system: System, setting: Setting) -> str:
    """Return a system's name, and its setting where it has several."""
    return f"{system.name} ({setting.label})" if setting.label else system.name


def _accuracy(setting: Setting) -> str:
    return percent_with_sd(setting.spread("accuracy"))


def percent_with_sd(spread: Spread) -> str:
    """Return a share over seeds as a percentage."""
    return percent(spread.mean) if not spread.sd else f"{_hundredths(spread.mean)} ± {percent(spread.sd)}"


def _with_sd(spread: Spread, say: Callable[[float], str]) -> str:
    return say(spread.mean) if not spread.sd else f"{say(spread.mean)} ± {say(spread.sd).lstrip('+')}"


def short_count(value: float) -> str:
    """Return a count in three figures or so."""
    return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value / 1e3:.1f}k" if value >= 1e3 else f"{value:.0f}"


def _hundredths(value: float) -> str:
    return f"{100 * value:.2f}"


def _whole(value: float) -> str:
    return f"{value:,.0f}"
