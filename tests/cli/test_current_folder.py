"""Code in the current folder runs only if it is named; a config is code, runs and models that were received are not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bocl as library

OLD = Path(__file__).parents[1] / "fixtures" / "run-format-2"
SOURCE = Path(library.__file__).parents[1]
SMALL = ("--set", "stream.tasks=2", "--set", "recipe.epochs=1", "--set", "search.trials=2", "--set", "search.bounds=3")
TRAP = "from pathlib import Path\nPath(__file__).with_suffix('.executed').touch()\n"
NETWORK = """
from torch import nn

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 6), nn.ReLU(), nn.Linear(6, 10))
"""
SCRIPT = "import sys; from bocl.__main__ import main; sys.exit(main())"  # as an installer writes it


@pytest.fixture
def forget():
    """Forget modules of the user's after a test."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name in ("mine", "mine_helper", "received"):
            del sys.modules[name]


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (("-m", "bocl"), ("show", "run")),
        (("-m", "bocl"), ("status", "run")),
        (("-m", "bocl"), ("audit", "run")),
        (("-m", "bocl"), ("run", "digits", "--methods", "sn", *SMALL)),
        (("-P", "-c", SCRIPT), ("audit", "run")),
    ],
    ids=lambda words: words[0],
)
def test_what_lies_in_the_current_folder_is_not_executed(tmp_path, start, words):
    shutil.copytree(OLD, tmp_path / "run")
    for name in ("triton", "numpy_extra", "typer", "rich", "pydantic", "numpy", "torch", "sklearn", "mine"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = subprocess.run([sys.executable, *start, *words], cwd=tmp_path, env=environment, capture_output=True)
    assert (done.returncode, [*tmp_path.glob("*.executed")]) == (0, []), done.stderr


@pytest.mark.filterwarnings("default")
def test_what_is_ignored_in_a_network_is_told_in_one_line(bocl, tmp_path, forget):
    (tmp_path / "mine.py").write_text(f"{NETWORK}\ndef frozen():\n    return build().requires_grad_(False)\n")
    for function, told in (("build", ""), ("frozen", "'1.weight' and 3 more have requires_grad=False")):
        code, _, err = bocl("validate", "digits", "--trust", "--set", f"network=mine:{function}")
        assert code == 0
        assert err.count("\n") == bool(told)
        assert err.startswith("bocl: only the shape of a network is kept") == bool(told)
        assert told in err


def test_a_named_network_is_found_there_and_nothing_else(bocl, tmp_path, forget):
    (tmp_path / "mine.py").write_text(f"import mine_helper\n{NETWORK}\ndef late():\n    import mine_late\n")
    for name in ("mine_helper", "mine_late"):
        (tmp_path / f"{name}.py").write_text(TRAP)
    path = list(sys.path)
    assert bocl("validate", "digits", "--set", "network=mine:build", "--trust")[0] == 0
    assert sys.path == path
    assert (tmp_path / "mine_helper.executed").exists(), "what it imports may lie next to it"
    code, _, err = bocl("run", "digits", "--set", "network=mine:late")
    assert (code, err.count("\n")) == (2, 1)
    assert "No module named 'mine_late' (import it at the top of its module)" in err
    assert not (tmp_path / "mine_late.executed").exists()


def test_an_installed_module_is_imported_without_the_current_folder(tmp_path, monkeypatch):
    from bocl.experiment.build import build_network
    from bocl.experiment.config import NetworkSettings

    installed, here = tmp_path / "installed", tmp_path / "here"
    for folder in (installed, here):
        folder.mkdir()
    (installed / "mine_installed.py").write_text(
        f"try:\n    import mine_optional\nexcept ImportError:\n    pass\n{NETWORK}"
    )
    (here / "mine_optional.py").write_text(TRAP)
    monkeypatch.syspath_prepend(installed)
    monkeypatch.chdir(here)
    assert build_network(NetworkSettings("mine_installed:build")).groups
    assert not (here / "mine_optional.executed").exists()


def test_validate_imports_nothing_unless_told_to_trust(bocl, tmp_path, forget):
    (tmp_path / "mine.py").write_text(TRAP + NETWORK)
    (tmp_path / "mine.toml").write_text('network = "mine:build"\n[stream]\ntasks = 2\n')
    code, out, err = bocl("validate", "mine.toml", "--methods", "sn,bocl")
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "mine.toml is valid: sn, bocl on 2 tasks of permuted-digits",
        "network mine:build: not built, because that runs code of mine; add --trust if you trust it",
    ]
    assert bocl("validate", "mine.toml", "--json")[0] == 0
    assert bocl("validate", "mine.toml", "--set", "recipe.epoch=1")[0] == 2, "all else is checked"
    assert bocl("validate", "mine.toml", "--set", "network=min")[0] == 2
    assert not (tmp_path / "mine.executed").exists()
    assert "hidden groups 1 6" in bocl("validate", "mine.toml", "--trust")[1]
    assert (tmp_path / "mine.executed").exists()


@pytest.mark.parametrize(
    ("network", "said"),
    [
        ("{build='os:system', arguments={command='true'}}", "what os:system returns must be an nn.Module, not int: 0;"),
        ("os:getcwd", "what os:getcwd returns must be an nn.Module, not str: "),
    ],
)
def test_a_function_that_returns_no_module_is_refused(bocl, network, said):
    code, out, err = bocl("run", "digits", "--set", f"network={network}")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert said in err


def test_runs_and_models_received_from_others_execute_nothing(bocl, tmp_path, forget):
    trained = tmp_path / "received.py"
    trained.write_text(NETWORK)
    assert bocl("run", "digits", *SMALL, "--set", "network=received:build", "--out", "runs")[0] == 0
    del sys.modules["received"]
    trained.write_text(TRAP + NETWORK)
    shutil.rmtree(tmp_path / "__pycache__", ignore_errors=True)
    for words in (
        ("show", "runs"),
        ("status", "runs"),
        ("show", "runs", "--task", 2),
        ("pareto", "runs"),
        ("trials", "runs"),
        ("report", "runs"),
        ("audit", "runs"),
        ("pick", "runs", "--widths", "0"),
        ("audit", "runs"),
    ):
        assert bocl(*words)[0] == 0, words
    learner = library.load("runs/bocl-seed0", device="cpu")
    learner.save("model")
    library.load("model", device="cpu")
    assert "received" not in sys.modules
    assert not (tmp_path / "received.executed").exists()
