"""Archives of journals: read in place as the files they hold, and refused in one line where they are anything else."""

from __future__ import annotations

import io
import lzma
import tarfile

import pytest

from bocl.errors import DamagedError, FolderError
from bocl.records import archives
from bocl.records.archives import archive_of, archived_bytes
from bocl.records.journal import encode, read_with_tail
from bocl.records.summary import find_run, find_runs, summarise

START = {
    **{"kind": "start", "format": 2, "digest": "d", "groups": ["a"], "versions": {}, "data": "f", "machine": {}},
    **{"config": {"method": "sn", "seed": 0, "stream": {"tasks": 2}}, "shares_device": 1, "time": "now"},
}


def a_journal(**more):
    return encode({**START, **more})[0]


def a_tar(members):
    """Return a tar of (name, content); a TarInfo in place of a name is taken as it is."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, content in members:
            info = name if isinstance(name, tarfile.TarInfo) else tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def write(path, *members):
    path.write_bytes(lzma.compress(a_tar(members)))
    return path


def odd(name, kind):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "b.jsonl"
    return info


def test_a_run_in_an_archive_is_read_as_the_journal_alone(tmp_path):
    journal = a_journal(headline=True)
    torn = journal + journal[:9]
    archive = write(tmp_path / "mnist.tar.xz", ("b-seed-1.jsonl", journal), ("a-seed-0.jsonl", torn))
    (tmp_path / "a.jsonl").write_bytes(torn)
    one, two = find_runs(archive)
    assert (one, two) == (archive / "a-seed-0.jsonl", archive / "b-seed-1.jsonl")
    assert find_runs(one) == [one]
    assert find_run(two) == two
    inside, alone = summarise(one), summarise(tmp_path / "a.jsonl")
    assert (inside.head, inside.torn_bytes, inside.folder) == (alone.head, 9, one)
    assert read_with_tail(one) == read_with_tail(tmp_path / "a.jsonl")
    assert inside.headline is True
    assert summarise(two).sessions == alone.sessions


def test_older_records_do_not_say_whether_a_run_is_a_headline(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(a_journal())
    assert summarise(tmp_path / "a.jsonl").headline is None


def test_a_folder_may_hold_archives_and_a_loose_journal_takes_the_place_of_its_namesake(tmp_path):
    archive = write(tmp_path / "mnist.tar.xz", ("a.jsonl", a_journal()), ("b.jsonl", a_journal()))
    loose = tmp_path / "mnist" / "b.jsonl"
    loose.parent.mkdir()
    loose.write_bytes(a_journal())
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "a.jsonl").write_bytes(a_journal())
    (tmp_path / "folder.tar.xz").mkdir()
    assert find_runs(tmp_path) == [loose, archive / "a.jsonl", tmp_path / "other" / "a.jsonl"]
    assert find_runs(archive) == [archive / "a.jsonl", archive / "b.jsonl"], "asked for, it is all there"


def test_an_archive_is_decompressed_once_until_it_changes(tmp_path, monkeypatch):
    archive = write(tmp_path / "a.tar.xz", ("a.jsonl", a_journal()))
    calls = []
    real = archives._decompressed
    monkeypatch.setattr(archives, "_decompressed", lambda *words: calls.append(1) or real(*words))
    for _ in range(3):
        summarise(archive / "a.jsonl")
    assert len(calls) == 1
    write(archive, ("a.jsonl", a_journal()), ("b.jsonl", a_journal()))
    assert len(find_runs(archive)) == 2
    assert len(calls) == 2


def test_paths_that_lead_into_no_archive(tmp_path):
    archive = write(tmp_path / "a.tar.xz", ("a.jsonl", a_journal()))
    assert archive_of(tmp_path / "no.tar.xz" / "a.jsonl") is None
    assert archived_bytes(tmp_path / "a.jsonl") is None
    with pytest.raises(FolderError, match=r"a\.tar\.xz holds no journal b\.jsonl"):
        find_runs(archive / "b.jsonl")
    with pytest.raises(FolderError, match="there is no such folder"):
        find_runs(tmp_path / "no.tar.xz" / "a.jsonl")
    with pytest.raises(FolderError, match="holds no runs"):
        find_runs(write(tmp_path / "empty.tar.xz"))


@pytest.mark.parametrize(
    ("member", "named"),
    [
        (("../a.jsonl", b""), "'../a.jsonl'; it may hold plain"),
        (("/etc/a.jsonl", b""), "it may hold plain"),
        (("deep/a.jsonl", b""), "'deep/a.jsonl'; it may hold plain"),
        (("notes.txt", b""), "'notes.txt'; it may hold plain"),
        ((odd("a.jsonl", tarfile.SYMTYPE), b""), "it may hold plain"),
        ((odd("a.jsonl", tarfile.LNKTYPE), b""), "it may hold plain"),
        ((odd("a.jsonl", tarfile.DIRTYPE), b""), "it may hold plain"),
        ((odd("a.jsonl", tarfile.FIFOTYPE), b""), "it may hold plain"),
        (("b.jsonl", b""), "holds 'b.jsonl' twice"),
    ],
)
def test_what_an_archive_may_not_hold_is_named(tmp_path, member, named):
    archive = write(tmp_path / "a.tar.xz", ("b.jsonl", a_journal()), member)
    with pytest.raises(FolderError) as told:
        find_runs(archive)
    assert str(told.value).startswith(f"{archive} holds ")
    assert named in str(told.value)


def test_an_archive_beyond_the_limits_is_refused(tmp_path, monkeypatch):
    archive = write(tmp_path / "a.tar.xz", *((f"{at}.jsonl", a_journal()) for at in range(3)))
    monkeypatch.setattr(archives, "MOST_JOURNALS", 2)
    with pytest.raises(FolderError, match="more than 2 journals"):
        find_runs(archive)
    monkeypatch.setattr(archives, "MOST_BYTES", 10)
    with pytest.raises(FolderError, match="decompresses to more than 4,106 bytes"):
        find_runs(archive)


def damages():
    tar = a_tar([("a.jsonl", a_journal()), ("b.jsonl", a_journal())])
    packed = lzma.compress(tar)
    at = tar.index(b"b.jsonl")
    yield "empty", b""
    yield "no xz", tar
    yield "cut short", packed[:-10]
    yield "goes on", packed + packed
    yield "a flipped bit", packed[:100] + bytes([packed[100] ^ 4]) + packed[101:]
    yield "no tar inside", lzma.compress(b"x" * 2000)
    yield "a damaged header inside", lzma.compress(tar[:at] + b"\xff" + tar[at + 1 :])
    yield "cut short inside", lzma.compress(tar[: at + 600])


@pytest.mark.parametrize("data", [pytest.param(data, id=what) for what, data in damages()])
def test_a_damaged_archive_is_refused_by_name(tmp_path, data):
    archive = tmp_path / "a.tar.xz"
    archive.write_bytes(data)
    for ask in (find_runs, lambda path: summarise(path / "a.jsonl")):
        with pytest.raises(DamagedError) as told:
            ask(archive)
        assert str(told.value).startswith(f"{archive} is damaged: ")
        assert "\n" not in str(told.value)


def test_an_archive_of_something_else_among_runs_is_passed_over(tmp_path):
    with tarfile.open(tmp_path / "backup.tar.xz", "w:xz") as tar:
        tar.add(__file__, "tests/some.py")
    (tmp_path / "data.tar.xz").write_bytes(b"no archive at all")
    (tmp_path / "one.jsonl").write_bytes(encode(START)[0])
    assert find_runs(tmp_path) == [tmp_path / "one.jsonl"]
