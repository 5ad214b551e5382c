"""Names that a shell completes on the Tab key; a shell waits for them, so nothing heavy is imported."""

from __future__ import annotations

from importlib import resources

from bocl.method_table import METHODS


def complete_preset(incomplete: str) -> list[str]:
    """Return the shipped presets that begin so; where there is none, the shell completes files."""
    names = (place.name for place in resources.files("bocl.presets").iterdir())
    presets = sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))
    return [preset for preset in presets if preset.startswith(incomplete)]


def complete_methods(incomplete: str) -> list[str]:
    """Complete the last name of a list separated by commas; `all` only stands alone."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    names = [*METHODS] if comma else [*METHODS, "all"]
    return [f"{before}{comma}{name}" for name in names if name.startswith(last) and name not in taken]
