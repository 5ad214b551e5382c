"""Put the loose journals of a study's records into archives, one for each preset.

python -m replication.pack [RECORDS]

    RECORDS/PRESET/NAME-seed-N.jsonl  →  RECORDS/PRESET.tar.xz

A loose journal takes the place of its namesake in the archive, and is removed once the archive is found to hold it.
Equal journals give equal archives. Git keeps every archive that was ever committed: pack rarely.
"""

from __future__ import annotations

import io
import lzma
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path

from bocl.records.archives import SUFFIX, archived_bytes, archived_runs
from bocl.records.files import write_whole
from bocl.records.summary import summarise
from replication.records import RESULTS


def pack(folder: Path) -> int:
    """Move the journals of a folder into the archive next to it; return how many it holds then."""
    archive = folder.with_name(folder.name + SUFFIX)
    loose = sorted(folder.glob("*.jsonl"))
    for journal in loose:
        summarise(journal)  # a damaged one is told before anything is written
    kept = archived_runs(archive) if archive.exists() else []
    journals = {run.name: archived_bytes(run) or b"" for run in kept} | {run.name: run.read_bytes() for run in loose}
    write_whole(archive, archive_bytes(journals))
    for name, content in journals.items():
        if archived_bytes(archive / name) != content:
            raise SystemExit(f"{archive} does not hold {name} as it is; nothing was removed")
    for journal in loose:
        journal.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()
    return len(journals)


def archive_bytes(journals: Mapping[str, bytes]) -> bytes:
    """Return an archive of journals by name: in order of names, without times or owners."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name in sorted(journals):
            member = tarfile.TarInfo(name)
            member.size = len(journals[name])
            tar.addfile(member, io.BytesIO(journals[name]))
    # Runs repeat each other, so they are compressed as one: the dictionary is larger than all of them.
    return lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME)


def main() -> None:
    """Pack every folder of journals in the records."""
    records = Path(sys.argv[1]) if len(sys.argv) > 1 else RESULTS
    for folder in sorted({journal.parent for journal in records.glob("*/*.jsonl")}):
        archive = folder.with_name(folder.name + SUFFIX)
        count = pack(folder)
        print(f"{archive}: {count} journals, {archive.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
