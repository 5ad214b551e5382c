"""Pin everything that `make` installs, with the hashes of all published files; needs uv on the path.

Versions stay as they are unless uv is told otherwise: `python .ci/lock.py --upgrade-package numpy`, or `--upgrade`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ROOT / "constraints.txt"  # for whoever installs bocl with pip and wants the versions it is tested with
COMMON, CUDA, CPU, EXTRAS = (ROOT / "requirements" / f"{name}.txt" for name in ("common", "cuda", "cpu", "extras"))
USUAL = ("dev", "docs", "images", "replication")  # the extras that make installs; the others, for users, are large
ALONE = {"avalanche": ("avalanche",), "clusters": ("ray", "slurm")}  # lock of an environment of its own → its extras
# Avalanche requires every solver that qpsolvers knows, half a gigabyte for the GEM of its own. GPUtil is no wheel.
OPTIONS = {"avalanche": ("--overrides", str(ROOT / ".ci" / "avalanche-overrides.txt"), "--no-binary", "gputil")}
OF_CUDA = re.compile(r"(cuda|nvidia)-|torch=|triton=")  # what is in cuda.txt


def main() -> None:
    """Resolve for every platform and Python, and write the files."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    alone = {name for extras in ALONE.values() for name in extras}
    large = [name for name in project["optional-dependencies"] if name not in alone]
    whole = _resolve(pins(COMMON, CUDA, EXTRAS), *_extras(large), *sys.argv[1:])
    known = [entry.partition(" \\")[0] for entry in whole]
    entries = _resolve(known, *_extras(USUAL))
    of_cuda = [entry for entry in entries if OF_CUDA.match(entry)]
    _write(COMMON, "All that make installs, but for PyTorch.", [entry for entry in entries if entry not in of_cuda])
    _write(CUDA, "PyTorch's default build, with the libraries of CUDA.", of_cuda)
    names = {_name(entry) for entry in entries}
    extras = [entry for entry in whole if _name(entry) not in names]
    _write(EXTRAS, "What make test-extras installs besides.", extras)
    locks = []
    for lock, chosen in ALONE.items():
        locks.append(place := ROOT / "requirements" / f"{lock}.txt")
        options = (*_extras([*USUAL, *chosen]), *OPTIONS.get(lock, ()), *sys.argv[1:])
        beside = [entry for entry in _resolve(pins(place), *options, fixed=known) if _name(entry) not in names]
        _write(place, f"What make test-{lock} installs besides.", beside)
    versions = dict.fromkeys(pin.strip() for pin in pins(COMMON, CUDA, EXTRAS, *locks))
    _write(VERSIONS, "The versions that make installs.", [*versions])
    (torch,) = (entry.split()[0] for entry in entries if entry.startswith("torch="))
    if f"{torch}+cpu " not in CPU.read_text():
        sys.exit(f"{CPU.name} is not for {torch}; its hashes are on no index that uv reads: put the new ones there")


def _resolve(known: list[str], *options: str, fixed: Iterable[str] = ()) -> list[str]:
    """Return one entry per package, `name==version ; marker` and its hashes; versions that are known stay.

    fixed  versions that no option changes
    """
    with tempfile.TemporaryDirectory() as scratch:
        pinned, bounds = Path(scratch) / "requirements.txt", Path(scratch) / "constraints.txt"
        pinned.write_text("\n".join(known))  # without their hashes, which uv asks the index for again
        bounds.write_text("\n".join(fixed))
        command = "uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes"
        command += " --no-annotate --no-header --only-binary :all: --no-python-downloads pyproject.toml"
        files = ("--output-file", pinned, "--constraints", bounds)
        subprocess.run([*command.split(), *files, *options], cwd=ROOT, check=True)
        return re.split(r"\n(?=\S)", pinned.read_text().strip())


def _extras(names: Iterable[str]) -> list[str]:
    return [f"--extra={name}" for name in names]


def pins(*locks: Path) -> list[str]:
    """Return every `name==version ; marker` of these files."""
    texts = (lock.read_text() for lock in locks if lock.is_file())
    return re.findall(r"^\w.*==[^\\\n]*", "".join(texts), re.MULTILINE)


def _name(entry: str) -> str:
    return entry.partition("==")[0]


def _write(path: Path, what: str, entries: list[str]) -> None:
    path.write_text("\n".join([f"# {what} Written by `make lock`.", *entries, ""]))


if __name__ == "__main__":
    main()
