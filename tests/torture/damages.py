"""Every way to damage a run's folder that we can think of, generated.

A damage names the files it touches, so that a refusal can be asked to name one of them. A *forgery* also puts every
hash right that speaks for what it changes: file hashes in the journal, the seal of model.json, the journal's chain.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bocl.methods.saving import _seal, _weights_name
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL

Do = Callable[[Path], None]
OUTSIDE = "outside"  # a folder next to the one that is damaged, which nobody may touch
ENDS = (b"\0", b"\n", b"{}\n", b"x" * 100, b'{"before":"')
VALUES: tuple[Any, ...] = (
    *(None, True, -1, 0, 7, 10**30, -0.5, 0.5, 1e308, float("nan"), float("inf")),
    *("", "x", "../../x", "a\nb", "\x1b[2J", "[/red]", "0" * 64, [], [[]], [1] * 50, {}, {"x": 1}),
)


@dataclass(frozen=True)
class Damage:
    """One thing done to a run's folder.

    kind    for the figures
    what    in words, enough to do it again
    names   of the files and folders touched; a refusal must name one
    do      does it, to the folder it is given
    forged  whether every hash is right again
    shows   of a forgery: whether the audit must find it
    """

    kind: str
    what: str
    names: tuple[str, ...]
    do: Do
    forged: bool = False
    shows: bool = False


def files_of(run: Path) -> list[str]:
    """Return the places of all files of a run or a model, the lock left out: it holds nothing."""
    places = (path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file())
    return sorted(place for place in places if not place.endswith(".lock"))


def damages(run: Path, donor: Path, draw: random.Random) -> Iterator[Damage]:
    """Yield all damages of one run, or of one model; ``donor`` has the same settings and another seed."""
    for place in files_of(run):
        size = (run / place).stat().st_size
        if not size:
            continue  # that it is there is all that it says
        yield from _bytes_changed(place, (run / place).read_bytes(), draw)
        for length in sorted({0, 1, 7, 8, 9, size - 2, size - 1, *(draw.randrange(size) for _ in range(6))}):
            yield _edit("truncated", place, lambda data, at=length: data[:at], f"to {length} of {size} bytes")
        for end in ENDS:
            yield _edit("appended", place, lambda data, end=end: data + end, repr(end[:12]))
    if (run / JOURNAL).exists():
        yield from _lines_changed(run)
    yield from _replaced(run)
    yield from _added(run)
    yield from _swapped(run, donor)
    yield from forgeries(run, draw)


# Bytes and lines.


def _edit(kind: str, place: str, change: Callable[[bytes], bytes], what: str) -> Damage:
    def do(folder: Path) -> None:
        (folder / place).write_bytes(change((folder / place).read_bytes()))

    return Damage(kind, f"{place} {kind} {what}", (place,), do)


def _bytes_changed(place: str, data: bytes, draw: random.Random) -> Iterator[Damage]:
    """Flip one bit at every structural place, and at random ones."""
    spots = {0, 1, len(data) - 1, len(data) - 2, *(draw.randrange(len(data)) for _ in range(8))}
    if place.endswith(".safetensors"):
        header = 8 + struct.unpack("<Q", data[:8])[0]
        spots |= {*range(8), 8, header - 1, header, *(draw.randrange(8, header) for _ in range(8))}
    if place == JOURNAL:
        start = 0
        for line in data.splitlines(keepends=True):
            spots |= {start, start + 15, start + 80, start + 100, start + 165, start + len(line) // 2}
            spots |= {start + len(line) - 2, start + len(line) - 1}
            start += len(line)
    for spot in sorted(spots):
        bit = 1 << draw.randrange(8)
        yield _edit(
            "bit flipped", place, lambda old, at=spot, bit=bit: _with(old, at, old[at] ^ bit), f"{bit} at {spot}"
        )


def _with(data: bytes, at: int, byte: int) -> bytes:
    return data[:at] + bytes([byte]) + data[at + 1 :]


def _lines_changed(run: Path) -> Iterator[Damage]:
    def change(kind: str, what: str, to: Callable[[list[bytes]], list[bytes]]) -> Damage:
        return _edit(kind, JOURNAL, lambda data: b"".join(to(data.splitlines(keepends=True))), what)

    count = len((run / JOURNAL).read_bytes().splitlines())
    for at in range(count):
        yield change("line deleted", f"{at + 1}", lambda old, at=at: old[:at] + old[at + 1 :])
        yield change("line doubled", f"{at + 1}", lambda old, at=at: old[: at + 1] + old[at:])
        yield change("cut at a record", f"after {at + 1}", lambda old, at=at: old[: at + 1])
        if at:
            yield change(
                "lines swapped", f"{at}", lambda old, at=at: [*old[: at - 1], old[at], old[at - 1], *old[at + 1 :]]
            )
            yield change("line moved", f"{at + 1} to the top", lambda old, at=at: [old[at], *old[:at], *old[at + 1 :]])


# Files and folders.


def _replaced(run: Path) -> Iterator[Damage]:
    """Remove every file and folder, or put something in its place that is none."""
    folders = [path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_dir()]
    locks = [path.name for path in run.glob("*.lock")]
    for place in [*files_of(run), *sorted(folders), *locks]:
        for kind, put in (
            ("removed", lambda _path: None),
            ("a folder instead", Path.mkdir),
            ("a file instead", lambda path: path.write_bytes(b"x")),
            ("a fifo instead", os.mkfifo),
            ("a link to nothing", lambda path: path.symlink_to("nowhere")),
            ("a link to itself", lambda path: path.symlink_to(path.name)),
            ("a link to a device", lambda path: path.symlink_to("/dev/zero")),
        ):
            if kind == "a file instead" and place not in folders:
                continue

            def do(folder: Path, place: str = place, put: Callable[[Path], Any] = put) -> None:
                remove(folder / place)
                put(folder / place)

            yield Damage(kind, f"{place}: {kind}", (place,), do)

        def link(folder: Path, place: str = place) -> None:
            away = folder.parent / "away"
            remove(away)
            (folder / place).rename(away)
            (folder / place).symlink_to(away)

        yield Damage("a link to the same", f"{place}: moved away, a link instead", (place,), link)


def _added(run: Path) -> Iterator[Damage]:
    """Put something next to what is there: what users or killed processes leave, and links to what is elsewhere."""
    folders = [Path(), *(path.relative_to(run) for path in run.rglob("*") if path.is_dir())]
    for folder in sorted(folders):
        for name in ("notes.txt", "task-01", "task-03", "task-99", "model.json.partial", "round-001.safetensors"):
            place = (folder / name).as_posix()
            if os.path.lexists(run / place):
                continue

            def write(target: Path, place: str = place) -> None:
                (target / place).write_bytes(b"x")

            def link(target: Path, place: str = place) -> None:
                (target / place).symlink_to(target.parent / OUTSIDE)

            yield Damage("a file added", place, (place,), write)
            yield Damage("a link added", place, (place,), link)


def remove(path: Path) -> None:
    """Remove whatever is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _swapped(run: Path, donor: Path) -> Iterator[Damage]:
    """Exchange files between tasks, and bring in those of another run."""
    places = [place for place in files_of(run) if place.endswith(".safetensors")]
    for first in places:
        for second in places:
            if first < second:

                def swap(folder: Path, first: str = first, second: str = second) -> None:
                    one, other = (folder / first).read_bytes(), (folder / second).read_bytes()
                    (folder / first).write_bytes(other)
                    (folder / second).write_bytes(one)

                yield Damage("files swapped", f"{first} and {second}", (first, second), swap)
    for place in files_of(run):
        if (donor / place).is_file():

            def bring(folder: Path, place: str = place) -> None:
                shutil.copyfile(donor / place, folder / place)

            yield Damage("file of another run", place, (place, "checkpoints"), bring)
    for place in ("checkpoints", "canaries", "rounds"):
        if (run / place).is_dir() and (donor / place).is_dir():

            def bring_all(folder: Path, place: str = place) -> None:
                shutil.rmtree(folder / place)
                shutil.copytree(donor / place, folder / place)

            yield Damage("folder of another run", place, (place,), bring_all)


