from __future__ import annotations

import gzip
import io
import pickle
import tarfile

import numpy as np
import pytest
from data_files import idx_file, python2_pickle, tar_file

from bocl.errors import DataError
from bocl.tasks.formats import cifar_pickle, cifar_records, gunzip, idx_array, tar_members

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 3072)).astype(np.uint8)
WANTED = {"folder/train": 100, "folder/test": 100}
GOOD = {"folder/train": b"a" * 100, "folder/notes.txt": b"hello", "folder/test": b"b" * 50}


@pytest.mark.parametrize("shape", [(5,), (3, 4, 2)])
def test_idx_files_are_read(shape):
    array = np.arange(np.prod(shape)).reshape(shape)
    assert np.array_equal(idx_array(idx_file(array), "it"), array)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00\x00",
        b"\x00\x00\x0d\x01\x00\x00\x00\x01\x05",  # floats
        b"\x00\x00\x08\x03\x00\x00",  # cut in the header
        idx_file(np.arange(9))[:-1],
        idx_file(np.arange(9)) + b"\x00",
        b"\x00\x00\x08\x04" + b"\xff" * 16,  # sizes whose product has no end
    ],
)
def test_damaged_idx_files_are_refused(content):
    with pytest.raises(DataError, match=r"some/file .* get it again"):
        idx_array(content, "some/file")


def test_cifar_records_are_read():
    records = np.concatenate([np.full((4, 1), 9, np.uint8), np.arange(4, dtype=np.uint8)[:, None], IMAGES], axis=1)
    images, labels = cifar_records(records.tobytes(), "it")
    assert labels.tolist() == [0, 1, 2, 3]
    assert np.array_equal(images.reshape(4, 3072), IMAGES)
    assert np.array_equal(images[0, 1].ravel(), IMAGES[0, 1024:2048])  # green is the second plane


@pytest.mark.parametrize("size", [0, 3073, 3075])
def test_damaged_cifar_records_are_refused(size):
    with pytest.raises(DataError, match=f"holds {size} bytes"):
        cifar_records(bytes(size), "some/file")


def test_cifar_pickles_are_read():
    images, labels = cifar_pickle(python2_pickle(IMAGES, [5, 3, 99, 0]), "it")
    assert images.shape == (4, 3, 32, 32)
    assert np.array_equal(images.reshape(4, 3072), IMAGES)
    assert labels.tolist() == [5, 3, 99, 0]


class Harmful:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    "name", ["os.system", "builtins.eval", "builtins.getattr", "numpy.load", "numpy.lib.npyio.load"]
)
def test_a_pickle_that_calls_anything_else_is_refused(name, protocol, tmp_path):
    import os

    trace = tmp_path / "trace"
    functions = {"os.system": os.system, "builtins.eval": eval, "builtins.getattr": getattr}
    if name in functions:
        argument = f"touch {trace}" if name == "os.system" else f"open({str(trace)!r}, 'w')"
        arguments = (argument, "upper") if name == "builtins.getattr" else (argument,)
        content = pickle.dumps({"data": Harmful(functions[name], *arguments)}, protocol)
    else:
        module, function = name.rsplit(".", 1)
        content = f"c{module}\n{function}\n(S'{trace}'\ntR.".encode()
    with pytest.raises(DataError, match=r"some/file: the pickle asks for .* do not trust it"):
        cifar_pickle(content, "some/file")
    assert not trace.exists()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x80\x02}.",
        b"no pickle at all",
        python2_pickle(IMAGES, [1, 2, 3, 4])[:-50],
        python2_pickle(IMAGES, [1, 2, 3]),
        python2_pickle(IMAGES[:, :3000], [1, 2, 3, 4]),
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\ndtype\nK\x00\x85U\x01btR.",
        b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85U\x01btR.",
    ],
)
def test_damaged_pickles_are_refused(content):
    with pytest.raises(DataError, match="some/file"):
        cifar_pickle(content, "some/file")


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
    "member",
    [
        odd_member("../../outside"),
        odd_member("/etc/outside"),
        odd_member("folder/../../outside"),
        odd_member("folder/link", tarfile.SYMTYPE, "/etc/passwd"),
        odd_member("folder/train", tarfile.SYMTYPE, "/etc/passwd"),
        odd_member("folder/train", tarfile.LNKTYPE, "folder/test"),
        odd_member("folder/pipe", tarfile.FIFOTYPE),
        odd_member("folder/device", tarfile.CHRTYPE),
    ],
)
def test_hostile_members_are_passed_over(tmp_path, monkeypatch, member):
    monkeypatch.chdir(tmp_path)
    assert tar_members(tar_file(GOOD, [member]), WANTED, "some/file") == {name: GOOD[name] for name in WANTED}
    with pytest.raises(DataError, match="no file folder/train"):
        tar_members(tar_file({"folder/test": b"b"}, [member]), WANTED, "some/file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["folder/train", "folder/unwanted"])
def test_a_huge_declared_size_is_not_believed(name):
    member = tarfile.TarInfo(name)
    member.size = 1 << 40
    content = gzip.compress(member.tobuf() + bytes(1024))  # the bytes it declares are not even there
    with pytest.raises(DataError, match="some/file cannot be read as"):
        tar_members(content, WANTED, "some/file")


def test_a_member_larger_than_expected_is_refused():
    with pytest.raises(DataError, match="no file folder/train of the size expected"):
        tar_members(tar_file({**GOOD, "folder/train": bytes(101)}), WANTED, "some/file")


def test_missing_members_are_named():
    with pytest.raises(DataError, match="no file folder/test"):
        tar_members(tar_file({"folder/train": b"a"}), WANTED, "some/file")


@pytest.mark.parametrize("cut", [0, 3, 20, 100])
def test_damaged_archives_are_refused(cut):
    with pytest.raises(DataError, match=r"some/file cannot be .* get it again"):
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
