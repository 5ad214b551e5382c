"""Networks that learn one task after another, never forget, and grow only as much as each task needs.

import bocl

    learner = bocl.BOCL(bocl.mlp(784, [312, 128]))
    for task in bocl.permuted_mnist(tasks=10, seed=0):
        learned = learner.learn(task)
    logits = learner.predict(x, task=0)

Names are imported when they are first used, so that ``import bocl`` and the command line start at once.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bocl.version import __version__

if TYPE_CHECKING:
    from bocl.errors import BoclError, ConfigError, DataError, InputError, NetworkError
    from bocl.experiment.config import load_config
    from bocl.experiment.run import run
    from bocl.methods.bocl import BOCL
    from bocl.methods.budget import GoalSettings
    from bocl.methods.den import DEN, DENSettings
    from bocl.methods.ewc import EWC, EWCSettings
    from bocl.methods.fixed import Fixed
    from bocl.methods.frozen import Frozen
    from bocl.methods.gem import GEM, GEMSettings
    from bocl.methods.independent import Independent
    from bocl.methods.joint import Joint
    from bocl.methods.method import Learned
    from bocl.methods.pgn import PGN, PGNSettings
    from bocl.methods.rcl import RCL
    from bocl.methods.reward import RewardSettings
    from bocl.methods.saving import load
    from bocl.methods.sn import SN
    from bocl.networks.architectures import lenet, mlp, resnet
    from bocl.networks.growth import GrowthSettings
    from bocl.networks.trace import trace
    from bocl.records.record import Trial
    from bocl.records.summary import summarise
    from bocl.search.problem import Problem, Searcher
    from bocl.search.settings import SearchSettings
    from bocl.tasks.arrays import from_arrays
    from bocl.tasks.mixed import mixed_mnist
    from bocl.tasks.permuted import permuted_digits, permuted_mnist
    from bocl.tasks.split import split_cifar100
    from bocl.tasks.task import Split, Task, TaskStream
    from bocl.training.recipe import Recipe

_HOME = {
    "bocl.errors": ("BoclError", "ConfigError", "DataError", "InputError", "NetworkError"),
    "bocl.experiment.config": ("load_config",),
    "bocl.experiment.run": ("run",),
    "bocl.methods.bocl": ("BOCL",),
    "bocl.methods.budget": ("GoalSettings",),
    "bocl.methods.den": ("DEN", "DENSettings"),
    "bocl.methods.ewc": ("EWC", "EWCSettings"),
    "bocl.methods.fixed": ("Fixed",),
    "bocl.methods.frozen": ("Frozen",),
    "bocl.methods.gem": ("GEM", "GEMSettings"),
    "bocl.methods.independent": ("Independent",),
    "bocl.methods.joint": ("Joint",),
    "bocl.methods.method": ("Learned",),
    "bocl.methods.pgn": ("PGN", "PGNSettings"),
    "bocl.methods.rcl": ("RCL",),
    "bocl.methods.reward": ("RewardSettings",),
    "bocl.methods.saving": ("load",),
    "bocl.methods.sn": ("SN",),
    "bocl.networks.architectures": ("lenet", "mlp", "resnet"),
    "bocl.networks.growth": ("GrowthSettings",),
    "bocl.networks.trace": ("trace",),
    "bocl.records.record": ("Trial",),
    "bocl.records.summary": ("summarise",),
    "bocl.search.problem": ("Problem", "Searcher"),
    "bocl.search.settings": ("SearchSettings",),
    "bocl.tasks.arrays": ("from_arrays",),
    "bocl.tasks.mixed": ("mixed_mnist",),
    "bocl.tasks.permuted": ("permuted_digits", "permuted_mnist"),
    "bocl.tasks.split": ("split_cifar100",),
    "bocl.tasks.task": ("Split", "Task", "TaskStream"),
    "bocl.training.recipe": ("Recipe",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [  # noqa: RUF022 - grouped as in _HOME
    "__version__",
    "BoclError",
    "ConfigError",
    "DataError",
    "InputError",
    "NetworkError",
    "load_config",
    "run",
    "BOCL",
    "GoalSettings",
    "DEN",
    "DENSettings",
    "EWC",
    "EWCSettings",
    "Fixed",
    "Frozen",
    "GEM",
    "GEMSettings",
    "Independent",
    "Joint",
    "Learned",
    "PGN",
    "PGNSettings",
    "RCL",
    "RewardSettings",
    "load",
    "SN",
    "lenet",
    "mlp",
    "resnet",
    "GrowthSettings",
    "trace",
    "Trial",
    "summarise",
    "Problem",
    "Searcher",
    "SearchSettings",
    "from_arrays",
    "mixed_mnist",
    "permuted_digits",
    "permuted_mnist",
    "split_cifar100",
    "Split",
    "Task",
    "TaskStream",
    "Recipe",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'bocl' has no attribute '{name}'")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
