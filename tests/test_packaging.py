"""What is installed: requirements that are declared, bounded and pinned, and a wheel with nothing else in it."""

from __future__ import annotations

import ast
import re
import runpy
import sys
import tomllib
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = {name: [Requirement(line) for line in lines] for name, lines in PROJECT["optional-dependencies"].items()}
PINS = {
    canonicalize_name(name): version
    for name, version in (line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
}
DISTRIBUTION_OF = {"sklearn": "scikit-learn"}  # module → what is installed, where the names differ
COMES_WITH = {"pydantic_core": "pydantic", "triton": "torch"}  # module → what always brings it along


def imported(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield (file, module) for every top-level module that a folder imports and that is not Python's or its own."""
    own = {"bocl", "replication"}
    if folder.name == "tests":
        own |= {path.stem for path in folder.rglob("*.py")}  # pytest lets tests import files beside them by name
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module]
            for name in names:
                module = name.partition(".")[0]
                if module not in sys.stdlib_module_names | own:
                    yield str(path.relative_to(ROOT)), module


def undeclared(folder: Path, requirements: list[Requirement]) -> list[str]:
    """Return 'file: module' for every import under a folder that no requirement answers for."""
    declared = {canonicalize_name(requirement.name) for requirement in requirements}
    return [
        f"{file}: {module}"
        for file, module in imported(folder)
        if canonicalize_name(COMES_WITH.get(module) or DISTRIBUTION_OF.get(module, module)) not in declared
    ]


def test_every_module_the_library_imports_is_a_requirement():
    assert undeclared(ROOT / "src", CORE) == []


@pytest.mark.parametrize(
    ("folder", "extras"), [("tests", ["dev"]), ("examples", []), ("replication", ["replication"]), (".ci", ["dev"])]
)
def test_every_module_imported_elsewhere_is_in_an_extra(folder, extras):
    assert undeclared(ROOT / folder, CORE + [requirement for extra in extras for requirement in EXTRAS[extra]]) == []


def test_every_requirement_is_imported():
    used = {canonicalize_name(DISTRIBUTION_OF.get(module, module)) for _, module in imported(ROOT / "src")}
    assert {canonicalize_name(requirement.name) for requirement in CORE} - used == set()


def test_an_undeclared_import_would_be_found():
    without = [requirement for requirement in CORE if requirement.name != "requests"]
    assert {line.partition(": ")[2] for line in undeclared(ROOT / "src", without)} >= {"requests"}


def test_every_requirement_has_an_upper_bound():
    unbounded = [str(each) for each in CORE if not any(bound.operator == "<" for bound in each.specifier)]
    assert unbounded == []


def test_the_pins_keep_to_the_bounds():
    for requirement in [*CORE, *(each for extra in EXTRAS.values() for each in extra)]:
        pin = PINS.get(canonicalize_name(requirement.name))
        assert pin is not None, f"constraints.txt does not pin {requirement.name}"
        assert requirement.specifier.contains(pin), requirement


def test_everything_that_is_brought_along_is_pinned():
    wanted = {canonicalize_name(each.name) for each in [*CORE, *(each for extra in EXTRAS.values() for each in extra)]}
    reached: set[str] = set()
    while wanted - reached:
        name = (wanted - reached).pop()
        reached.add(name)
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # an extra that is not installed here
            continue
        needs = [each for each in map(Requirement, lines) if each.marker is None or each.marker.evaluate({"extra": ""})]
        wanted |= {canonicalize_name(each.name) for each in needs}
    # A PyTorch for GPUs brings the libraries of one CUDA release, which differ from machine to machine.
    of_cuda = {name for name in reached if name.startswith(("nvidia-", "cuda-")) or name == "triton"}
    assert reached - of_cuda - set(PINS) == set()


def test_python_versions_agree():
    least = re.fullmatch(r">=3\.(\d+)", PROJECT["requires-python"])[1]
    named = [int(found[1]) for line in PROJECT["classifiers"] if (found := re.search(r"Python :: 3\.(\d+)$", line))]
    assert named == list(range(int(least), max(named) + 1))


def test_authors_and_version_are_those_to_cite():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert [f"  - name: {author['name']}" in citation for author in PROJECT["authors"]] == [True]
    version = re.search(r'__version__ = "(.*)"', (ROOT / "src/bocl/version.py").read_text(encoding="utf-8"))[1]
    assert f"\nversion: {version}\n" in citation
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert PROJECT["urls"]["Paper"].rpartition("/")[2] in citation


CHECK = runpy.run_path(str(ROOT / ".ci" / "check_dist.py"))
GOOD = [*CHECK["NEEDED"], "bocl/cli/run.py", "bocl/presets/digits.toml", "bocl-0.1.0.dist-info/METADATA"]


@pytest.mark.parametrize(
    ("more", "size", "fault"),
    [
        ([], 400_000, None),
        ([], 400_001, "the wheel has 400,001 bytes; 400,000 are allowed"),
        (["bocl/presets/paper/systems.toml"], 1, "the wheel contains bocl/presets/paper/systems.toml"),
        (["replication/claims.py"], 1, "the wheel contains replication/claims.py"),
        (["bocl/run.jsonl"], 1, "the wheel contains bocl/run.jsonl"),
        (["bocl.py"], 1, "the wheel contains bocl.py"),
    ],
)
def test_what_is_wrong_with_a_wheel_is_found(more, size, fault):
    assert CHECK["wheel_faults"]([*GOOD, *more], size) == ([] if fault is None else [fault])


def test_what_a_wheel_lacks_is_found():
    assert CHECK["wheel_faults"]([name for name in GOOD if "css" not in name], 1) == [
        "the wheel lacks bocl/report/page.css"
    ]


def test_what_is_wrong_with_an_sdist_is_found():
    names = ["bocl-0.1.0/PKG-INFO", "bocl-0.1.0/src/bocl/errors.py", "bocl-0.1.0/README.md"]
    assert CHECK["sdist_faults"](names) == []
    wrong = ["bocl-0.1.0/results/paper/a.jsonl", "bocl-0.1.0/replication/a.py", "bocl-0.1.0/src/other.py"]
    assert CHECK["sdist_faults"]([*names, *wrong]) == [f"the sdist contains {name.partition('/')[2]}" for name in wrong]
