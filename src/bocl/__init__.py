"""Networks that learn one task after another, never forget, and grow only as much as each task needs.

import bocl

    learner = bocl.BOCL(bocl.mlp(784, [312, 128]))
    for task in bocl.permuted_mnist(tasks=10, seed=0):
        learned = learner.learn(task)
    logits = learner.predict(x, task=0)

Names are imported when they are first used, so that ``import bocl`` and the command line start at once. Type checkers
read them from ``__init__.pyi``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from bocl.method_table import METHODS
from bocl.version import __version__

_HOME = {
    "bocl.errors": (
        "BoclError",
        "ConfigError",
        "DataError",
        "DataWarning",
        "DeviceError",
        "GoalWarning",
        "InputError",
        "NetworkError",
        "NetworkWarning",
    ),
    "bocl.experiment.audit": ("audit",),
    "bocl.experiment.build": ("pretrained",),
    "bocl.experiment.config": ("load_config",),
    "bocl.experiment.open_run": ("OpenRun", "open"),
    "bocl.experiment.run": ("run",),
    "bocl.methods.budget": ("GoalSettings",),
    "bocl.methods.exporting.export": ("Exported",),
    "bocl.methods.exporting.safetensors_file": ("load_module",),
    "bocl.methods.guessing": ("GuessSettings", "TaskGuess"),
    "bocl.methods.method": ("Learned", "Learner"),
    "bocl.methods.reward": ("RewardSettings",),
    "bocl.methods.saving": ("load",),
    "bocl.methods.task_network": ("TaskNetwork",),
    "bocl.networks.architectures": ("convnet", "lenet", "mlp", "resnet"),
    "bocl.networks.mobile": ("efficientnet_lite0", "mobilenet_v2"),
    "bocl.networks.text_encoder": ("text_encoder",),
    "bocl.networks.growth": ("GrowthSettings",),
    "bocl.networks.trace": ("trace",),
    "bocl.records.events": (
        "EpochDone",
        "OutOfMemory",
        "RoundStarted",
        "TaskDone",
        "TaskStarted",
        "TrialDone",
    ),
    "bocl.records.record": ("TaskRecord", "Trial"),
    "bocl.records.summary": ("summarise",),
    "bocl.search.problem": ("Problem", "Searcher"),
    "bocl.search.settings": ("SearchSettings",),
    "bocl.tasks.arrays": ("from_arrays", "from_texts"),
    "bocl.tasks.keel_tables": ("keel_tables",),
    "bocl.tasks.mixed": ("mixed_mnist",),
    "bocl.tasks.permuted": ("permuted_digits", "permuted_mnist"),
    "bocl.tasks.split": ("split_cifar100",),
    "bocl.tasks.task": ("Split", "Task", "TaskStream"),
    "bocl.tasks.text_sections": ("text_sections",),
    "bocl.tracking.track": ("track",),
    "bocl.training.recipe": ("Recipe",),
}


def _homes() -> dict[str, str]:
    """Return {public name: its module}; a method and its settings are public by its entry in the table."""
    methods = {name: entry.home for entry in METHODS.values() for name in (entry.cls, entry.settings) if name}
    return {**{name: module for module, names in _HOME.items() for name in names}, **methods}


__all__ = ["__version__", *_homes()]


def __getattr__(name: str) -> Any:
    homes = _homes()
    if name not in homes:
        raise AttributeError(f"module 'bocl' has no attribute '{name}'")
    return getattr(import_module(homes[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
