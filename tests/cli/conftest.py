"""Fixtures for the command line."""

from __future__ import annotations

import sys

import pytest

from bocl.cli.main import main


@pytest.fixture
def bocl(monkeypatch, capsys, tmp_path):
    """Call the command line in an empty folder; return (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["bocl", *map(str, words)])
        monkeypatch.setattr(sys, "path", list(sys.path))
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return ended.value.code or 0, out, err

    return call
