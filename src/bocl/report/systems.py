"""Runs told apart: by stream, by system, by setting; what is left are seeds, to be averaged over.

A *system* is a method, or a variant of it that is under study, such as ``bocl, no attention``. A system run with
several settings, a sweep of α for one, is a curve; its *headline* is the setting of the runs that a study calls after
the method, of which the others are variations; where there are none, the one that validation samples prefer.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean, stdev
from typing import Any

from bocl.method_table import METHODS, searches
from bocl.records.identity import relevant_settings
from bocl.records.pareto import front_of
from bocl.records.summary import RunSummary

STREAMS = ("permuted-mnist", "mixed-mnist", "split-cifar100")  # the paper's

#: Settings whose values make systems of their own, and the values that go without saying, dearest first.
STUDIED: dict[str, tuple[Any, ...]] = {
    "growth.attention": (True,),
    "growth.wiring": ("full",),
    "search.kind": ("bayesian", "paper"),
    "search.warm_points": (3,),
    "search.transfer": (True,),
    "search.round_size": (8,),
    "reward.weighting": ("unit",),
    "rcl.controller": ("tuned",),
    "fixed.children": (1,),
}
_SAID = {
    ("growth.attention", "False"): "no attention",
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
ONE_CHILD_GB = 1e-6  # less than any child takes
_ALWAYS_SAID = ("growth.attention", "search.kind")  # even where all runs have the same


@dataclass(frozen=True)
class Spread:
    """Values over seeds: their mean, and their standard deviation where there are two or more."""

    mean: float
    sd: float | None
    count: int

    @staticmethod
    def of(values: Sequence[float]) -> Spread:
        """Summarise one value or more."""
        return Spread(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


@dataclass(frozen=True)
class Setting:
    """Finished runs that differ in their seed alone, by seed.

    label       what tells it from the other settings of its system, or from the one they vary, whose label is ''
    timed       those that had their device to themselves, repeats of a seed included: their time is their own
    one_by_one  the same, where no two children were trained together
    """

    label: str
    runs: tuple[RunSummary, ...]
    timed: tuple[RunSummary, ...] = ()
    one_by_one: tuple[RunSummary, ...] = ()

    @cached_property
    def figures(self) -> list[dict[str, Any]]:
        """The closing figures of every run."""
        return [{**run.figures(), "validation": fmean(run.tasks[-1].validation_row)} for run in self.runs]

    def spread(self, figure: str) -> Spread:
        """Return one closing figure over seeds."""
        return Spread.of([entry[figure] for entry in self.figures])

    @property
    def time(self) -> Spread | None:
        """Seconds of learning all tasks, children trained together."""
        return seconds(self.timed)


@dataclass(frozen=True)
class System:
    """A method, or a variant of it, with every setting it was run with, smallest network first.

    changed  the names in STUDIED that make it a variant; none of the method as it is
    variant  its place among the method's systems: 0 is the method as it is
    """

    name: str
    method: str
    changed: tuple[str, ...]
    variant: int
    settings: tuple[Setting, ...]

    @cached_property
    def headline(self) -> Setting:
        """The setting whose runs bear the method's bare name: ``bocl``, not ``bocl-alpha-5e-3``.

        If none does, or several do, the one with the highest validation accuracy, which alone would favour the
        largest network of a sweep. The test split chooses nothing.
        """
        own = [setting for setting in self.settings if any(map(_is_called_after_its_method, setting.runs))]
        return max(own or self.settings, key=_validation)

    @cached_property
    def front(self) -> list[Setting]:
        """The settings that are more accurate on validation samples than every other of no more parameters."""
        return front_of(self.settings, lambda setting: setting.spread("parameters").mean, _validation)


@dataclass(frozen=True)
class Stream:
    """All runs on one stream of tasks.

    unfinished  runs with tasks still to learn, left out of every mean
    repeats     runs of a setting and seed that is there already: at most their time counts
    """

    name: str
    tasks: int
    systems: tuple[System, ...]
    unfinished: tuple[RunSummary, ...]
    repeats: tuple[RunSummary, ...]

    @property
    def label(self) -> str:
        """Its name as shown."""
        return f"{self.name} ({self.tasks} tasks)"

    @property
    def slug(self) -> str:
        """Its name in names of files."""
        return f"{self.name}-{self.tasks}"

    def system(self, method: str) -> System | None:
        """Return a method as it is, or None where it was not run."""
        return next((system for system in self.systems if (system.method, system.variant) == (method, 0)), None)

    def runs(self) -> Iterator[RunSummary]:
        """Yield every finished run."""
        for system in self.systems:
            for setting in system.settings:
                yield from setting.runs


def _validation(setting: Setting) -> float:
    return setting.spread("validation").mean


def shared(run: RunSummary) -> bool:
    """Whether a run shared its device with others at any time."""
    return any(session.at_once > 1 for session in run.sessions)


def search_kind(system: System) -> str:
    """Return the name of a system's search."""
    return str(relevant_settings(system.headline.runs[0].config).get("search.kind"))


def of_common_seeds(groups: Sequence[Sequence[RunSummary]]) -> list[list[RunSummary]]:
    """Return each group's runs of the seeds that all groups have, so that like is compared with like.

    Where there is no such seed, all its runs.
    """
    common = set.intersection(*({run.seed for run in runs} for runs in groups)) if groups else set()
    return [[run for run in runs if run.seed in common] or [*runs] for runs in groups]


def seconds(runs: Sequence[RunSummary]) -> Spread | None:
    """Return how long these runs took to learn all their tasks; None of none."""
    return Spread.of([run.figures()["seconds"] for run in runs]) if runs else None


