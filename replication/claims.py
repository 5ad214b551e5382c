"""What the paper claims, as numbers, each with the place it is printed. ``findings.py`` compares our runs with them.

Shares are fractions: 0.36 is 36 % fewer, and a negative one is more. The streams have ten tasks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

TASKS = 10
GROWING = ("bocl", "rcl", "den", "pgn")
FIXED_SIZE = ("sn", "ewc", "gem")

Measure = Literal["accuracy", "parameters", "time", "front", "keeps", "forgets", "trials", "attention"]


@dataclass(frozen=True)
class Claim:
    """One claim.

    figure   the figure or table of the report that shows it
    stream   our name of the benchmark
    measure  what is compared
    rival    what BOCL is compared with, or the method that the claim is about
    value    the number printed; None if the paper shows an order without a number
    where    the place in the paper
    """

    figure: str
    stream: str
    measure: Measure
    rival: str
    value: float | None
    where: str


_PARAMETERS = {
    "permuted-mnist": {"pgn": 0.36, "den": 0.24, "rcl": 0.10},
    "mixed-mnist": {"pgn": 0.38, "den": 0.23, "rcl": 0.12},
    "split-cifar100": {"pgn": 0.52, "den": 0.60, "rcl": 0.35},
}
_TIME = {
    "permuted-mnist": {"rcl": 0.49, "den": 0.39},
    "mixed-mnist": {"rcl": 0.37, "den": 0.31},
    "split-cifar100": {"rcl": 0.62, "den": -0.51},
}
_ATTENTION = {"permuted-mnist": 0.0010, "mixed-mnist": 0.0016, "split-cifar100": 0.022}


def _claims_on(stream: str) -> Iterator[Claim]:
    yield Claim("figure-2", stream, "accuracy", "fixed-size networks", None, "Figure 2(a)")
    for rival, share in _TIME[stream].items():
        yield Claim("figure-2", stream, "time", rival, share, "Section 4.1, Figure 2(c)")
    for rival in ("pgn", "den", "rcl"):
        yield Claim("figure-3", stream, "front", rival, None, "Figure 3")
    for method in ("bocl", "rcl", "pgn"):
        yield Claim("figure-4", stream, "keeps", method, 0.0, "Figure 4")
    for method in ("den", *FIXED_SIZE):
        yield Claim("figure-4", stream, "forgets", method, None, "Figure 4")
    for search in ("random", "reinforce"):
        yield Claim("figure-5", stream, "trials", search, None, "Figure 5")
    for rival, share in _PARAMETERS[stream].items():
        yield Claim("table-1", stream, "parameters", rival, share, "Table 1")
    yield Claim("attention", stream, "attention", "no attention", _ATTENTION[stream], "Section 4.1")


CLAIMS = tuple(claim for stream in _PARAMETERS for claim in _claims_on(stream))
