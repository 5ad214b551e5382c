"""Pin everything that `make` installs, with the hashes of all published files; needs uv on the path.

Versions stay as they are unless uv is told otherwise: `python .ci/lock.py --upgrade-package numpy`, or `--upgrade`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
VERSIONS = ROOT / "constraints.txt"  # for whoever installs bocl with pip and wants the versions it is tested with
COMMON, CUDA, CPU, EXTRAS = (ROOT / "requirements" / f"{name}.txt" for name in ("common", "cuda", "cpu", "extras"))
USUAL = ("dev", "docs", "images", "replication")  # the extras that make installs; the others, for users, are large
OF_CUDA = re.compile(r"(cuda|nvidia)-|torch=|triton=")  # what is in cuda.txt


def main() -> None:
    """Resolve for every platform and Python, and write the files."""
    whole = _resolve(pins(COMMON, CUDA, EXTRAS), "--all-extras", *sys.argv[1:])
    entries = _resolve([entry.partition(" \\")[0] for entry in whole], *(f"--extra={name}" for name in USUAL))
    of_cuda = [entry for entry in entries if OF_CUDA.match(entry)]
    _write(COMMON, "All that make installs, but for PyTorch.", [entry for entry in entries if entry not in of_cuda])
    _write(CUDA, "PyTorch's default build, with the libraries of CUDA.", of_cuda)
    names = {_name(entry) for entry in entries}
    extras = [entry for entry in whole if _name(entry) not in names]
    _write(EXTRAS, "What make test-extras installs besides.", extras)
    _write(VERSIONS, "The versions that make installs.", [pin.strip() for pin in pins(COMMON, CUDA, EXTRAS)])
    (torch,) = (entry.split()[0] for entry in entries if entry.startswith("torch="))
    if f"{torch}+cpu " not in CPU.read_text():
        sys.exit(f"{CPU.name} is not for {torch}; its hashes are on no index that uv reads: put the new ones there")


def _resolve(known: list[str], *options: str) -> list[str]:
    """Return one entry per package, `name==version ; marker` and its hashes; versions that are known stay."""
    with tempfile.TemporaryDirectory() as scratch:
        pinned = Path(scratch) / "requirements.txt"
        pinned.write_text("\n".join(known))  # without their hashes, which uv asks the index for again
        command = "uv pip compile --quiet --no-config --universal --python-version 3.11 --generate-hashes"
        command += " --no-annotate --no-header --only-binary :all: --no-python-downloads pyproject.toml"
        subprocess.run([*command.split(), "--output-file", pinned, *options], cwd=ROOT, check=True)
        return re.split(r"\n(?=\S)", pinned.read_text().strip())


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
