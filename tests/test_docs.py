"""Every code block of the README and of the documentation runs, and shows what really happens.

    ```python            run; the blocks of a page share their names
    ```console           each `$ bocl …` is run; what stands below it is compared with what it prints
    ```toml              read as a config or a study
    ```sh                `make` and `pip`: the targets exist
    ```text              not code
    ```python avalanche  run where Avalanche is installed (tests/test_avalanche.py), compiled elsewhere
    ```console ray       run where Ray is installed (tests/engines/test_ray.py); elsewhere options are checked
    ```console slurm     and so where submitit is (tests/engines/test_slurm.py)
    ```LANGUAGE no-run   needs data, a GPU or minutes: syntax, options and configs are checked, nothing is run

A block whose first line is a comment with the name of a file is written to that file. In a transcript, a line `…`
stands for any lines, and ` …` for the rest of a line. Times and hashes may differ.
"""

from __future__ import annotations

import contextlib
import io
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.main import get_command

from bocl.cli.main import app, main
from bocl.experiment.config import load_config, presets
from bocl.experiment.study import load_study
from bocl.method_table import METHODS

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted(path for path in (ROOT / "docs").rglob("*.md") if path.parent.name != "project")]
FENCE = re.compile(r"^```(\S+)([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SHOWN_LIVE = re.compile(r"^task \d+/\d+  trial ")  # a terminal shows these only in passing
VARIES = re.compile(r"\b(\d+(\.\d+)? (s|min|h)\b( \d+ (s|min)\b)?|[0-9a-f]{64})")


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    language: str
    info: str
    text: str

    @property
    def run(self) -> bool:
        """Whether it runs wherever the tests do."""
        return not self.info

    @property
    def file(self) -> str | None:
        """The file it is, where its first line says so."""
        named = re.match(r"# ([\w-]+\.(py|toml))\n", self.text)
        return named[1] if named else None

    @property
    def commands(self) -> list[tuple[str, str]]:
        """The commands of a transcript, each with what it prints."""
        parts = re.split(r"^\$ (.*)\n?", self.text, flags=re.MULTILINE)
        assert not parts[0].strip(), f"a transcript begins with a command: {parts[0]}"
        return list(zip(parts[1::2], parts[2::2], strict=True))


def blocks(page: Path) -> list[Block]:
    """Return the code blocks of a page; directives of Sphinx are none."""
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [Block(word, info.strip(), text) for word, info, text in found if not word.startswith("{")]


def call(command: str) -> str:
    """Run one command line in this process and return all it prints."""
    words = shlex.split(command)
    assert words[0] == "bocl", command
    printed = io.StringIO()
    path, arguments = list(sys.path), sys.argv
    sys.argv = words
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            pytest.raises(SystemExit) as ended,
        ):
            main()
    finally:
        sys.path[:], sys.argv = path, arguments
    assert not ended.value.code, f"{command}: {printed.getvalue()}"
    return printed.getvalue()


