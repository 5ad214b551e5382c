"""What is installed: requirements that are declared, bounded and pinned, and a wheel with nothing else in it."""

from __future__ import annotations

import ast
import re
import runpy
import sys
import tomllib
from collections.abc import Collection, Iterator
from contextlib import suppress
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CORE = [Requirement(line) for line in PROJECT["dependencies"]]
EXTRAS = {name: [Requirement(line) for line in lines] for name, lines in PROJECT["optional-dependencies"].items()}
LOCK = runpy.run_path(str(ROOT / ".ci" / "lock.py"))
USUAL, ALONE = LOCK["USUAL"], LOCK["ALONE"]  # the extras that make installs, and those with environments of their own
LOCKS = {
    name: (ROOT / "requirements" / f"{name}.txt").read_text() for name in ("common", "cuda", "cpu", "extras", *ALONE)
}
DISTRIBUTION_OF = {
    "sklearn": "scikit-learn",
    "PIL": "pillow",
    "mlflow": "mlflow-skinny",
    "avalanche": "avalanche-lib",
}  # module → what is installed, where the names differ
COMES_WITH = {  # module → what always brings it along
    "pydantic_core": "pydantic",
    "triton": "torch",
    "torchvision": "avalanche-lib",
}
BESIDE = {"jax"}  # what replication/ measures ours beside: no extra has it, since only who repeats that needs it


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
        if module not in BESIDE
        and canonicalize_name(COMES_WITH.get(module) or DISTRIBUTION_OF.get(module, module)) not in declared
    ]


def test_every_module_the_library_imports_is_a_requirement():
    assert undeclared(ROOT / "src", CORE) == []


@pytest.mark.parametrize(
    ("folder", "extras"),
    [
        (
            "tests",
            [
                *("dev", "parquet", "datasets", "tensorboard", "mlflow", "serve", "text", "onnx", "peft"),
                *("avalanche", "ray", "slurm"),
            ],
        ),
        ("examples", ["avalanche"]),
        ("replication", ["replication", "peft", "ray"]),
        (".ci", ["dev"]),
    ],
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
    users = [each for extra in EXTRAS.keys() - {"dev", "docs"} for each in EXTRAS[extra]]
    unbounded = [str(each) for each in CORE + users if not any(bound.operator == "<" for bound in each.specifier)]
    assert unbounded == []


def entries(lock: str) -> Iterator[tuple[Requirement, list[str]]]:
    """Yield what a lock file pins, each with its hashes."""
    for entry in re.split(r"\n(?=\w)", lock)[1:]:
        requirement, *options = re.split(r"\s+\\?\s*--hash=", entry.rstrip())
        yield Requirement(requirement), options


def pins(*locks: str) -> dict[str, list[Requirement]]:
    """Return what lock files pin, by name; a package may be pinned once per Python."""
    found: dict[str, list[Requirement]] = {}
    for lock in locks:
        for requirement, _ in entries(LOCKS[lock]):
            found.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return found


def applies(requirement: Requirement) -> bool:
    """Whether a requirement without extras is one on this machine."""
    return requirement.marker is None or requirement.marker.evaluate({"extra": ""})


def brought_along(requirements: list[Requirement]) -> set[str]:
    """Return the names of these requirements and of all that the installed ones require in turn."""
    wanted = {canonicalize_name(each.name) for each in requirements}
    reached: set[str] = set()
    while wanted - reached:
        name = (wanted - reached).pop()
        reached.add(name)
        with suppress(metadata.PackageNotFoundError):  # an extra that is not installed here
            needs = filter(applies, map(Requirement, metadata.requires(name) or []))
            wanted |= {canonicalize_name(each.name) for each in needs}
    return reached


@pytest.mark.parametrize("build", ["cpu", "cuda"])
def test_the_lock_keeps_to_the_bounds(build):
    pinned = pins("common", build, "extras", *ALONE)
    for requirement in [*CORE, *(each for extra in EXTRAS.values() for each in extra)]:
        found = pinned.get(canonicalize_name(requirement.name))
        assert found is not None, f"{requirement.name} is not locked; make lock does it"
        for pin in found:
            assert re.fullmatch(r"==[^*,]+", str(pin.specifier)), pin
            assert requirement.specifier.contains(str(pin.specifier)[2:]), requirement


@pytest.mark.parametrize("lock", LOCKS)
def test_everything_in_a_lock_has_its_hashes(lock):
    assert LOCKS[lock].count("==") - LOCKS[lock].count(" == '") == len(list(entries(LOCKS[lock])))
    for requirement, hashes in entries(LOCKS[lock]):
        assert hashes, requirement
        assert [each for each in hashes if not re.fullmatch(r"sha256:[0-9a-f]{64}", each)] == []


def test_the_lock_is_all_that_is_needed_and_nothing_else():
    needed = brought_along([*CORE, *(each for extra in USUAL for each in EXTRAS[extra])])
    build = "cuda" if any(name.startswith("nvidia-") for name in needed) else "cpu"
    common, whole = (
        {name for name, found in pins(*locks).items() if any(map(applies, found))}
        for locks in (["common"], ["common", build])
    )
    assert needed - whole == set()
    if find_spec("sphinx") and find_spec("optuna"):  # with all extras, as make installs them
        assert common - needed == set()


def locked_besides(lock: str, extras: Collection[str]) -> tuple[set[str], set[str]]:
    """Return the names in a lock, and those that these extras need besides what make installs."""
    usual, needed = (
        brought_along([*CORE, *(each for extra in chosen for each in EXTRAS[extra])]) for chosen in (USUAL, extras)
    )
    return {name for name, found in pins(lock).items() if any(map(applies, found))}, needed - usual


@pytest.mark.extras("pyarrow", "datasets", "tensorboard", "mlflow")
def test_the_lock_of_the_extras_is_all_that_is_needed_besides_and_nothing_else():
    locked, needed = locked_besides("extras", EXTRAS.keys() - {name for extras in ALONE.values() for name in extras})
    assert locked == needed


@pytest.mark.avalanche
def test_the_lock_of_avalanche_is_all_that_is_needed_besides_and_nothing_else():
    locked, needed = locked_besides("avalanche", ALONE["avalanche"])
    assert locked == needed | {"pysocks"}  # of requests[socks], which one of them requires


@pytest.mark.clusters
def test_the_lock_of_the_clusters_is_all_that_is_needed_besides_and_nothing_else():
    locked, needed = locked_besides("clusters", ALONE["clusters"])
    assert locked == needed


@pytest.mark.parametrize("path", ["Makefile", ".ci/run", ".ci/check_dist.py"])
def test_nothing_is_installed_unless_its_hash_is_locked(path):
    installs = re.findall(r"(?i).*\bpip\b.*\binstall\b.*", (ROOT / path).read_text())
    assert [line for line in installs if "--require-hashes" not in line and "--no-deps" not in line] == []
    assert installs or path == ".ci/run"


def test_the_versions_for_others_are_those_of_the_lock():
    ours = {str(pin) for found in pins("common", "cuda", "extras", *ALONE).values() for pin in found}
    theirs = {str(Requirement(line)) for line in (ROOT / "constraints.txt").read_text().splitlines() if line[0] != "#"}
    assert theirs == ours


def test_both_builds_of_pytorch_are_of_one_version():
    (default,), (cpu,) = pins("cuda")["torch"], pins("cpu")["torch"]
    assert str(cpu.specifier) == f"{default.specifier}+cpu"


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
        ([], 720_000, None),
        ([], 720_001, "the wheel has 720,001 bytes; 720,000 are allowed"),
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
