"""Methods × seeds on an engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bocl.engines.orders import Engine, RunOrder, make_unfinished
from bocl.errors import WorkError
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
        if not error or len(grid) > 1:  # who asked for a single run tells its error
            tell(f"{told}/{len(grid)}  {order.title}  {error or 'finished'}")

    orders = [
        RunOrder.of(f"{config.method}  seed {config.seed}", config, folder, data=data, audit=audit)
        for config, folder in grid
    ]
    make_unfinished(engine, orders, ended)
    return {folder: failed[folder] for _, folder in grid if folder in failed}