@pytest.fixture(scope="session")
def digits(tmp_path_factory):
    """Run the preset `digits` once; return its folder and what it printed."""
    folder = tmp_path_factory.mktemp("digits")
    with contextlib.chdir(folder), pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "160")
        return folder, call("bocl run digits")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_of_a_page_runs(page, digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    folder, first_run = digits
    shutil.copytree(folder / "runs", tmp_path / "runs")
    names: dict[str, object] = {}
    for block in blocks(page):
        if block.file:
            (tmp_path / block.file).write_text(block.text, encoding="utf-8")
        match block.language:
            case "python":
                code = compile(block.text, f"<{page.name}>", "exec")
                if block.run:
                    exec(code, names)
            case "console":
                for command, shown in block.commands:
                    check_options(command)
                    if block.run:
                        printed = first_run if command == "bocl run digits" else call(command)
                        if shown.strip():
                            assert agrees(shown, printed), f"{command} prints:\n{printed}"
            case "toml":
                read = load_study if "[[run]]" in block.text else load_config
                read(block.file)
            case "sh":
                for line in block.text.splitlines():
                    check_shell(line.partition("#")[0].strip())
            case other:
                assert other == "text", f"a block of {other}: say in this file what to do with it"


def run_transcripts(page: Path, where: str) -> int:
    """Run in this folder the commands of a page that need ``where``; return how many there were."""
    commands = []
    for block in blocks(page):
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        if block.language == "console" and block.info == where:
            commands += [command for command, _ in block.commands]
    for command in commands:
        call(command)
    return len(commands)


def check_options(command: str) -> None:
    """Parse a command line without running it; the config of a run must be right."""
    name, *words = shlex.split(command)[1:]
    context = get_command(app).commands[name].make_context(name, words)
    source = context.params.get("source")
    if name == "run" and (source is None or source in presets()):
        load_config(source, context.params["overrides"] or ())


def check_shell(line: str) -> None:
    words = shlex.split(line)
    if words and words[0] == "make":
        targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
        assert words[1] in targets, line
    else:
        assert not words or words[0] in ("pip", "."), line


def agrees(shown: str, printed: str) -> bool:
    """Whether a transcript is what was printed."""
    wanted = "\n".join(map(_plain, shown.strip("\n").splitlines()))
    lines = [_plain(line) for line in printed.strip("\n").splitlines() if not SHOWN_LIVE.match(line)]
    pattern = re.escape(wanted).replace(re.escape("\n…"), "(\n.*)*").replace(re.escape(" …"), ".*")
    pattern = "(.*\n)*" + pattern.removeprefix(re.escape("…\n")) if wanted.startswith("…\n") else pattern
    return re.fullmatch(pattern, "\n".join(lines)) is not None


def _plain(line: str) -> str:
    """Return a line without what varies, and without the width of its columns, which follows from it."""
    return re.sub(r" +", " ", VARIES.sub("VARIES", line)).rstrip()


@pytest.mark.parametrize(
    ("shown", "same"),
    [
        ("task 1  2.3 s\nACC  95 %\n", True),
        ("task 1  2.3 s\n…\n", True),
        ("…\nACC  95 %\n", True),
        ("task …\nACC  95 %\n", True),
        ("task 1  2.3 s\n", False),
        ("task 1  2.3 s\nACC  96 %\n", False),
        ("…\nACC  9 %\n", False),
    ],
)
def test_a_transcript_that_is_not_what_happens_is_found(shown, same):
    assert agrees(shown, "task 1   11.0 s\ntask 1/5  trial 3/9  (2, 1)\nACC   95 %   \n") == same


def test_few_blocks_are_not_run():
    every = [block for page in PAGES for block in blocks(page) if block.language in ("python", "console")]
    assert {block.info for block in every} == {"", "no-run", "avalanche", "ray", "slurm"}
    assert sum(block.info == "no-run" for block in every) <= 6
    assert len(every) > 30


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_files_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
        made = target.startswith(("reference/", "project/", "../reference/", "../project/"))  # when the site is built
        assert made or target.startswith("https://") or (page.parent / target).exists(), target


def test_every_method_is_in_the_table():
    table = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    for method in METHODS:
        assert f"| [`{method}`](reference/methods/{method}.rst)" in table


def test_the_file_tree_names_every_module():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    tree = text.split("## Files")[1].split("```")[1]
    named, room = set(), ""
    for line in tree.splitlines()[1:]:
        words = line.split()
        if line.startswith("  ") and not line.startswith("   ") and words[0].endswith("/"):
            room = words[0]
        place = room if line.startswith("    ") else ""
        named |= {place + word for word in words if re.fullmatch(r"[\w/]+\.py", word)}
    source = ROOT / "src" / "bocl"
    modules = {str(path.relative_to(source)) for path in source.rglob("*.py") if path.name != "__init__.py"}
    assert named - {"__init__.py"} == modules
