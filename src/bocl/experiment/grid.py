"""Methods × seeds: one run each, in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import cast, get_args

from bocl.errors import ConfigError, did_you_mean
from bocl.experiment.build import build_method, build_network
from bocl.experiment.config import Config, MethodName, experiment_name, load_config, run_name
from bocl.experiment.run import run
from bocl.records.events import Listener

METHOD_NAMES: tuple[MethodName, ...] = get_args(MethodName)

Grid = list[tuple[Config, Path]]
Watch = Callable[[Config, Path], AbstractContextManager[Listener]]


def plan(
    source: str | None,
    overrides: Sequence[str] = (),
    *,
    methods: str | None = None,
    seeds: str | None = None,
    out: str | None = None,
    device: str = "auto",
) -> Grid:
    """Return every run a command asks for; everything but the data is built once to find mistakes first."""
    base = load_config(source, overrides)
    folder = Path(out) if out else Path("runs") / experiment_name(source)
    graph = build_network(base.network)
    grid = []
    for method in _methods(methods) if methods is not None else [base.method]:
        for seed in _seeds(seeds) if seeds is not None else [base.seed]:
            config = replace(base, method=method, seed=seed)
            build_method(config, graph, device)
            grid.append((config, folder / run_name(config)))
    return grid


def run_grid(grid: Grid, *, device: str = "auto", data: str | None = None, watch: Watch, audit: bool = True) -> None:
    """Run a grid in order; what is finished is passed over, what was begun goes on."""
    for config, folder in grid:
        with watch(config, folder) as listen:
            run(config, folder, device=device, data=data, listen=listen, audit=audit)


def _methods(text: str) -> list[MethodName]:
    if text == "all":
        return list(METHOD_NAMES)
    names = _words("--methods", text)
    for name in names:
        if name not in METHOD_NAMES:
            raise ConfigError(f"--methods: unknown method '{name}'{did_you_mean(name, (*METHOD_NAMES, 'all'))}")
    return cast(list[MethodName], names)


def _seeds(text: str) -> list[int]:
    words = _words("--seeds", text)
    for word in words:
        if not (word.isascii() and word.isdigit()):
            raise ConfigError(f"--seeds: '{word}' is not a whole number of 0 or more, as in --seeds 0,1,2,3")
    seeds = [int(word) for word in words]
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"--seeds: '{text}' names a seed twice")
    return seeds


def _words(option: str, text: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if "" in words:
        raise ConfigError(f"{option}: '{text}' has an empty entry; separate entries by single commas")
    repeated = {word for word in words if words.count(word) > 1}
    if repeated:
        raise ConfigError(f"{option}: '{min(repeated)}' is given twice")
    return words
