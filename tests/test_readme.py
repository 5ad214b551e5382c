"""The README is true: its file tree names the files, its commands are valid; tests/replication has its tables."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bocl.experiment.config import load_config, presets
from bocl.experiment.grid import METHOD_NAMES

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


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
