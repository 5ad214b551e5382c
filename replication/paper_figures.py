"""The paper's figures from our records: which systems are in them, and what the library's report does not draw."""

from __future__ import annotations

import json
from dataclasses import replace
from statistics import fmean
from typing import Any

from bocl.records.identity import relevant_settings
from bocl.records.summary import RunSummary
from bocl.report.charts import Axis, Bar, Bars, Plot, Table
from bocl.report.figures import named, with_sd
from bocl.report.style import Style
from bocl.report.systems import Spread, StreamResults, System, search_kind, seconds
from bocl.report.trial_curves import Compared, all_tested, paired, plot_trials, searched, tested
from bocl.wording import duration, millions, points


def main_systems(stream: StreamResults) -> list[System]:
    """Return every method as it is, BOCL with the paper's search and RCL as released; others have their own figures.

    A method that was only run as variants is represented by the first of them, under its own name.
    """
    first: dict[str, System] = {}
    for system in stream.systems:
        first.setdefault(system.method, system)
    return [
        system
        for system in stream.systems
        if system is first[system.method] or system.changed == ("rcl.controller",) or by_the_paper(system)
    ]


def only_main(stream: StreamResults) -> StreamResults:
    """Return a stream with its main systems only."""
    return replace(stream, systems=tuple(main_systems(stream)))


def by_the_paper(system: System) -> bool:
    """Return whether a system is BOCL as it is, except that it has the paper's search."""
    return system.changed == ("search.kind",) and search_kind(system) == "paper"


def searchers(stream: StreamResults, method: str = "bocl") -> list[System]:
    """Return a method as it is and with other searches, without its other variants."""
    return [
        system
        for system in stream.systems
        if system.method == method and system.changed in ((), ("search.kind",)) and searched(system)
    ]


def compared_searches(stream: StreamResults) -> Compared:
    """Return what Figure 5 compares: searches for BOCL, and RCL with the same seeds if scored on the same samples."""
    own = paired(searchers(stream))
    if not own:
        return paired(searchers(stream, "rcl"))
    seeds = {run.seed for _, runs in own for run in runs}
    rivals = [(rcl, [run for run in searched(rcl) if run.seed in seeds]) for rcl in searchers(stream, "rcl")]
    return [*own, *((rcl, runs) for rcl, runs in rivals if runs and (tested(runs) or not all_tested(own)))]


def accuracy_against_trials(stream: StreamResults) -> Plot:
    """Figure 5: accuracy of the best child so far, on test samples if the searches for BOCL have scored them."""
    return plot_trials(f"figure-5-{stream.slug}", stream.label, compared_searches(stream))


def reward_against_trials(stream: StreamResults) -> Plot:
    """Figure 5 for the reward: the same less the price of the child's units, if all searches have the same prices."""
    return plot_trials(f"figure-5-reward-{stream.slug}", stream.label, _rewarded_alike(stream), priced=True)


def _rewarded_alike(stream: StreamResults) -> Compared:
    """Return the searches for BOCL if all rewards are accuracy less the same price of units, else none."""
    own = paired(searchers(stream))
    settings = [relevant_settings(run.config) for _, runs in own for run in runs]
    asked = {name for one in settings for name in one if name.startswith(("reward.", "goal."))}
    unlike = any(len({str(one[name]) for one in settings if name in one}) > 1 for name in asked)
    return [] if unlike or any(one.get("goal.target") is not None for one in settings) else own


def times(stream: StreamResults) -> Table:
    """How long learning all tasks took on a device of its own, with children trained together and one by one."""
    rows = []
    for system in stream.systems:
        for setting in system.settings:
            together, apart = setting.time, seconds(setting.one_by_one)
            groups = [runs for runs in (setting.timed, setting.one_by_one) if runs]
            if groups:
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


def pairs(stream: StreamResults, name: str, one: Any, other: Any) -> list[tuple[RunSummary, RunSummary]]:
    """Return runs that differ in nothing but one setting, the same seed included."""
    sides: dict[str, dict[str, RunSummary]] = {}
    for run in stream.runs():
        flat = relevant_settings(run.config)
        value = flat.pop(name, None)
        if value in (one, other):
            rest = json.dumps([run.method, run.seed, flat], sort_keys=True)
            sides.setdefault(rest, {})[str(value)] = run
    found = [(side[str(one)], side[str(other)]) for side in sides.values() if len(side) == 2]
    return sorted(found, key=lambda pair: pair[0].seed)


def attention_gains(stream: StreamResults) -> list[tuple[RunSummary, float]]:
    """Return, for every pair of BOCL runs that differ only in attention, the run with it and what it gained."""
    return [
        (with_it, with_it.figures()["accuracy"] - without.figures()["accuracy"])
        for with_it, without in pairs(stream, "growth.attention", True, False)
        if with_it.method == "bocl"
    ]


def attention_ablation(stream: StreamResults) -> Bars:
    """What attention adds to test accuracy, in points, pair by pair."""
    gains = attention_gains(stream)
    rows = [
        Bar(f"seed {run.seed}", Style("bocl", "circle", hollow=True), 100 * gain, None, points(gain))
        for run, gain in gains
    ]
    if gains:
        over = Spread.of([gain for _, gain in gains])
        sd = None if over.sd is None else 100 * over.sd
        rows.append(Bar("mean", Style("bocl"), 100 * over.mean, sd, with_sd(over, lambda value: f"{100 * value:+.2f}")))
    axis = Axis("accuracy gained by attention (points)")
    return Bars(f"attention-{stream.slug}", stream.label, axis, tuple(rows))
