"""What an option lists, separated by commas."""

from __future__ import annotations

from typing import Literal

from bocl.errors import ConfigError, did_you_mean
from bocl.experiment.config import MOST_SEED
from bocl.method_table import METHODS


def parse_methods(text: str | None) -> list[str] | Literal["all"] | None:
    """Read the methods of ``--methods``."""
    if text is None:
        return None
    if text == "all":
        return "all"
    names = parse_words("--methods", text)
    if "all" in names:
        raise ConfigError(f"--methods: 'all' stands alone, and is one of several in '{text}'")
    for name in names:
        if name not in METHODS:
            raise ConfigError(f"--methods: unknown method '{name}'{did_you_mean(name, (*METHODS, 'all'))}")
    return names


def parse_seeds(text: str | None) -> list[int] | None:
    """Read the seeds of ``--seeds``."""
    if text is None:
        return None
    words = parse_words("--seeds", text)
    for word in words:
        if not (word.isascii() and word.isdigit() and len(word) <= len(str(MOST_SEED))):
            raise ConfigError(f"--seeds: '{word}' is not a whole number from 0 to {MOST_SEED}, as in --seeds 0,1,2,3")
    seeds = [int(word) for word in words]
    if len(set(seeds)) < len(seeds):
        raise ConfigError(f"--seeds: '{text}' names a seed twice")
    return seeds


def parse_words(option: str, text: str) -> list[str]:
    """Read what an option lists."""
    words = [word.strip() for word in text.split(",")]
    if "" in words:
        raise ConfigError(f"{option}: '{text}' has an empty entry; separate entries by single commas")
    repeated = {word for word in words if words.count(word) > 1}
    if repeated:
        raise ConfigError(f"{option}: '{min(repeated)}' is given twice")
    return words
