"""Methods × seeds: one run each, in a folder of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

from bocl.errors import FolderError, NetworkError, WorkError
from bocl.experiment.build import build_base, build_method
from bocl.experiment.config import DEFAULT_PRESET, Config, MethodName, folder_name, load_config, run_name
from bocl.experiment.run import run
from bocl.experiment.side_by_side import check_at_once, side_by_side
from bocl.experiment.store import check_folder
from bocl.method_table import METHODS, searches
from bocl.methods.budget import GoalSettings
from bocl.methods.rounds import RoundTrainer
from bocl.networks.growing import grows_in
from bocl.records.events import Callback
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL, RunLog
from bocl.training.device import resolve_device

Grid = list[tuple[Config, Path]]
Watch = Callable[[Config, Path], AbstractContextManager[Callback]]


def plan(
    source: str | None,
    overrides: Sequence[str] = (),
    *,
    methods: Sequence[MethodName] | Literal["all"] | None = None,
    seeds: Sequence[int] | None = None,
    out: str | None = None,
    device: str = "auto",
    data: str | None = None,
    at_once: int = 1,
    tell: Callable[[str], None] = lambda _line: None,
) -> Grid:
    """Return every run a command asks for; everything but the data is built once to find mistakes first.

    With `all` methods, one that does not take the network is left out, and ``tell`` is called with the reason.
    """
    base = load_config(source, overrides)
    folder = Path(out) if out else Path("runs") / folder_name(source or DEFAULT_PRESET)
    if os.path.isfile(folder / JOURNAL):
        raise FolderError(f"{folder} is a run; give the folder above it, in which a run is called METHOD-seedN")
    network = build_base(base, data)
    grid: Grid = []
    for method in chosen_methods(methods, base):
        try:
            build_method(replace(base, method=method), network, device)
        except NetworkError as error:
            if methods != "all":
                raise
            tell(f"{method} is left out: {error}")
            continue
        if not searches(method) and (base.goal != GoalSettings() or base.prior_trials is not None):
            tell(f"{method} does not search: budgets, targets and prior trials have no part in it")
        configs = [replace(base, method=method, seed=seed) for seed in seeds or [base.seed]]
        grid += [(config, folder / run_name(method, config.seed)) for config in configs]
    grid = [(split_over(config, folder, 1), folder) for config, folder in grid]
    check_at_once(at_once, len(grid), resolve_device(device), grows_in(network).draws)
    return grid


def split_over(config: Config, folder: Path, devices: int) -> Config:
    """Return the config of a run whose rounds are split over so many devices, unless its settings say how they are.

    A run that was begun keeps the parts that it began with, so that it has the same bits wherever it is resumed.
    """
    if config.search.parts > 1 or not searches(config.method):
        return config
    begun = RunLog.of(read(folder / JOURNAL), folder / JOURNAL).starts if os.path.isfile(folder / JOURNAL) else []
    most = min(devices, config.search.round_size)
    parts = begun[0].config.get("search", {}).get("parts", 1) if begun else most
    return replace(config, search=replace(config.search, parts=parts))


def chosen_methods(methods: Sequence[MethodName] | Literal["all"] | None, base: Config) -> Sequence[MethodName]:
    """Return the methods a command asks for, by default that of its config."""
    return list(METHODS) if methods == "all" else methods or [base.method]


def run_grid(
    grid: Grid,
    *,
    device: str = "auto",
    data: str | None = None,
    watch: Watch,
    audit: bool = True,
    at_once: int = 1,
    trainer: RoundTrainer | None = None,
) -> dict[Path, WorkError]:
    """Run a grid, ``at_once`` runs side by side; finished runs are skipped, and runs that were begun are resumed.

    trainer  of the rounds of a single run, instead of this process

    When the work of a run fails, the others still run; the errors are returned, by folder. Wrong input ends the
    grid at once, because it is likely wrong for all.
    """
    failed: dict[Path, WorkError] = {}
    for config, folder in grid:
        check_folder(folder, config)  # refuse a folder before hours of other runs, not after

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
                    shares_device=min(at_once, len(grid)),
                    trainer=trainer,
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
