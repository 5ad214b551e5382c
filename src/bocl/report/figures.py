"""Systems compared: one chart or table for each stream, mean ± standard deviation over seeds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bocl.report.charts import Axis, Bar, Bars, Plot, Point, Series, Table, edges
from bocl.report.scale import by_errors, by_factors, without_the_lowest
from bocl.report.style import style_of
from bocl.report.systems import Setting, Spread, StreamResults, System, shared
from bocl.wording import counted, duration, millions, percent, points

ACCURACY = Axis("average test accuracy (%)", "percent")
_SCALES = ((7200.0, 3600.0, "h"), (300.0, 60.0, "min"), (0.0, 1.0, "s"))


def accuracy_bars(stream: StreamResults) -> Bars:
    """Average test accuracy over all tasks at the end."""
    rows = _rows(stream, "accuracy", hundredths)
    axis = by_errors(ACCURACY, [row.value for row in rows])
    return Bars(f"accuracy-{stream.slug}", "accuracy", axis, rows, from_zero=False)


def parameter_bars(stream: StreamResults) -> Bars:
    """Parameters stored at the end: weights, heads and attention."""
    rows = _rows(stream, "parameters", short_count)
    return _counts(f"parameters-{stream.slug}", "parameters", "parameters stored", rows)


def cost_bars(stream: StreamResults) -> Bars:
    """Time, or if no run had its device to itself, the samples trained: other runs do not change those."""
    found = time_bars(stream)
    if found.rows:
        return found
    rows = _rows(stream, "samples", short_count)
    return _counts(f"samples-{stream.slug}", "samples trained, not time", "training samples shown", rows)


def time_bars(stream: StreamResults) -> Bars:
    """Wall-clock time to learn all tasks, for runs that had their device to themselves."""
    timed = [(system, time) for system in stream.systems if (time := system.headline.time)]
    longest = max((time.mean for _, time in timed), default=0.0)
    _, scale, unit = next(entry for entry in _SCALES if longest >= entry[0])
    rows = []
    for system, time in timed:
        shown = millions(system.headline.spread("samples").mean)
        note = f"{named(system, system.headline)}: {duration(time.mean)}, {shown} samples trained"
        sd = None if time.sd is None else time.sd / scale
        text = with_sd(time, lambda value: f"{value / scale:.1f}")
        rows.append(Bar(system.name, style_of(system), time.mean / scale, sd, text, note))
    return Bars(f"time-{stream.slug}", "time", Axis(f"training time ({unit})"), tuple(rows))


def accuracy_against_parameters(stream: StreamResults) -> Plot:
    """One mark for each setting; a line joins the settings on a system's front."""
    series = []
    for system in stream.systems:
        found = []
        for setting in system.settings:
            accuracy, size = setting.spread("accuracy"), setting.spread("parameters")
            note = f"{named(system, setting)}: {percent_with_sd(accuracy)}, {short_count(size.mean)} parameters"
            aside = setting not in system.front
            found.append(Point(size.mean, accuracy.mean, note, size.sd, accuracy.sd, aside=aside))
        series.append(Series(system.name, style_of(system), tuple(found)))
    across = by_factors(Axis("parameters stored", "count"), [point.x for each in series for point in each.points])
    upward = spaced(ACCURACY, series)
    near = _near(upward, series)
    return Plot(f"size-{stream.slug}", stream.label, across, upward, tuple(series), named=True, y_range=near)


def first_task(stream: StreamResults) -> Plot:
    """Test accuracy on task 1 after each task."""
    series = []
    for system in stream.systems:
        rows = [[row[0] for row in run.matrix] for run in system.headline.runs]
        found = []
        for index, column in enumerate(zip(*rows, strict=True)):
            spread = Spread.of(column)
            note = f"{named(system, system.headline)}, after task {index + 1}: {percent_with_sd(spread)}"
            found.append(Point(index + 1, spread.mean, note, y_sd=spread.sd))
        series.append(Series(system.name, style_of(system), tuple(found)))
    upward = spaced(Axis("test accuracy on task 1 (%)", "percent"), series)
    return Plot(f"first-task-{stream.slug}", stream.label, Axis("tasks learnt", "count"), upward, tuple(series))


#: Figures of runs that guess tasks, and what they are called.
GUESSES = {"task_named": "task named correctly (%)", "accuracy_without_task": "accuracy without the task (%)"}


