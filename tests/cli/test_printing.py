"""Nothing that others wrote reaches the terminal as anything but printable text."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path

import pytest

import bocl.cli.printing
from bocl.progress.display import Display
from bocl.records.events import TaskStarted
from bocl.records.journal import BEGINNING, encode, read

OLD = Path(__file__).parents[1] / "fixtures" / "run-format-2"
STEERS = "\x1b]0;x\x07\x1b[2J"  # sets a window's title, clears the screen
TURNS = "\u202egpj"  # is shown from right to left
HOSTILE = f"n{STEERS}{TURNS}\r\x9b\x7f[red]\n:bomb:"


def make_hostile(folder: Path) -> None:
    """Let a run's journal hold hostile text wherever it holds text of its own."""
    head, lines = BEGINNING, []
    for record in read(folder / "journal.jsonl"):
        if record["kind"] == "task":
            parts = {f"{part}{HOSTILE}": number for part, number in record["parameters"].items()}
            record = {**record, "name": HOSTILE, "parameters": parts, "units": {HOSTILE: [1, 1]}}
        if record["kind"] == "start":
            record = {**record, "groups": [HOSTILE, *record["groups"][1:]], "node": HOSTILE}
        line, head = encode(record, head)
        lines.append(line)
    (folder / "journal.jsonl").write_bytes(b"".join(lines))


def check_printable(text: str) -> None:
    """Fail on a character that a terminal acts upon; lines may end."""
    assert all(line.isprintable() for line in text.split("\n")), ascii(text)


@pytest.fixture
def hostile(tmp_path):
    folder = shutil.copytree(OLD, tmp_path / f"runs{TURNS}" / f"a{STEERS}b")
    make_hostile(folder)
    return folder


@pytest.mark.parametrize(
    ("command", "options", "code"),
    [
        ("show", (), 0),
        ("show", ("--task", 2), 0),
        ("show", ("--json",), 0),
        ("status", (), 0),
        ("status", ("--json",), 0),
        ("pareto", (), 0),
        ("pareto", ("--json",), 0),
        ("audit", (), 1),
        ("audit", ("--json",), 1),
        ("trials", ("-o", f"t{STEERS}"), 0),
        ("report", ("-o", f"r{STEERS}.html", "--assets", f"f{TURNS}"), 0),
        ("pick", ("--widths", "0,0"), 2),
    ],
)
def test_a_command_prints_only_printable_text(bocl, hostile, command, options, code):
    ended, out, err = bocl(command, hostile, *options)
    assert ended == code, err
    check_printable(out)
    check_printable(err)
    if "--json" in options:
        assert out.isascii()
        assert json.loads(out)
    elif command != "pick":
        assert "\\x1b" in out + err, "it is shown, escaped"


def test_several_runs_and_their_folders_too(bocl, hostile):
    shutil.copytree(hostile, hostile.with_name("other"))
    _, out, err = bocl("show", hostile.parent)
    check_printable(out + err)
    assert "\\u202e" in out


def test_an_audit_that_succeeds_prints_its_folder_so_too(bocl, tmp_path):
    folder = shutil.copytree(OLD, tmp_path / f"a{STEERS}{TURNS}")
    code, out, _ = bocl("audit", folder)
    assert code == 0
    check_printable(out)


def test_a_run_shows_its_folder_and_tasks_so(capsys):
    with Display() as display, display.watch("bocl", 0, "digits", Path(f"a{STEERS}")) as callback:
        callback(TaskStarted(0, 5, HOSTILE))
        display.say(f"task {HOSTILE}")
    check_printable(capsys.readouterr().err)


def test_names_in_a_config_or_study_are_told_so(bocl, tmp_path):
    (tmp_path / "c.toml").write_text('"\\u001b[2J\\u202e" = 1\nmethod = "\\u001b[2J"\n', encoding="utf-8")
    (tmp_path / "s.toml").write_text('on = ["\\u001b[2J"]\n[[run]]', encoding="utf-8")
    for words in (("run", "c.toml"), ("study", "s.toml", "--out", "x"), ("run", STEERS), (STEERS,), (f"--{TURNS}",)):
        code, out, err = bocl(*words)
        assert (code, out) == (2, "")
        check_printable(err)


def test_a_name_cannot_add_a_line(bocl, tmp_path):
    name = "a\n  bocl: all is well"
    assert bocl("show", name)[2].count("\n") == 1
    (tmp_path / "c.toml").write_text('"a\\n  b" = 1\n"c" = 1\n')
    assert bocl("run", "c.toml")[2].count("\n") == 3, "one for each mistake"


def test_nobody_prints_past_the_file_that_makes_text_printable():
    """``typer.echo`` of a text, a console and its markup are used only where they are wrapped."""
    folder = Path(bocl.cli.printing.__file__).parent
    direct = [
        f"{path.name}:{node.lineno}"
        for path in sorted(folder.glob("*.py"))
        if path.name not in ("printing.py", "main.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if getattr(node, "attr", "") == "echo"
        or getattr(node, "id", "") == "print"
        or getattr(node, "module", "") == "rich.markup"
    ]
    assert direct == []
