"""Methods × seeds on an engine, or a single run on several devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from bocl.engines.orders import Engine, RunOrder, make_unfinished
from bocl.engines.part_process import PartProcess
from bocl.engines.spread import SpreadTrainer
from bocl.errors import WorkError
from bocl.experiment.build import module_of
from bocl.experiment.config import Config
from bocl.experiment.grid import Grid
from bocl.experiment.store import check_folder


def run_grid_on(
    engine: Engine, grid: Grid, *, data: str | None, audit: bool, tell: Callable[[str], None]
) -> dict[Path, WorkError]:
    """Run a grid on an engine; ``tell`` is called with how each run ended. Return why runs failed, by folder."""
    for config, folder in grid:
        check_folder(folder, config)  # refuse a folder before hours of other runs, not after
    failed: dict[Path, WorkError] = {}
    told = 0

    def ended(order: RunOrder, error: str) -> None:
        nonlocal told
        told += 1
        if error:
            failed[Path(order.folder)] = WorkError(error)
        tell(f"{told}/{len(grid)}  {order.title}  {error or 'finished'}")

    orders = [
        RunOrder.of(f"{config.method}  seed {config.seed}", config, folder, data=data, audit=audit)
        for config, folder in grid
    ]
    make_unfinished(engine, orders, ended)
    return {folder: failed[folder] for _, folder in grid if folder in failed}


@contextmanager
def spread_over(devices: Sequence[torch.device] | None, config: Config) -> Iterator[SpreadTrainer | None]:
    """Yield a trainer that shares out the parts of a run's rounds; None where there is nothing to share.

    This process has the first device, and a process of its own each of the others, up to as many as there are parts.
    """
    helped = (devices or [])[1 : config.search.parts]
    imports = config.network.build if helped and module_of(config.network) else None
    helpers: list[PartProcess] = []
    try:
        helpers += (PartProcess(device, imports) for device in helped)
        yield SpreadTrainer(helpers) if helpers else None
    finally:
        for helper in helpers:
            helper.close()