def comparison(stream: StreamResults) -> Table:
    """Every system as a row of text, mean ± sd over seeds, and its other settings."""
    guessed = [
        name for name in GUESSES if any(_told(setting, name) for each in stream.systems for setting in each.settings)
    ]

    def row(system: System, setting: Setting) -> tuple[str, ...]:
        return (
            named(system, setting),
            str(len(setting.runs)),
            with_sd(setting.spread("accuracy"), hundredths),
            *(with_sd(setting.spread(name), hundredths) if _told(setting, name) else "" for name in guessed),
            with_sd(setting.spread("backward_transfer"), points),
            with_sd(setting.spread("first_task_forgetting"), points),
            with_sd(setting.spread("parameters"), whole),
            whole(setting.spread("attention").mean),
            short_count(setting.spread("extra_numbers").mean),
            millions(setting.spread("samples").mean),
            _time(setting),
        )

    without = tuple(GUESSES[name] for name in guessed)
    figures = (
        "seeds",
        "accuracy (%)",
        *without,
        "BWT (points)",
        "task 1 forgotten (points)",
        "parameters",
        "of them attention",
    )
    header = ("system", *figures, "extra numbers", "samples", "time")
    rows = tuple(row(system, system.headline) for system in stream.systems)
    others = tuple(
        row(system, setting)
        for system in stream.systems
        for setting in system.settings
        if setting is not system.headline
    )
    return Table(f"comparison-{stream.slug}", header, rows, others)


def _told(setting: Setting, figure: str) -> bool:
    """Whether every run of a setting has a figure."""
    return all(entry[figure] is not None for entry in setting.figures)


def spaced(axis: Axis, series: Sequence[Series]) -> Axis:
    """Space an axis of accuracies to suit the points of some series."""
    return by_errors(axis, [point.y for each in series for point in each.points])


def named(system: System, setting: Setting) -> str:
    """Return a system's name, with its setting if it has several."""
    return f"{system.name} ({setting.label})" if setting.label else system.name


def with_sd(spread: Spread, say: Callable[[float], str]) -> str:
    """Return ``mean ± sd`` over seeds; only the mean if there is one seed or all are the same."""
    return say(spread.mean) if not spread.sd else f"{say(spread.mean)} ± {say(spread.sd).lstrip('+')}"


def percent_with_sd(spread: Spread) -> str:
    """Return ``mean ± sd`` of a share as a percentage."""
    return percent(spread.mean) if not spread.sd else f"{hundredths(spread.mean)} ± {percent(spread.sd)}"


def short_count(value: float) -> str:
    """Return a count in about three digits."""
    return f"{value / 1e6:.2f}M" if value >= 1e6 else f"{value / 1e3:.1f}k" if value >= 1e3 else f"{value:.0f}"


def _rows(stream: StreamResults, figure: str, say: Callable[[float], str]) -> tuple[Bar, ...]:
    rows = []
    for system in stream.systems:
        spread = system.headline.spread(figure)
        text = with_sd(spread, say)
        note = f"{named(system, system.headline)}: {text}, {counted(spread.count, 'seed')}"
        rows.append(Bar(system.name, style_of(system), spread.mean, spread.sd, text, note))
    return tuple(rows)


def _counts(name: str, title: str, label: str, rows: tuple[Bar, ...]) -> Bars:
    """Return counts as bars from zero, or as marks on an axis of factors where they span decades."""
    axis = by_factors(Axis(label, "count"), [row.value for row in rows])
    return Bars(name, title, axis, rows, from_zero=axis.spacing == "even")


def _near(axis: Axis, series: Sequence[Series]) -> tuple[float, float] | None:
    """Return the range of an axis that shows most points well, if others lie far below."""
    found = [point for each in series for point in each.points]
    shown = without_the_lowest(axis, [point.y for point in found])
    if shown is None:
        return None
    near = [edge for point in found if point.y >= shown[0] for edge in edges(point.y, point.y_sd)]
    return min(near), max(near)


def _time(setting: Setting) -> str:
    """Return the time of runs that had their device to themselves, else of shared ones, marked; '' if none compares."""
    if setting.time:
        return duration(setting.time.mean)
    return f"{duration(setting.spread('seconds').mean)} (shared)" if any(map(shared, setting.runs)) else ""


def hundredths(value: float) -> str:
    """Return a share as a percentage without its sign."""
    return f"{100 * value:.2f}"


def whole(value: float) -> str:
    """Return a count with every digit."""
    return f"{value:,.0f}"
