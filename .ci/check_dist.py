"""Build the wheel and the sdist, look at what is in them, and run the installed wheel in an environment of its own.

The environment reads our dependencies where they are already installed, so nothing is downloaded.
"""

from __future__ import annotations

import os
import site
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
LARGEST = 720_000  # bytes of a wheel: sources alone; results would be more
DOCUMENTS = {"CHANGELOG.md", "CITATION.cff", "LICENSE", "README.md", "SECURITY.md"}
SOURCE_FILES = DOCUMENTS | {"PKG-INFO", "pyproject.toml", ".gitignore"}
NEEDED = {
    "bocl/__init__.py",
    "bocl/__init__.pyi",
    "bocl/py.typed",
    "bocl/presets/digits.toml",
    "bocl/report/page.css",
    "bocl/serving/page.html",
}


def wheel_faults(names: Iterable[str], size: int) -> list[str]:
    """Return what is wrong with a wheel of these members and this many bytes."""
    names = set(names)
    faults = [f"the wheel lacks {name}" for name in sorted(NEEDED - names)]
    faults += [f"the wheel contains {name}" for name in sorted(names) if not _belongs(PurePosixPath(name))]
    if size > LARGEST:
        faults.append(f"the wheel has {size:,} bytes; {LARGEST:,} are allowed")
    return faults


def _belongs(member: PurePosixPath) -> bool:
    """Whether a member is metadata, code, or data that code reads."""
    room, *rest = member.parts
    if room.startswith("bocl-") and room.endswith(".dist-info"):
        return True
    if room != "bocl" or not rest:
        return False
    if member.suffix == ".toml":
        return member.parent == PurePosixPath("bocl/presets")  # what studies of a paper need is in replication/
    return member.suffix == ".py" or str(member) in NEEDED


def sdist_faults(names: Iterable[str]) -> list[str]:
    """Return what is wrong with an sdist of these members."""
    inside = (PurePosixPath(*PurePosixPath(name).parts[1:]) for name in names)
    strange = [path for path in inside if str(path) not in SOURCE_FILES and not path.is_relative_to("src/bocl")]
    return [f"the sdist contains {path}" for path in strange]


def main() -> None:
    """Build, look, install, run; leave with a message if anything is wrong."""
    with tempfile.TemporaryDirectory() as scratch:
        built = Path(scratch) / "dist"
        # The wheel is built from the sdist, which shows that the sdist is complete.
        _call(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(built), str(ROOT))
        (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
        with zipfile.ZipFile(wheel) as archive:
            faults = wheel_faults(archive.namelist(), wheel.stat().st_size)
        with tarfile.open(sdist) as members:
            faults += sdist_faults(member.name for member in members if member.isfile())
        if faults:
            sys.exit("\n".join(faults))
        print(f"{wheel.name}: {wheel.stat().st_size:,} bytes; {sdist.name}: {sdist.stat().st_size:,} bytes")
        _run_installed(wheel, Path(scratch))


def _run_installed(wheel: Path, scratch: Path) -> None:
    """Install the wheel into an empty environment that sees our dependencies, and learn two tasks with it."""
    home, empty = scratch / "venv", scratch / "empty"
    empty.mkdir()
    venv.create(home)
    python = home / "bin" / "python"
    _call(sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", "--no-index", wheel)
    (own,) = home.glob("lib/python*/site-packages")
    # A folder named in a .pth file is searched last, and .pth files in it are not read: no editable bocl gets in.
    (own / "dependencies.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    where = _call(python, "-c", "import bocl; print(bocl.__file__)", cwd=empty).strip()
    if not Path(where).is_relative_to(home.resolve()):
        sys.exit(f"the installed wheel was not imported, but {where}")
    command = ["run", "digits", "--set", "stream.tasks=2", "--set", "recipe.epochs=2"]
    print(_call(home / "bin" / "bocl", *command, cwd=empty))


def _call(*words: str | Path, cwd: Path | None = None) -> str:
    """Run a command without our PYTHONPATH and return its output; leave with all it said if it fails."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
