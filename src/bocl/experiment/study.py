"""A study: runs that answer one question together, each a preset, a method, a seed and what differs.

# the first line says what it is for
on = ["permuted-mnist", "split-cifar100"]    presets that every run is made on
seeds = [0, 1, 2, 3]
alone = true                                 its runs share no device, so that their times can be compared

[[run]]
method = "bocl"                              default: bocl
name = "bocl-paper"                          default: the method's
set = ["search.kind=paper"]                  what differs from the preset
on = ["permuted-mnist"]                      default: the study's
headline = true                              it stands for its method where a report shows one setting of each

Studies share runs: a run of the same name, preset and settings is made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bocl.errors import ConfigError, did_you_mean
from bocl.experiment.build import build_base, build_method
from bocl.experiment.config import Config, MethodName, folder_name, load_config, run_name, unfit_for_folder
from bocl.settings import parse, read_toml


@dataclass(frozen=True)
class StudyRun:
    """One system of a study."""

    method: MethodName = "bocl"
    name: str | None = None
    set: tuple[str, ...] = ()
    on: tuple[str, ...] | None = None
    headline: bool = False

    def __post_init__(self) -> None:
        if self.name is not None and (problem := unfit_for_folder(self.name)):
            raise ConfigError(f"'{self.name}' {problem}, and a run's name is that of its folder; give it another")

    @property
    def title(self) -> str:
        """Its name, or that of its method."""
        return self.name or self.method


@dataclass(frozen=True)
class Study:
    """What a study's file says."""

    on: tuple[str, ...]
    run: tuple[StudyRun, ...]
    seeds: tuple[int, ...] = (0,)
    alone: bool = False

    def __post_init__(self) -> None:
        names = [entry.title for entry in self.run]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(f"two runs of the study are called '{twice}'; give one of them another name")
        if not self.run:
            raise ConfigError("the study has no runs; give it a [[run]]")


@dataclass(frozen=True)
class Job:
    """One run of a study."""

    preset: str
    name: str
    method: MethodName
    seed: int
    overrides: tuple[str, ...]
    headline: bool = False

    @cached_property
    def config(self) -> Config:
        """Its settings, as they are in the preset's file when they are first asked for."""
        return replace(load_config(self.preset, self.overrides), method=self.method, seed=self.seed)

    @property
    def preset_name(self) -> str:
        """The name of its preset or config file, which may lie anywhere."""
        return folder_name(self.preset)

    @property
    def place(self) -> Path:
        """The folder of its runs, under the study's."""
        return Path(self.preset_name) / self.name

    @property
    def run_place(self) -> Path:
        """Its own folder, under the study's."""
        return self.place / run_name(self.method, self.seed)


def load_study(source: str) -> Study:
    """Read a study from its TOML file."""
    return parse(Study, read_toml(source), source)


def jobs(
    studies: Sequence[Study],
    *,
    on: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    overrides: Sequence[str] = (),
    data: str | None = None,
) -> list[Job]:
    """Return the runs of studies, each once; each is built once to find mistakes first.

    on         presets instead of a study's; a run that names presets is made on those of its own that are among these
    names      only these runs
    seeds      instead of a study's
    overrides  of every run, after its own
    data       folder in which data and pretrained weights are looked for
    """
    known = {entry.title for study in studies for entry in study.run}
    for name in names or ():
        if name not in known:
            raise ConfigError(f"there is no run '{name}'{did_you_mean(name, known)} in these studies")
    found = [
        Job(preset, entry.title, entry.method, seed, (*entry.set, *overrides), entry.headline)
        for study in studies
        for entry in study.run
        for preset in _presets(study, entry, on)
        for seed in (seeds or study.seeds)
        if names is None or entry.title in names
    ]
    if not found:
        raise ConfigError("no run is left; leave out --on or --only")
    wanted: dict[Path, Job] = {}
    for job in found:
        other = wanted.get(job.run_place, job)
        if job.preset != other.preset:
            raise ConfigError(f"{other.preset} and {job.preset} have one name, and so one folder; rename one of them")
        headline = job.headline or other.headline  # one study that marks it is enough
        if replace(job, headline=headline) != replace(other, headline=headline):
            raise ConfigError(f"two studies have a run '{job.name}' on {job.preset} that differs; rename one of them")
        wanted[job.run_place] = replace(job, headline=headline)
    for job in wanted.values():
        config = job.config
        build_method(config, build_base(config, data), "cpu")
    return list(wanted.values())


def _presets(study: Study, entry: StudyRun, on: Sequence[str] | None) -> Sequence[str]:
    if not entry.on:
        return study.on if on is None else on
    return entry.on if on is None else [preset for preset in on if preset in entry.on]
