"""The table of methods: what the other packages need to know about a method without importing it.

A method is a file in ``methods/`` and one entry here. The command line, configs, records, the report, saved models and
the public names of ``bocl`` follow from the entry.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class MethodEntry:
    """One method.

    name      on the command line, in configs and in records
    home      the module that holds its class and settings
    cls       its class, a public name
    settings  the class of its own settings, a public name, whose config section is called like the method; '' if none
    reads     what its results depend on besides its own settings and those of stream, network and recipe
    searches  whether it tries several growths for a task and keeps one
    control   whether it is a control, not a system of its own
    colour    in the report: on light and on dark paper
    mark      in the report: the shape of its points
    """

    name: str
    home: str
    cls: str
    colour: tuple[str, str]
    mark: str
    settings: str = ""
    reads: tuple[str, ...] = ()
    searches: bool = False
    control: bool = False

    def load(self) -> Any:
        """Import and return the class."""
        return getattr(import_module(self.home), self.cls)

    def load_settings(self) -> Any:
        """Import and return the class of its own settings, None if it has none."""
        return getattr(import_module(self.home), self.settings) if self.settings else None


# Colours follow Okabe and Ito: people with any kind of colour blindness can tell them apart. Controls are greys.
METHODS: dict[str, MethodEntry] = {
    entry.name: entry
    for entry in (
        MethodEntry(
            "bocl",
            "bocl.methods.bocl",
            "BOCL",
            ("#d55e00", "#f28a3c"),
            "circle",
            reads=("growth.", "search.", "reward.", "goal.", "prior_trials"),
            searches=True,
        ),
        MethodEntry(
            "rcl",
            "bocl.methods.rcl",
            "RCL",
            ("#0072b2", "#4fa8e0"),
            "square",
            settings="RCLSettings",
            reads=(
                "growth.wiring",
                "search.bounds",
                "search.memory_gb",
                "search.children_at_once",
                "search.parts",
                "reward.alpha",
                "goal.",
            ),
            searches=True,
        ),
        MethodEntry("den", "bocl.methods.den", "DEN", ("#009e73", "#2fc79a"), "diamond", settings="DENSettings"),
        MethodEntry("pgn", "bocl.methods.pgn", "PGN", ("#b85c92", "#e092c0"), "triangle", settings="PGNSettings"),
        MethodEntry("gem", "bocl.methods.gem", "GEM", ("#3a9bd1", "#8fd3f7"), "wedge", settings="GEMSettings"),
        MethodEntry("ewc", "bocl.methods.ewc", "EWC", ("#c58a00", "#efb93f"), "plus", settings="EWCSettings"),
        MethodEntry("sn", "bocl.methods.sn", "SN", ("#7a7420", "#d3cc55"), "cross", settings="SNSettings"),
        MethodEntry("hat", "bocl.methods.hat", "HAT", ("#6a3d9a", "#b79be0"), "pentagon", settings="HATSettings"),
        MethodEntry("imm", "bocl.methods.imm", "IMM", ("#8c4a2f", "#cf9478"), "star", settings="IMMSettings"),
        MethodEntry(
            "packnet",
            "bocl.methods.packnet",
            "PackNet",
            ("#9c3d10", "#e39a72"),
            "square",
            settings="PackNetSettings",
        ),
        MethodEntry(
            "supsup", "bocl.methods.supsup", "SupSup", ("#5b5fc7", "#a3a6f0"), "diamond", settings="SupSupSettings"
        ),
        MethodEntry("wsn", "bocl.methods.wsn", "WSN", ("#00808a", "#58c6cf"), "circle", settings="WSNSettings"),
        MethodEntry("pc", "bocl.methods.pc", "PC", ("#2f6f4f", "#86c9a4"), "hexagon", settings="PCSettings"),
        MethodEntry("cab", "bocl.methods.cab", "CAB", ("#c2185b", "#f2729f"), "bar", settings="CABSettings"),
        MethodEntry(
            "fearnet",
            "bocl.methods.fearnet",
            "FearNet",
            ("#8c2f39", "#e58a92"),
            "hexagon",
            settings="FearNetSettings",
        ),
        MethodEntry(
            "fixed",
            "bocl.methods.fixed",
            "Fixed",
            ("#4b555f", "#c3ccd4"),
            "pentagon",
            settings="FixedSettings",
            reads=("growth.",),
            control=True,
        ),
        MethodEntry(
            "frozen", "bocl.methods.frozen", "Frozen", ("#85909b", "#8b97a3"), "star", reads=("growth.",), control=True
        ),
        MethodEntry(
            "independent", "bocl.methods.independent", "Independent", ("#1c2127", "#e6eaee"), "bar", control=True
        ),
        MethodEntry("joint", "bocl.methods.joint", "Joint", ("#a0aab4", "#6f7b87"), "hexagon", control=True),
    )
}


def searches(method: str) -> bool:
    """Whether the method of this name searches; a name that is not in the table does not."""
    return method in METHODS and METHODS[method].searches
