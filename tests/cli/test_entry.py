"""The command before it begins, and what the system refuses to read."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import bocl as library
from bocl.cli.main import main

OLD = Path(__file__).parents[1] / "fixtures" / "run-format-2"
SOURCE = Path(library.__file__).parents[1]
INTERRUPTED = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
SWALLOWED = (
    f"try:\n    {INTERRUPTED.splitlines()[0]}\n    {INTERRUPTED.splitlines()[1]}\nexcept BaseException:\n    pass\n"
)


@pytest.mark.parametrize("code", [INTERRUPTED, SWALLOWED], ids=["raised", "swallowed by the library"])
@pytest.mark.parametrize("library", ["typer", "pydantic"], ids=["at the start", "by a command"])
def test_an_interrupted_import_ends_quietly(tmp_path, library, code):
    (tmp_path / f"{library}.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(SOURCE)])}
    command = [sys.executable, "-m", "bocl", "validate", "digits"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_interrupted_while_the_command_is_built_it_ends_quietly(monkeypatch, capsys):
    def build(*_arguments):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("typer.main.get_command", build)
    monkeypatch.setattr(sys, "argv", ["bocl", "list"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, *capsys.readouterr()) == (130, "", "")


def test_ctrl_c_that_is_ignored_stays_ignored(monkeypatch):
    from bocl.__main__ import main as entry

    monkeypatch.setattr(sys, "argv", ["bocl", "--version"])
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit):
            entry()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("words", [("show", "a\0b"), ("run", "a\0.toml"), ("run", "--out", "a\0b"), ("a\0b",)])
def test_a_null_character_is_refused_in_one_line(bocl, words):
    code, out, err = bocl(*words)
    assert (code, out) == (2, "")
    assert err == "bocl: the command line holds a null character, which no name or value can have\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
class TestWithoutPermission:
    @pytest.fixture
    def open_folder(self, monkeypatch):
        """Return an empty folder that anybody can reach, which pytest's are not."""
        folder = Path(tempfile.mkdtemp(dir="/tmp"))
        folder.chmod(0o755)
        monkeypatch.chdir(folder)
        yield folder
        monkeypatch.undo()
        shutil.rmtree(folder)

    @pytest.fixture
    def as_nobody(self, bocl, open_folder, monkeypatch):
        """Call the command line as a user without rights."""
        monkeypatch.chdir(open_folder)

        def call(*words):
            os.seteuid(65534)
            try:
                return bocl(*words)
            finally:
                os.seteuid(0)

        return call

    @pytest.mark.parametrize("closed", ["run", "run/journal.jsonl", "run/checkpoints", "grid", "grid/below"])
    def test_what_cannot_be_read_is_told_with_exit_code_2(self, bocl, as_nobody, open_folder, closed):
        shutil.copytree(OLD, open_folder / "run")
        shutil.copytree(OLD, open_folder / "grid" / "below" / "run")
        asked = Path(closed).parts[0]
        commands = [
            ("show", asked),
            ("audit", asked),
            ("pareto", asked),
            ("trials", asked),
            ("report", asked),
            ("pick", asked, "--alpha", "1"),
        ]
        os.chdir(open_folder)
        for words in commands:
            bocl(*words)  # imports what it needs
        (open_folder / closed).chmod(0o000 if closed != "grid" else 0o711)
        for words in commands:
            code, out, err = as_nobody(*words)
            assert (code, out, err.count("\n")) == (2, "", 1), (words, err)
            assert "cannot be read: Permission denied" in err, words

    def test_a_config_that_cannot_be_read_is_told_so(self, bocl, as_nobody, open_folder):
        (open_folder / "mine.toml").write_text("")
        for words in (("validate", "mine.toml"), ("run", "mine.toml"), ("study", "mine.toml", "--out", "x")):
            (open_folder / "mine.toml").chmod(0o644)
            bocl("validate", "mine.toml")
            bocl("study", "mine.toml", "--out", "x")
            (open_folder / "mine.toml").chmod(0o000)
            assert as_nobody(*words) == (2, "", "bocl: mine.toml: cannot be read: Permission denied\n")
