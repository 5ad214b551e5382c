"""Arguments and options that several commands share, and the names that a shell completes on the Tab key.

A shell waits for those names, so nothing heavy is imported.
"""

from __future__ import annotations

from importlib import resources
from typing import Annotated

import typer

from bocl.method_table import METHODS


def complete_preset(incomplete: str) -> list[str]:
    """Return the shipped presets that begin so; if there is none, the shell completes files."""
    names = (place.name for place in resources.files("bocl.presets").iterdir())
    presets = sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))
    return [preset for preset in presets if preset.startswith(incomplete)]


def complete_methods(incomplete: str) -> list[str]:
    """Complete the last name of a list separated by commas; `all` is only completed as the first."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    names = [*METHODS] if comma else [*METHODS, "all"]
    return [f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in taken]


Run = Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run.")]
#: as in a config, where it is checked
GoalTolerance = Annotated[
    str | None,
    typer.Option(
        "--tolerance", help="Accuracy that may be given up for a smaller network: goal.tolerance, without a price."
    ),
]
Runs = Annotated[list[str], typer.Argument(metavar="RUN...", help="Folders of runs, or of folders of runs.")]
Overrides = Annotated[
    list[str] | None, typer.Option("--set", metavar="A.B=C", help="Set one value of the config; repeatable.")
]
Methods = Annotated[
    str | None,
    typer.Option(
        help="Methods, separated by commas, or `all`; else the config's own.", autocompletion=complete_methods
    ),
]
Alpha = Annotated[float | None, typer.Option(help="Choose by the reward at this price of a unit.")]
Budget = Annotated[int | None, typer.Option(help="Choose among those that add at most so many parameters.")]
Target = Annotated[float | None, typer.Option(help="Choose the smallest that is as accurate on validation.")]
Tolerance = Annotated[
    float | None, typer.Option(help="Choose the smallest that is at most so much less accurate than the best.")
]
Data = Annotated[str | None, typer.Option(help="Folder of the data files; else BOCL_DATA or the cache.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Let a stream or a network that is code of the run's maker run here.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]


def tolerance_overrides(tolerance: str | None) -> list[str]:
    """Return the settings that make a tolerance the goal, also where a preset names a price or a target."""
    if tolerance is None:
        return []
    return [f"goal.tolerance={tolerance}", "goal.target=none", "reward.alpha=none"]
