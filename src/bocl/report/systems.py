"""Runs grouped by stream, by system and by setting; the runs of a setting differ in their seed and are averaged.

A *system* is a method, or a variant of it that is under study, such as ``bocl, no attention``. A system run with
several settings, such as a sweep of α, is a curve. Its *headline* is the setting that stands for it: the one whose
runs are marked so (``headline = true`` in a study), else the one with the best validation accuracy.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from bocl.method_table import METHODS, searches
from bocl.records.earlier import trained_one_by_one
from bocl.records.identity import relevant_settings
from bocl.records.pareto import front_of
from bocl.records.summary import RunSummary

#: Settings whose values make systems of their own, and the values that a name leaves out, the preferred one first.
STUDIED: dict[str, tuple[Any, ...]] = {
    "growth.attention": (True,),
    "growth.reads": ("all",),
    "growth.wiring": ("full",),
    "growth.gates": ("sample",),
    "search.kind": ("bayesian", "paper"),
    "search.warm_points": (3,),
    "search.transfer": (True,),
    "search.round_size": (8,),
    "search.halving": (False,),
    "search.open_bounds": (False,),
    "goal.by_tolerance": (False,),
    "reward.weighting": ("unit",),
    "rcl.controller": ("tuned",),
    "fixed.children": (1,),
}
_SAID = {
    ("growth.attention", "False"): "no attention",
    ("growth.reads", "choose"): "chooses what to read",
    ("growth.reads", "first"): "reads the first task",
    ("growth.reads", "own"): "own networks",
    ("growth.reads", "all"): "reads all",
    ("growth.wiring", "lean"): "lean wiring",
    ("growth.gates", "unit"): "unit gates",
    ("growth.gates", "sample"): "sample gates",
    ("search.halving", "True"): "halving",
    ("search.halving", "False"): "no halving",
    ("search.open_bounds", "True"): "open bounds",
    ("search.open_bounds", "False"): "bounds given",
    ("goal.by_tolerance", "True"): "by tolerance",
    ("goal.by_tolerance", "False"): "by price or target",
    ("search.kind", "paper"): "paper's search",
    ("search.warm_points", "0"): "no warm start",
    ("search.transfer", "False"): "no transfer",
    ("reward.weighting", "uniform"): "one price for all units",
    ("rcl.controller", "as-released"): "as released",
}
_SAID_OF_ANY = {
    "search.kind": "{} search",
    "search.round_size": "rounds of {}",
    "fixed.children": "best of {} children",
}
#: What bocl does unless told otherwise, said in one word where it stands beside runs of the paper's ways.
_DEFAULTS = {
    "growth.reads": "choose",
    "growth.wiring": "lean",
    "growth.gates": "unit",
    "search.halving": True,
    "search.open_bounds": True,
    "goal.by_tolerance": True,
}
_ALWAYS_SAID = ("growth.attention", "search.kind")  # even if all runs have the same value

IsHeadline = Callable[[RunSummary], bool]


@dataclass(frozen=True)
class Spread:
    """Values over seeds: their mean, and their standard deviation if there are two or more."""

    mean: float
    sd: float | None
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Summarise one value or more."""
        return Spread(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Setting:
    """Finished runs that differ only in their seed, by seed.

    label       how it differs from the other settings of its system, or from the headline, whose label is ''
    timed       runs that had their device to themselves, repeats of a seed included
    one_by_one  the same, for runs that trained one child at a time
    marked      whether one of its runs is marked as the headline
    """

    label: str
    runs: tuple[RunSummary, ...]
    timed: tuple[RunSummary, ...] = ()
    one_by_one: tuple[RunSummary, ...] = ()
    marked: bool = False

    @cached_property
    def figures(self) -> list[dict[str, Any]]:
        """The closing figures of every run."""
        return [{**run.figures(), "validation": fmean(run.tasks[-1].validation_row)} for run in self.runs]

    def spread(self, figure: str) -> Spread:
        """Return one closing figure over seeds."""
        return Spread.of([entry[figure] for entry in self.figures])

    @property
    def time(self) -> Spread | None:
        """Seconds to learn all tasks, with children trained together."""
        return seconds(self.timed)


@dataclass(frozen=True)
class System:
    """A method, or a variant of it, with every setting it was run with, smallest network first.

    changed  the names in STUDIED that make it a variant; () for the method as it is
    variant  its place among the method's systems; 0 for the method as it is
    """

    name: str
    method: str
    changed: tuple[str, ...]
    variant: int
    settings: tuple[Setting, ...]

    @cached_property
    def headline(self) -> Setting:
        """The setting that is marked as such; among several, or if none is, the one with the best validation accuracy.

        Validation accuracy by itself would favour the largest network of a sweep. The test split chooses nothing.
        """
        return max([one for one in self.settings if one.marked] or self.settings, key=_validation)

    @cached_property
    def front(self) -> list[Setting]:
        """The settings with a higher validation accuracy than every other that has no more parameters."""
        return front_of(self.settings, lambda setting: setting.spread("parameters").mean, _validation)


@dataclass(frozen=True)
class StreamResults:
    """All runs on one stream of tasks.

    unfinished  runs with tasks still to learn, left out of every mean
    repeats     more runs of the same setting and seed: only their time may count
    """

    name: str
    tasks: int
    systems: tuple[System, ...]
    unfinished: tuple[RunSummary, ...] = ()
    repeats: tuple[RunSummary, ...] = ()

    @property
    def label(self) -> str:
        """Its name as shown."""
        return f"{self.name} ({self.tasks} tasks)"

    @property
    def slug(self) -> str:
        """Its name in names of files."""
        return f"{self.name}-{self.tasks}"

    def system(self, method: str) -> System | None:
        """Return a method as it is, or None if it was not run."""
        return next((system for system in self.systems if (system.method, system.variant) == (method, 0)), None)

    def runs(self) -> Iterator[RunSummary]:
        """Return every finished run."""
        return (run for system in self.systems for setting in system.settings for run in setting.runs)


def arrange(
    runs: Sequence[RunSummary], is_headline: IsHeadline = lambda run: bool(run.headline)
) -> list[StreamResults]:
    """Group runs; streams are in the order of their names, systems in that of the table of methods.

    is_headline  whether a run marks its setting as its system's headline
    """
    by_stream: dict[tuple[str, int], list[RunSummary]] = {}
    for run in runs:
        by_stream.setdefault((str(run.config["stream"].get("name", "tasks")), run.wanted), []).append(run)
    return [_stream(name, tasks, by_stream[name, tasks], is_headline) for name, tasks in sorted(by_stream)]


def shared(run: RunSummary) -> bool:
    """Whether a run shared its device with others at any time."""
    return any(session.shares_device > 1 for session in run.sessions)


def search_kind(system: System) -> str:
    """Return the name of a system's search."""
    return str(relevant_settings(system.headline.runs[0].config).get("search.kind"))


def of_common_seeds(groups: Sequence[Sequence[RunSummary]]) -> list[list[RunSummary]]:
    """Return each group's runs of the seeds that all groups have, or all its runs if there is no such seed."""
    common = set.intersection(*({run.seed for run in runs} for runs in groups)) if groups else set()
    return [[run for run in runs if run.seed in common] or [*runs] for runs in groups]


def seconds(runs: Sequence[RunSummary]) -> Spread | None:
    """Return how long these runs took to learn all their tasks; None if there are none."""
    return Spread.of([run.figures()["seconds"] for run in runs]) if runs else None


def _validation(setting: Setting) -> float:
    return setting.spread("validation").mean


def _stream(name: str, tasks: int, runs: Sequence[RunSummary], is_headline: IsHeadline) -> StreamResults:
    finished = [run for run in runs if run.finished]
    first: dict[str, RunSummary] = {}  # of each setting and seed
    for run in sorted(finished, key=_one_by_one):  # the first with children trained together
        first.setdefault(_identity(run, run.seed), run)
    kept = [*first.values()]
    repeats = tuple(run for run in finished if all(run is not one for one in kept))
    timed: dict[str, list[RunSummary]] = {}
    for run in _on_one_machine(finished):
        timed.setdefault(_identity(run), []).append(run)
    found = {run.method for run in kept}
    systems = [
        system
        for method in [*(name for name in METHODS if name in found), *sorted(found - set(METHODS))]
        for system in _systems([run for run in kept if run.method == method], timed, is_headline)
    ]
    return StreamResults(name, tasks, tuple(systems), tuple(run for run in runs if not run.finished), repeats)


def by_tolerance(config: Mapping[str, Any]) -> bool:
    """Whether a run's goal is the smallest network within a tolerance."""
    goal = config.get("goal", {})
    others = (goal.get("target"), goal.get("price"), config.get("reward", {}).get("alpha"))
    return "tolerance" in goal and all(other is None for other in others)


def _settings(run: RunSummary) -> dict[str, Any]:
    """Return the settings that runs are told apart by: goals that a run does not have are left out.

    Whether the goal is a tolerance, and whether bounds are left open, are settings of their own here: a system with
    another goal is another system, while one with several tolerances is a sweep, as it is with several prices.
    """
    found = relevant_settings(run.config)
    if "goal.tolerance" in found and "search.kind" in found:
        found["goal.by_tolerance"] = by_tolerance(run.config)
    if not found.get("goal.by_tolerance"):
        found.pop("goal.tolerance", None)
    for price in ("reward.alpha", "goal.price"):
        if found.get(price, 0) is None:
            del found[price]
    if "search.bounds" in found and "search.kind" in found:
        found["search.open_bounds"] = found["search.bounds"] is None
        if found["search.bounds"] is None:
            del found["search.bounds"]
    return found


def _identity(run: RunSummary, *seed: int) -> str:
    return json.dumps([run.method, *seed, relevant_settings(run.config)], sort_keys=True)


def _one_by_one(run: RunSummary) -> bool:
    """Whether its settings let it train only one child at a time."""
    return searches(run.method) and trained_one_by_one(run.config)


def _on_one_machine(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Return the runs that had their device to themselves and used the machine of most runs: only those compare."""
    kinds = [{str(session.machine.get("name")) for session in run.sessions} for run in runs]
    usual = {kind for kind, _ in Counter(kind for own in kinds for kind in own).most_common(1)}
    return [run for run, own in zip(runs, kinds, strict=True) if own == usual and not shared(run)]


def _systems(
    runs: Sequence[RunSummary], timed: Mapping[str, Sequence[RunSummary]], is_headline: IsHeadline
) -> Iterator[System]:
    """Yield the systems of one method, the method as it is first.

    Runs are split twice: into systems by the settings in STUDIED, then each system into settings by all others.

    timed  runs whose time counts, repeats included, by ``_identity``
    """
    flats = [_settings(run) for run in runs]
    known = set[str]().union(*flats)  # a run need not have them all: some belong to one search only

    # A system is one combination of unusual values, in words; () is the method as it is. A run that lacks a setting
    # counts as usual. Runs are held by index, like their flat settings.
    studied = [name for name in STUDIED if name in known]
    usual = {name: _usual(name, [flat[name] for flat in flats if name in flat]) for name in studied}
    variants: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for index, flat in enumerate(flats):
        unusual = [name for name in studied if flat.get(name, usual[name]) != usual[name]]
        variants.setdefault(_said(unusual, flat), []).append(index)

    swept = sorted(known - set(studied))
    for place, said in enumerate(sorted(variants, key=lambda said: (len(said), said))):
        # A setting is one combination of the values that differ among the system's runs, as words like "alpha 0.01".
        own = variants[said]
        changing = [name for name in swept if len({_text(flats[index].get(name)) for index in own}) > 1]
        settings: dict[tuple[str, ...], list[RunSummary]] = {}
        for index in own:
            flat = flats[index]
            values = tuple(f"{name.rpartition('.')[2]} {_text(flat[name])}" for name in changing if name in flat)
            settings.setdefault(values, []).append(runs[index])

        # If one setting is the headline, the others are labelled by how they differ from it, and it has no label.
        marked = [values for values, same in settings.items() if any(map(is_headline, same))]
        unsaid = set(marked[0]) if len(marked) == 1 else set()
        made = []
        for values, same in settings.items():
            label = ", ".join(value for value in values if value not in unsaid)
            own_time = [run for key in dict.fromkeys(map(_identity, same)) for run in timed.get(key, ())]
            together, apart = (tuple(run for run in own_time if _one_by_one(run) == one) for one in (False, True))
            by_seed = sorted(same, key=lambda run: run.seed)
            made.append(Setting(label, tuple(by_seed), together, apart, values in marked))
        made.sort(key=lambda setting: (setting.spread("parameters").mean, setting.label))
        name = ", ".join([runs[0].method, *(words for _, words in said)])
        # 0 is kept for the method as it is, even where only variants of it were run.
        variant = max(place, 1) if said else 0
        yield System(name, runs[0].method, tuple(name for name, _ in said), variant, tuple(made))


def _usual(name: str, values: Sequence[Any]) -> Any:
    """Return the value of a studied setting that a name leaves out among these."""
    expected = STUDIED[name]
    present = [value for value in expected if value in values]
    if present or name in _ALWAYS_SAID:
        return (present or expected)[0]
    return max(values, key=values.count)


def _said(unusual: Sequence[str], flat: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return (setting, words) for the settings that make a system; all defaults together are one word."""
    usual = {name: value for name, value in _DEFAULTS.items() if flat.get(name) == value}
    together = len(usual) == len(_DEFAULTS) and set(usual) <= set(unusual)
    named = [(name, _say(name, flat[name])) for name in unusual if not (together and name in _DEFAULTS)]
    return (*([("growth.reads", "defaults")] if together else []), *named)


def _say(name: str, value: Any) -> str:
    words = _SAID_OF_ANY.get(name, f"{name.rpartition('.')[2]} {{}}")
    return _SAID.get((name, str(value)), words.format(_text(value)))


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and math.isfinite(value) else str(value)
