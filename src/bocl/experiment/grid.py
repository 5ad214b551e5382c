"""Methods × seeds: one run each, in a folder of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path

from bocl.errors import ConfigError, NetworkError, WorkError, did_you_mean
from bocl.experiment.build import build_method, build_network
from bocl.experiment.config import MOST_SEED, Config, MethodName, experiment_name, load_config, run_name
from bocl.experiment.run import run
from bocl.experiment.side_by_side import check_at_once, side_by_side
from bocl.experiment.store import check_folder
from bocl.method_table import METHODS, searches
from bocl.methods.budget import GoalSettings
from bocl.records.events import Callback
from bocl.training.device import resolve_device

METHOD_NAMES = tuple(METHODS)

Grid = list[tuple[Config, Path]]
Watch = Callable[[Config, Path], AbstractContextManager[Callback]]


def plan(
    source: str | None,
    overrides: Sequence[str] = (),
    *,
    methods: str | None = None,
    seeds: str | None = None,
    out: str | None = None,
    device: str = "auto",
    at_once: int = 1,
    tell: Callable[[str], None] = lambda _line: None,
) -> Grid:
    """Return every run a command asks for; everything but the data is built once to find mistakes first.

    Of `all` methods, one that does not take the network is left out, and ``tell`` hears why.
    """
    base = load_config(source, overrides)
    folder = Path(out) if out else Path("runs") / experiment_name(source)
    graph = build_network(base.network)
    grid = []
    for method in _methods(methods) if methods is not None else [base.method]:
        try:
            build_method(replace(base, method=method), graph, device)
        except NetworkError as error:
            if methods != "all":
                raise
            tell(f"{method} is left out: {error}")
            continue
        if not searches(method) and (base.goal != GoalSettings() or base.prior_trials is not None):
            tell(f"{method} does not search: budgets, targets and prior trials have no part in it")
        for seed in parse_seeds(seeds) if seeds is not None else [base.seed]:
            config = replace(base, method=method, seed=seed)
            grid.append((config, folder / run_name(method, seed)))
    check_at_once(at_once, len(grid), resolve_device(device), graph.draws)
    return grid


def run_grid(
    grid: Grid,
    *,
    device: str = "auto",
    data: str | None = None,
    watch: Watch,
    audit: bool = True,
    at_once: int = 1,
    shares_device: int = 1,
    headline: bool = False,
) -> dict[Path, WorkError]:
    """Run a grid, ``at_once`` runs side by side; what is finished is passed over, what was begun goes on.

    shares_device, headline  of every run, for the record

    A run whose work fails does not keep the others from running: what failed is returned, by folder. Wrong input
    ends the grid at once, because it is likely wrong for all.
    """
    failed: dict[Path, WorkError] = {}
    for config, folder in grid:
        check_folder(folder, config)  # a folder that is refused is told before hours of other runs

    def one(config: Config, folder: Path) -> None:
        try:
            with watch(config, folder) as callback:
                run(
                    config,
                    folder,
                    device=device,
                    data=data,
                    callback=callback,
                    audit=audit,
                    shares_device=max(shares_device, min(at_once, len(grid))),
                    headline=headline,
                )
        except WorkError as error:
            failed[folder] = error

    runs = [partial(one, config, folder) for config, folder in grid]
    if at_once > 1 and len(runs) > 1:
        side_by_side(runs, at_once=at_once, device=resolve_device(device))
    else:
        for each in runs:
            each()
    return {folder: failed[folder] for _, folder in grid if folder in failed}


def _methods(text: str) -> list[MethodName]:
    if text == "all":
        return list(METHOD_NAMES)
    names = parse_words("--methods", text)
    if "all" in names:
        raise ConfigError(f"--methods: 'all' stands alone, and is one of several in '{text}'")
    for name in names:
        if name not in METHOD_NAMES:
            raise ConfigError(f"--methods: unknown method '{name}'{did_you_mean(name, (*METHOD_NAMES, 'all'))}")
    return names


def parse_seeds(text: str) -> list[int]:
    """Read seeds separated by commas."""
    words = parse_words("--seeds", text)
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) <= len(str(MOST_SEED))):
            raise ConfigError(f"--seeds: '{word}' is not a whole number from 0 to {MOST_SEED}, as in --seeds 0,1,2,3")
    seeds = [int(word) for word in words]
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"--seeds: '{text}' names a seed twice")
    return seeds


def parse_words(option: str, text: str) -> list[str]:
    """Read what an option lists, separated by commas."""
    words = [word.strip() for word in text.split(",")]
    if "" in words:
        raise ConfigError(f"{option}: '{text}' has an empty entry; separate entries by single commas")
    repeated = {word for word in words if words.count(word) > 1}
    if repeated:
        raise ConfigError(f"{option}: '{min(repeated)}' is given twice")
    return words
