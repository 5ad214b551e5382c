"""The public names, pinned: adding or removing one is a decision, not an accident."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import bocl
from bocl.method_table import METHODS

NAMES = {
    *("__version__", "BoclError", "ConfigError", "DataError", "DataWarning", "DeviceError", "InputError"),
    *("NetworkError", "OpenRun", "audit", "open", "track"),
    *(name for entry in METHODS.values() for name in (entry.cls, entry.settings) if name),
    *("DataWarning", "DeviceError", "GoalWarning", "NetworkWarning"),
    *("OpenRun", "open", "convnet"),
    *("Learned", "Learner", "load", "run", "load_config", "summarise"),
    *("TaskNetwork", "load_module", "Exported"),
    *("mlp", "convnet", "lenet", "resnet", "trace"),
    *("efficientnet_lite0", "mobilenet_v2", "text_encoder", "pretrained"),
    *("GrowthSettings", "GoalSettings", "GuessSettings", "RewardSettings", "SearchSettings", "Recipe", "TaskGuess"),
    *("Problem", "Searcher", "TaskRecord", "Trial"),
    *("TaskStarted", "RoundStarted", "EpochDone", "OutOfMemory", "TrialDone", "TaskDone"),
    *("Split", "Task", "TaskStream", "from_arrays", "from_texts"),
    *("permuted_digits", "permuted_mnist", "mixed_mnist", "split_cifar100", "text_sections", "keel_tables"),
}


def test_the_public_names_are_these():
    assert set(bocl.__all__) == NAMES
    assert set(dir(bocl)) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES - {"__version__"}))
def test_every_public_name_resolves_and_explains_itself(name):
    assert getattr(bocl, name).__doc__


@pytest.mark.parametrize("entry", METHODS.values(), ids=METHODS)
def test_every_method_and_its_settings_are_public(entry):
    assert entry.load() is getattr(bocl, entry.cls)
    assert entry.load().name == entry.name
    if entry.settings:
        assert entry.load_settings() is getattr(bocl, entry.settings)


def test_type_checkers_are_told_every_public_name():
    stub = Path(bocl.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    missing = [name for name in sorted(NAMES) if f" import {name} as {name}\n" not in stub]
    assert not missing, f"add to __init__.pyi: {missing}"


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Bocl'"):
        _ = bocl.Bocl


def test_importing_bocl_does_not_import_torch():
    code = "import sys, bocl; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
