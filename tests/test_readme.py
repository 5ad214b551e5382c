"""The README is true: its tables and figures come from the records, its file tree from the files."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from bocl.experiment.config import load_config, presets
from bocl.experiment.grid import METHOD_NAMES
from bocl.experiment.study import jobs, load_study, studies

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
RECORDS = ROOT / "results" / "paper"


def test_every_table_is_what_the_records_say():
    tables = runpy.run_path(str(ROOT / "results" / "tables.py"))
    texts = [path.read_text(encoding="utf-8") for path in tables["READMES"]]
    for text in texts:
        assert tables["filled"](text) == text, "run `python results/tables.py --write`"
    for name in tables["TABLES"]:
        assert f"<!-- {name} -->" in "".join(texts)


def test_the_records_are_those_of_the_studies():
    every = [load_study(name) for name in studies()]
    made = {f"{job.preset}/{job.name}-seed-{job.seed}" for job in jobs(every)}
    kept = {str(path.relative_to(RECORDS).with_suffix("")) for path in RECORDS.glob("*/*.jsonl")}
    assert kept == made
    assert jobs(every, seeds=[0])  # a run of one name is the same in all of them


def test_make_replicate_makes_every_study():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    together = re.search(r"^STUDIES := .*paper/,(.*)\)$", makefile, re.MULTILINE)[1].split()
    alone = re.search(r"^TIMED := .*paper/,(.*)\)$", makefile, re.MULTILINE)[1].split()
    assert {f"paper/{name}" for name in (*together, *alone)} == set(studies())
    assert all(load_study(f"paper/{name}").alone == (name in alone) for name in (*together, *alone))


def test_the_file_tree_names_every_module():
    tree = README.split("## Files")[1].split("```")[1]
    named = set(re.findall(r"[\w-]+\.py\b", tree))
    modules = {path.name for path in (ROOT / "src" / "bocl").rglob("*.py") if path.name != "__init__.py"}
    assert modules <= named, f"missing: {sorted(modules - named)}"
    assert named <= modules | {"__init__.py"}, f"gone: {sorted(named - modules)}"


def test_the_methods_table_names_every_method():
    for method in METHOD_NAMES:
        assert f"| `{method}`" in README


@pytest.mark.parametrize("line", re.findall(r"^    (bocl run .*?)(?:\s+#.*)?$", README, re.MULTILINE))
def test_the_runs_in_the_readme_are_valid(line):
    words = line.split()
    source = words[2] if len(words) > 2 and not words[2].startswith("-") else None
    overrides = [words[at + 1] for at, word in enumerate(words) if word == "--set" and "my_" not in words[at + 1]]
    if source is None or source in presets():
        load_config(source, overrides)
    else:
        assert source == "mine.toml"
