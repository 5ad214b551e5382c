from __future__ import annotations

import gzip
import io
import tarfile

import pytest
from data_files import tar_file

from bocl.errors import DataError
from bocl.tasks.archives import gunzip, tar_members

WANTED = {"folder/train": 100, "folder/test": 100}
GOOD = {"folder/train": b"a" * 100, "folder/notes.txt": b"hello", "folder/test": b"b" * 50}


def odd_member(name="folder/odd", kind=tarfile.REGTYPE, target=""):
    member = tarfile.TarInfo(name)
    member.type = kind
    member.linkname = target
    return member


def test_members_are_read_and_nothing_is_written(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = tar_file(GOOD, [odd_member("folder", tarfile.DIRTYPE)])
    assert tar_members(content, WANTED, "it") == {name: GOOD[name] for name in WANTED}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("member", "problem"),
    [
        (odd_member("../../outside"), "points outside"),
        (odd_member("/etc/outside"), "points outside"),
        (odd_member("folder/../../outside"), "points outside"),
        (odd_member("folder/link", tarfile.SYMTYPE, "/etc/passwd"), "link or a device"),
        (odd_member("folder/train", tarfile.SYMTYPE, "/etc/passwd"), "link or a device"),
        (odd_member("folder/train", tarfile.LNKTYPE, "folder/test"), "link or a device"),
        (odd_member("folder/pipe", tarfile.FIFOTYPE), "link or a device"),
        (odd_member("folder/device", tarfile.CHRTYPE), "link or a device"),
    ],
)
def test_hostile_members_are_refused(tmp_path, monkeypatch, member, problem):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=problem):
        tar_members(tar_file(GOOD, [member]), WANTED, "some/file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["folder/train", "folder/unwanted"])
def test_a_huge_declared_size_is_refused_before_it_is_read(name):
    member = tarfile.TarInfo(name)
    member.size = 1 << 40
    content = gzip.compress(member.tobuf() + bytes(1024))  # the bytes it declares are not even there
    with pytest.raises(DataError, match=f"declares {1 << 40} bytes"):
        tar_members(content, WANTED, "some/file")


def test_a_member_larger_than_expected_is_refused():
    with pytest.raises(DataError, match="declares 101 bytes"):
        tar_members(tar_file({**GOOD, "folder/train": bytes(101)}), WANTED, "some/file")


def test_too_many_members_are_refused():
    many = {f"folder/{index}": b"" for index in range(200)}
    with pytest.raises(DataError, match="more than 100 members"):
        tar_members(tar_file(many), WANTED, "some/file")


def test_missing_members_are_named():
    with pytest.raises(DataError, match="no member folder/test"):
        tar_members(tar_file({"folder/train": b"a"}), WANTED, "some/file")


@pytest.mark.parametrize("cut", [0, 3, 20, 100])
def test_damaged_archives_are_refused(cut):
    with pytest.raises(DataError, match="cannot be read as a"):
        tar_members(tar_file(GOOD)[:cut], WANTED, "some/file")


def test_gunzip():
    assert gunzip(gzip.compress(b"hello"), 5, "it") == b"hello"
    with pytest.raises(DataError, match=r"some/file .* more than the 4 bytes"):
        gunzip(gzip.compress(b"hello"), 4, "some/file")
    with pytest.raises(DataError, match="some/file cannot be decompressed"):
        gunzip(gzip.compress(b"hello")[:-3], 5, "some/file")
    with pytest.raises(DataError, match="some/file cannot be decompressed"):
        gunzip(b"hello", 5, "some/file")


def test_a_compression_bomb_is_not_unpacked():
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb") as stream:
        for _ in range(64):
            stream.write(bytes(1 << 20))
    with pytest.raises(DataError, match="more than"):
        gunzip(buffer.getvalue(), 1000, "some/file")


def test_a_header_that_expands_without_end_is_not_unpacked():
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1 << 27
    with pytest.raises(DataError, match="some/file decompresses to more than"):
        tar_members(gzip.compress(header.tobuf() + bytes(1 << 23)), WANTED, "some/file")


def test_headers_that_name_headers_without_end_are_refused():
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 1
    with pytest.raises(DataError, match="some/file cannot be read as"):
        tar_members(gzip.compress((header.tobuf() + bytes(512)) * 1000), WANTED, "some/file")