# Forgeries.


def forgeries(run: Path, draw: random.Random) -> Iterator[Damage]:
    """Change one value anywhere, and every hash with it."""
    if (run / JOURNAL).exists():
        yield from _forged_records(run, draw)
    models = sorted(run.rglob("model.json"))
    for model in models:
        content = json.loads(model.read_bytes())
        for path in draw.sample(leaves := list(_leaves(content)), min(len(leaves), 60 // len(models))):
            yield _forged_model(model.relative_to(run), path, draw.choice(VALUES))
    for place in files_of(run):
        if place.endswith(".safetensors"):
            yield from _forged_tensors(run, place, draw)


def _forged_records(run: Path, draw: random.Random) -> Iterator[Damage]:
    for at, record in enumerate(read(run / JOURNAL)):
        for path in draw.sample(leaves := list(_leaves(record)), min(len(leaves), 24)):
            yield _forged_record(at, path, draw.choice(VALUES))
    last = len(read(run / JOURNAL)) - 1
    task = max(at for at, record in enumerate(read(run / JOURNAL)) if record["kind"] == "task")
    for path, value in (
        (("row", 0), 0.123),
        (("row", -1), 0.123),
        (("validation_row", -1), 0.123),
        (("stored",), 7),
        (("parameters", "shared"), 7),
        (("name",), "another"),
    ):
        yield _forged_record(task, path, value, shows=True)
    yield _forged_record(last, ("kind",), "a" * 5000)


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    if path:
        yield path
    for key, item in inner:
        yield from _leaves(item, (*path, key))


def _put(tree: Any, path: tuple[Any, ...], value: Any) -> None:
    for step in path[:-1]:
        tree = tree[step]
    tree[path[-1]] = value


def _forged_record(at: int, path: tuple[Any, ...], value: Any, *, shows: bool = False) -> Damage:
    def do(folder: Path) -> None:
        records = read(folder / JOURNAL)
        _put(records[at], path, value)
        write_journal(folder, records)

    what = f"line {at + 1}, {'.'.join(map(str, path))} = {value!r:.60}"
    return Damage("forged record", what, ("",), do, forged=True, shows=shows)


def write_journal(folder: Path, records: list[dict[str, Any]]) -> None:
    """Write a journal with a right chain, infinities and NaN as Python's json would."""
    lines, head = [], "0" * 64
    for record in records:
        text = json.dumps(record, sort_keys=True, separators=(",", ":"))
        head, before = hashlib.sha256(head.encode() + text.encode()).hexdigest(), head
        lines.append(f'{{"before":"{before}","sha256":"{head}","record":{text}}}\n')
    (folder / JOURNAL).write_text("".join(lines))


def _forged_model(place: Path, path: tuple[Any, ...], value: Any) -> Damage:
    def do(folder: Path) -> None:
        content = json.loads((folder / place).read_bytes())
        _put(content, path, value)
        (folder / place).write_text(json.dumps(content))
        reseal(folder)

    return Damage("forged model.json", f"{place}: {'.'.join(map(str, path))} = {value!r:.60}", ("",), do, forged=True)


def _forged_tensors(run: Path, place: str, draw: random.Random) -> Iterator[Damage]:
    data = (run / place).read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + length])
    names = [name for name in header if name != "__metadata__"]

    def change(what: str, to: bytes, *, shows: bool = False) -> Damage:
        def do(folder: Path) -> None:
            (folder / place).write_bytes(to)
            reseal(folder)

        return Damage("forged tensors", f"{place}: {what}", ("",), do, forged=True, shows=shows)

    def headed(changed: dict[str, Any]) -> bytes:
        text = json.dumps(changed, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        return struct.pack("<Q", len(text)) + text + data[8 + length :]

    for path in draw.sample(leaves := list(_leaves(header)), min(len(leaves), 10)):
        changed = json.loads(json.dumps(header))
        _put(changed, path, value := draw.choice(VALUES))
        yield change(f"header {'.'.join(map(str, path))} = {value!r:.60}", headed(changed))
    name = draw.choice(names)
    for what, changed in (
        (f"{name} renamed", {("x" if key == name else key): value for key, value in header.items()}),
        (f"{name} of task 99", {(f"99/{key}" if key == name else key): value for key, value in header.items()}),
        (f"{name} as whole numbers", header | {name: header[name] | {"dtype": "I32"}}),
        (f"{name} flat", header | {name: header[name] | {"shape": [_product(header[name]["shape"])]}}),
        ("no metadata", {key: value for key, value in header.items() if key != "__metadata__"}),
    ):
        yield change(what, headed(changed))
    method = json.loads(min(run.rglob("model.json")).read_bytes())["method"]  # the first one is whole
    forgets = method in ("sn", "ewc", "gem", "den", "fearnet", "joint")  # whose earlier tasks are free to change
    counted = "checkpoints" in place or ("canaries/" in place and not forgets)
    for name in draw.sample(names, min(3, len(names))):
        at = 8 + length + header[name]["data_offsets"][0]
        if header[name]["dtype"] == "F32":
            for value in (1e-3, float("nan"), 3e38):
                yield change(
                    f"{name}[0] = {value}", data[:at] + struct.pack("<f", value) + data[at + 4 :], shows=counted
                )
    for what, text in (
        ("not JSON", b"{" * 64),
        ("a list", b"[]      "),
        ("nested", b'{"a":' + b"[" * 3000 + b"]" * 3000 + b"}  "),
    ):
        yield change(f"header {what}", struct.pack("<Q", len(text)) + text)
    yield change("a header of 2^60 bytes", struct.pack("<Q", 1 << 60) + data[8:])


def _product(shape: list[int]) -> int:
    result = 1
    for size in shape:
        result *= size
    return result


def reseal(folder: Path) -> None:
    """Put right every hash of a run's folder: weights in their name and model.json, its seal, all in the journal.

    A model.json that adds to another one has the hash of that one.
    """
    for model in sorted(folder.rglob("model.json")):
        _reseal_model(model)
    if not (folder / JOURNAL).exists():
        return
    records = read(folder / JOURNAL)
    for record in records:
        for stored in (
            record.get("weights"),
            *(record.get("proof", {}).get(name) for name in ("canaries", "checkpoint")),
        ):
            if stored and (folder / stored["file"]).is_file():
                data = (folder / stored["file"]).read_bytes()
                stored |= {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    write_journal(folder, records)


def _reseal_model(model: Path) -> None:
    content = json.loads(model.read_bytes())
    before = content.get("before")
    if isinstance(before, dict) and isinstance(before.get("folder"), str) and before.get("sha256") not in VALUES:
        beside = model.parent.parent / before["folder"] / model.name
        if beside.is_file():
            before["sha256"] = hashlib.sha256(beside.read_bytes()).hexdigest()
    (weights,) = model.parent.glob("weights-*")
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    if isinstance(content.get("weights"), dict) and {"file", "sha256"} <= content["weights"].keys():
        stated = content["weights"]
        if stated["file"] == weights.name and stated["sha256"] != digest:
            weights.rename(weights.with_name(_weights_name(digest)))
            content["weights"] = {"file": _weights_name(digest), "sha256": digest}
    try:
        content["sha256"] = _seal(content)
    except ValueError:
        content["sha256"] = "0" * 64  # nothing to seal: an infinity
    model.write_text(json.dumps(content))