def arrange(runs: Sequence[RunSummary]) -> list[Stream]:
    """Tell runs apart; streams are in the paper's order, then by name, and systems in that of METHODS."""
    by_stream: dict[tuple[str, int], list[RunSummary]] = {}
    for run in runs:
        by_stream.setdefault((str(run.config["stream"].get("name", "tasks")), run.wanted), []).append(run)
    places = sorted(by_stream, key=lambda place: (_order(STREAMS, place[0]), place[1]))
    return [_stream(name, tasks, by_stream[name, tasks]) for name, tasks in places]


def pairs(stream: Stream, name: str, one: Any, other: Any) -> list[tuple[RunSummary, RunSummary]]:
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


def _stream(name: str, tasks: int, runs: Sequence[RunSummary]) -> Stream:
    finished = [run for run in runs if run.finished]
    alike: dict[str, list[RunSummary]] = {}  # those of one setting and seed, by it
    for run in sorted(finished, key=_one_by_one):  # the first with children trained together stands for them
        alike.setdefault(_identity(run, run.seed), []).append(run)
    kept = [same[0] for same in alike.values()]
    repeats = [run for run in finished if all(run is not one for one in kept)]
    timed: dict[str, list[RunSummary]] = {}
    for run in _on_one_machine(finished):
        timed.setdefault(_identity(run), []).append(run)
    methods = sorted({run.method for run in kept}, key=lambda method: _order(list(METHODS), method))
    systems = [system for one in methods for system in _systems([run for run in kept if run.method == one], timed)]
    return Stream(name, tasks, tuple(systems), tuple(run for run in runs if not run.finished), tuple(repeats))


def _identity(run: RunSummary, *seed: int) -> str:
    return json.dumps([run.method, *seed, relevant_settings(run.config)], sort_keys=True)


def _is_called_after_its_method(run: RunSummary) -> bool:
    """Whether its study's name for a run is the method's: that of the folder it lies in, or of a journal alone."""
    alone = run.folder.suffix == ".jsonl"
    return (run.folder.name.rpartition("-seed-")[0] if alone else run.folder.parent.name) == run.method


def _one_by_one(run: RunSummary) -> bool:
    """Whether its children were trained one at a time."""
    search = run.config.get("search", {})
    alone = search.get("children_at_once") == 1 or search.get("memory_gb", math.inf) <= ONE_CHILD_GB
    return searches(run.method) and alone


def _on_one_machine(runs: Sequence[RunSummary]) -> list[RunSummary]:
    """Return the runs that had a device to themselves, of the kind that most runs were made on: no other compares."""
    kinds = [{str(session.machine.get("name")) for session in run.sessions} for run in runs]
    usual = {kind for kind, _ in Counter(kind for own in kinds for kind in own).most_common(1)}
    return [run for run, own in zip(runs, kinds, strict=True) if own == usual and not shared(run)]


def _systems(runs: Sequence[RunSummary], timed: Mapping[str, Sequence[RunSummary]]) -> Iterator[System]:
    """Yield the systems of one method, the method as it is first."""
    flats = [relevant_settings(run.config) for run in runs]
    known = set[str]().union(*flats)  # not all have all: some are of one search alone
    studied = [name for name in STUDIED if name in known]
    usual = {name: _usual(name, [flat[name] for flat in flats if name in flat]) for name in studied}
    variants: dict[tuple[tuple[str, str], ...], list[int]] = {}
    for index, flat in enumerate(flats):
        said = tuple((name, _say(name, flat[name])) for name in studied if flat.get(name, usual[name]) != usual[name])
        variants.setdefault(said, []).append(index)
    swept = sorted(known - set(studied))
    for place, said in enumerate(sorted(variants, key=lambda said: (len(said), said))):
        own = variants[said]
        changing = [name for name in swept if len({_text(flats[index].get(name)) for index in own}) > 1]
        settings: dict[tuple[str, ...], list[RunSummary]] = {}
        for index in own:
            flat = flats[index]
            values = tuple(f"{name.rpartition('.')[2]} {_text(flat[name])}" for name in changing if name in flat)
            settings.setdefault(values, []).append(runs[index])
        varied = [values for values, same in settings.items() if any(map(_is_called_after_its_method, same))]
        unsaid = set(varied[0]) if len(varied) == 1 else set()
        made = [
            _setting(", ".join(value for value in values if value not in unsaid), same, timed)
            for values, same in settings.items()
        ]
        made.sort(key=lambda setting: (setting.spread("parameters").mean, setting.label))
        method = runs[0].method
        name = ", ".join([method, *(words for _, words in said)])
        yield System(name, method, tuple(name for name, _ in said), max(place, 1) if said else 0, tuple(made))


def _setting(label: str, runs: Sequence[RunSummary], timed: Mapping[str, Sequence[RunSummary]]) -> Setting:
    own = [run for key in dict.fromkeys(map(_identity, runs)) for run in timed.get(key, ())]
    together, apart = ([run for run in own if _one_by_one(run) == alone] for alone in (False, True))
    return Setting(label, tuple(sorted(runs, key=lambda run: run.seed)), tuple(together), tuple(apart))


def _usual(name: str, values: Sequence[Any]) -> Any:
    """Return the value of a studied setting that goes without saying among these."""
    expected = STUDIED[name]
    present = [value for value in expected if value in values]
    if present or name in _ALWAYS_SAID:
        return (present or expected)[0]
    return max(values, key=values.count)


def _say(name: str, value: Any) -> str:
    words = _SAID_OF_ANY.get(name, f"{name.rpartition('.')[2]} {{}}")
    return _SAID.get((name, str(value)), words.format(_text(value)))


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) and math.isfinite(value) else str(value)


def _order(known: Sequence[str], name: str) -> tuple[int, str]:
    """Sort known names as they stand, others after them."""
    return (known.index(name) if name in known else len(known), name)
