"""Completion on the Tab key, asked as a shell asks: through the environment."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import bocl.version
from bocl.method_table import METHODS

SHELLS = ["bash", "zsh", "fish"]


@pytest.fixture
def program(tmp_path):
    """Return a bocl of one's own in an empty home."""
    path = tmp_path / "bocl"
    path.write_text(f"#!{sys.executable}\nfrom bocl.cli.main import main\n\nmain()\n")
    path.chmod(0o755)
    return path


def call(program, *words, **variables):
    source = str(Path(bocl.version.__file__).parents[1])
    env = {**os.environ, "PYTHONPATH": source, "HOME": str(program.parent), **variables}
    done = subprocess.run([program, *words], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def completions(program, line, shell="bash"):
    """Return what a shell is answered when Tab is hit at the end of a line."""
    words = line.split(" ")
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    return call(program, _BOCL_COMPLETE=f"complete_{shell}", **asked).split()


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("bocl va", ["validate"]),
        ("bocl run dig", ["digits"]),
        ("bocl run p", ["permuted-mnist"]),
        ("bocl validate split-", ["split-cifar100"]),
        ("bocl run digits --methods jo", ["joint"]),
        ("bocl run digits --methods ewc,jo", ["ewc,joint"]),
        ("bocl run digits --methods bocl,rcl,r", []),
        ("bocl run digits --methods al", ["all"]),
        ("bocl run digits --methods sn,al", []),
        ("bocl validate digits --methods ", [*METHODS, "all"]),
        ("bocl run digits --total", ["--total-budget"]),
        ("bocl run mine.to", []),  # the shell completes files
    ],
)
def test_commands_presets_and_methods_are_completed(program, line, names):
    assert completions(program, line) == names


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_is_answered_in_its_own_words(program, shell):
    answer = " ".join(completions(program, "bocl run dig", shell))
    assert answer == {"bash": "digits", "zsh": """_arguments '*: :(("digits"))'""", "fish": "digits"}[shell]


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_for_every_shell_can_be_shown_and_installed(program, shell):
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # name the shell, do not look for it
    assert f"_BOCL_COMPLETE=complete_{shell}" in call(program, "--show-completion", shell, **named)
    assert f"{shell} completion installed" in call(program, "--install-completion", shell, **named)
    files = [path for path in program.parent.rglob("*") if path.is_file() and path != program]
    assert any(f"_BOCL_COMPLETE=complete_{shell}" in path.read_text() for path in files)


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_a_line_with_the_installed_script(program):
    script = call(program, "--show-completion", "bash", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    tab = "COMP_WORDS=(bocl run dig); COMP_CWORD=2; _bocl_completion $0; echo ${COMPREPLY[@]}"
    env = {**os.environ, "PYTHONPATH": str(Path(bocl.version.__file__).parents[1])}
    done = subprocess.run(["bash", "-c", f"{script}\n{tab}", program], env=env, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("digits\n", "")


def test_nothing_heavy_is_imported_meanwhile(program):
    lines = (
        "import sys",
        "from bocl.cli.main import main",
        "try:",
        "    main()",
        "finally:",
        "    print(*sys.modules)",
    )
    program.write_text("\n".join((f"#!{sys.executable}", *lines)))
    answer = set(completions(program, "bocl run digits --methods "))
    assert {"joint", "bocl.method_table"} <= answer
    assert not {"torch", "numpy", "bocl.experiment.config"} & answer
