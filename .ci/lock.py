"""Pin everything that `make` installs, with the hash of every published file; needs uv on the path.

Versions stay as they are unless uv is told otherwise: `python .ci/lock.py --upgrade-package numpy`, or `--upgrade`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCK, CUDA_LOCK = ROOT / "requirements.txt", ROOT / "requirements-cuda.txt"
OF_CUDA = re.compile(r"(cuda|nvidia)-|triton=")  # what only PyTorch's default build for Linux brings along
# pip prefers a CPU build of PyTorch to the default build where it is configured to see both. The CPU builds are not on
# the package index, so their hashes are kept here: Linux on x86-64 and on ARM, for Python 3.11, 3.12 and 3.13.
CPU_BUILDS = {
    "2.13.0": [
        "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
        "4ca4a9394b0c771238a4f73590fdbbc4debad85ed0fa63d026ae1b085da7d6e2",
        "3fbf9c9d1f3c10c2d59d04aca426dee9ccc6ceb32d255c61e93acc3b4f75fae6",
        "84453b69508ec79902f899c5ed9495acb9e2bbe9fda5f1d5d6f19e3c3842e1a7",
        "6f307c2c32d764ffc6ff6893b801fad6d4752f3e67966cb8abf1843427c02604",
        "0b8f7d0423027ae8b90c7977c627f3379f325363a08224dffad9b4b2d684a83d",
    ],
}


def main() -> None:
    """Resolve for every platform and Python, and write both files."""
    entries = _resolve(sys.argv[1:])
    of_cuda = [entry for entry in entries if OF_CUDA.match(entry)]
    rest = [_with_cpu_builds(entry) if entry.startswith("torch=") else entry for entry in entries]
    _write(LOCK, "All that make installs, but for the libraries of CUDA.", [each for each in rest if each not in of_cuda])
    _write(CUDA_LOCK, "The libraries of CUDA that PyTorch's default build needs on Linux.", of_cuda)


def _resolve(options: list[str]) -> list[str]:
    """Return one entry per package, `name==version ; marker` with its hashes; uv keeps to the versions pinned so far."""
    pins = re.findall(r"^\w.*==[^\\\n]*", LOCK.read_text() + CUDA_LOCK.read_text(), re.MULTILINE)
    with tempfile.TemporaryDirectory() as scratch:
        pinned = Path(scratch) / "requirements.txt"
        pinned.write_text("\n".join(pins))  # without hashes: those are asked for again
        command = "uv pip compile --quiet --no-config --universal --python-version 3.11 --all-extras --generate-hashes"
        command += " --no-annotate --no-header --only-binary :all: --no-python-downloads pyproject.toml"
        subprocess.run([*command.split(), "--output-file", pinned, *options], cwd=ROOT, check=True)
        return re.split(r"\n(?=\S)", pinned.read_text().strip())


def _with_cpu_builds(torch: str) -> str:
    """Return PyTorch's entry with the hashes of its CPU builds."""
    version = torch.split()[0].removeprefix("torch==")
    if version not in CPU_BUILDS:
        sys.exit(f"the hashes of the CPU builds of PyTorch {version} are not known; add them to CPU_BUILDS")
    return " \\\n    --hash=sha256:".join([torch, *CPU_BUILDS[version]])


def _write(path: Path, what: str, entries: list[str]) -> None:
    path.write_text("\n".join([f"# {what} Written by `make lock`.", *entries, ""]))


if __name__ == "__main__":
    main()
