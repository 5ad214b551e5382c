"""How a search is run: which searcher, how many trials, how far each group may grow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from bocl.errors import ConfigError, did_you_mean
from bocl.records.record import Widths

SearchKind = Literal["paper", "random"]


@dataclass(frozen=True)
class SearchSettings:
    """Settings of one task's search, the same for every searcher so that comparisons are fair.

    kind         which searcher: "paper" (Gaussian process, expected improvement) or "random"
    trials       N: most children trained after the opening points
    patience     H: children in a row, after the opening points, without a new best reward
    warm_points  m: opening points, trained before the search proper begins
    bounds       most units a group may grow by: one number for all groups, or one per group
    round_size   children asked for, and trained together, in one round; a searcher may give fewer
    """

    kind: SearchKind = "paper"
    trials: int = 20
    patience: int = 5
    warm_points: int = 3
    bounds: int | tuple[int, ...] = 29
    round_size: int = 8

    def __post_init__(self) -> None:
        """Refuse values no search can run with."""
        if self.kind not in get_args(SearchKind):
            raise ConfigError(
                f"search.kind is {self.kind!r}, which is no searcher"
                + did_you_mean(str(self.kind), get_args(SearchKind))
            )
        _check_whole("trials", self.trials, least=1)
        _check_whole("patience", self.patience, least=1)
        _check_whole("warm_points", self.warm_points, least=0)
        _check_whole("round_size", self.round_size, least=1)
        if isinstance(self.bounds, tuple):
            if not self.bounds:
                raise ConfigError("search.bounds is empty; give one number, or one number per hidden group")
            for position, bound in enumerate(self.bounds):
                _check_whole(f"bounds[{position}]", bound, least=0)
        else:
            _check_whole("bounds", self.bounds, least=0)

    def bounds_for(self, groups: int) -> Widths:
        """Return one bound per hidden group of a network that has ``groups`` of them."""
        if not isinstance(self.bounds, tuple):
            return (self.bounds,) * groups
        if len(self.bounds) != groups:
            raise ConfigError(
                f"search.bounds has {len(self.bounds)} entries {self.bounds}, but the network has {groups} "
                f"hidden groups; give {groups} entries, or one number for all"
            )
        return self.bounds


def _check_whole(name: str, value: object, *, least: int) -> None:
    """Refuse anything but a whole number of at least ``least``."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"search.{name} is {value!r}; give a whole number, {least} or more")
