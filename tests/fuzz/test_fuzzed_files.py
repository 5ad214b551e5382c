"""Data files and archives that are damaged, hostile, or simply something else."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import tarfile
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_files import idx_file, python2_pickle, small_cifar, small_mnist, tar_file, write, zipped
from fuzzing import TALLY, cases, untouched
from hypothesis import given
from hypothesis import strategies as st

from bocl.errors import DataError
from bocl.tasks import cifar100, mnist
from bocl.tasks.formats import CIFAR_RECORD, cifar_pickle, cifar_records, gunzip, idx_array, tar_members

WANTED = {"folder/train": 3000, "folder/test": 100}
TAR = tar_file({"folder/train": bytes(range(250)) * 12, "folder/notes": b"hello", "folder/test": b"b" * 50})
IDX = idx_file(np.arange(60).reshape(5, 3, 4))
PICKLE = python2_pickle(np.zeros((2, 3072), np.uint8), [1, 2])
NAMES = (
    "folder/train",
    "folder/test",
    "../out",
    "/out",
    "folder/../../out",
    "folder",
    "x" * 300,
    "é/\n",
    ".",
    "",
    "a\\..\\b",
)
KINDS = [
    tarfile.REGTYPE, tarfile.AREGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE,
    tarfile.BLKTYPE, tarfile.FIFOTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE, tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK, tarfile.XHDTYPE, tarfile.XGLTYPE, b"S", b"V", b"Z", b"\xff",
]  # fmt: skip
SIZES = st.sampled_from([0, 1, 100, 512, 3000, 3001, 1 << 20, 1 << 33, 1 << 40, (1 << 62)])


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in a folder where whatever a payload makes would be found."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused_or(kind: str, folder: Path, function: Any, *arguments: Any) -> Any:
    """Return what a reader makes of bytes, or None where it refuses them; it must leave the folder alone."""
    result, refusal = None, None
    with untouched(folder):
        try:
            result = function(*arguments)
        except DataError as error:
            refusal = str(error)
    assert refusal is None or "some/file" in refusal
    TALLY[kind, "accepted" if refusal is None else "refused"] += 1
    return result


@st.composite
def damaged(draw: Any, content: bytes) -> bytes:
    """Draw a file that is cut, lengthened, changed in places, or has parts exchanged."""
    data = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["cut", "flip", "insert", "remove", "repeat"]))
        if change == "cut":
            del data[place:]
        elif change == "flip":
            data[place : place + 1] = bytes([draw(st.integers(0, 255))])
        elif change == "insert":
            data[place:place] = draw(st.binary(max_size=8))
        elif change == "remove":
            del data[place : place + draw(st.integers(1, 600))]
        else:
            data[place:place] = data[: draw(st.integers(0, 600))]
    return bytes(data)


@cases(60)
@given(st.one_of(damaged(IDX), st.binary(max_size=40), st.tuples(st.integers(0, 255), st.binary(max_size=1100)).map(
    lambda parts: b"\0\0\x08" + bytes([parts[0]]) + parts[1])))  # fmt: skip
def test_an_idx_file_is_read_as_it_declares_or_refused(inside, data):
    array = refused_or("idx file", inside, idx_array, data, "some/file")
    if array is not None:
        assert array.size == len(data) - 4 - 4 * data[3]


def test_an_idx_file_of_many_dimensions_is_refused():
    with pytest.raises(DataError, match="not an idx file"):
        idx_array(b"\0\0\x08\xff" + struct.pack(">255I", *[1] * 255) + b"x", "it")


@cases(40)
@given(st.one_of(damaged(gzip.compress(IDX, mtime=0)), st.binary(max_size=40)))
def test_a_gzip_file_is_read_whole_or_refused(inside, data):
    content = refused_or("gzip file", inside, gunzip, data, 100, "some/file")
    assert content is None or len(content) <= 100


@cases(30)
@given(st.one_of(st.binary(max_size=40), st.integers(0, 3 * CIFAR_RECORD).map(bytes)))
def test_cifar_records_are_whole_or_refused(inside, data):
    read = refused_or("cifar records", inside, cifar_records, data, "some/file")
    assert read is None or len(read[0]) * CIFAR_RECORD == len(data)


@cases(50)
@given(damaged(TAR))
def test_a_damaged_archive_is_read_or_refused(inside, data):
    read = refused_or("tar.gz, damaged", inside, tar_members, data, WANTED, "some/file")
    assert read is None or all(len(read[name]) <= limit for name, limit in WANTED.items())


@cases(50)
@given(st.binary(max_size=200).map(gzip.compress) | damaged(gzip.decompress(TAR)).map(gzip.compress))
def test_an_archive_damaged_before_it_was_compressed_is_read_or_refused(inside, data):
    read = refused_or("tar.gz, damaged inside", inside, tar_members, data, WANTED, "some/file")
    assert read is None or all(len(read[name]) <= limit for name, limit in WANTED.items())


@st.composite
def odd_members(draw: Any) -> bytes:
    """Draw the header of a member of any kind, name, target and declared size, and a little of what it declares."""
    member = tarfile.TarInfo(draw(st.sampled_from(NAMES)))
    member.type = draw(st.sampled_from(KINDS))
    member.linkname = draw(st.sampled_from(NAMES))
    member.size = draw(SIZES)
    kind = draw(st.sampled_from([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT]))
    filling = draw(
        st.sampled_from([b"\0", b"19 path=../../out\n", b"30 GNU.sparse.size=999999999\n", b"99999999999 a=b\n"])
    )
    length = min(member.size, 1 << 22)
    return member.tobuf(kind) + (filling * (length // len(filling) + 1))[:length] + bytes(-length % 512)


@cases(50)
@given(st.lists(odd_members(), min_size=1, max_size=3), st.integers(1, 200))
def test_hostile_members_are_refused_within_the_limits_of_memory(inside, members, times):
    data = gzip.compress(b"".join(members) * (times if sum(map(len, members)) < 1 << 12 else 1) + bytes(1024), 1)
    tracemalloc.start()
    read = refused_or("tar.gz, hostile members", inside, tar_members, data, WANTED, "some/file")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 << 20, f"{peak:,} bytes were taken"
    assert read is None or all(len(read[name]) <= limit for name, limit in WANTED.items())


CALLS = [
    ("os", "system"), ("posix", "system"), ("subprocess", "Popen"), ("builtins", "exec"), ("builtins", "eval"),
    ("builtins", "open"), ("__builtin__", "open"), ("__builtin__", "eval"), ("builtins", "getattr"), ("numpy", "save"),
    ("numpy", "ndarray.tofile"), ("numpy", "load"), ("numpy.core.multiarray", "fromfile"), ("pathlib", "Path.touch"),
    ("copyreg", "_reconstructor"), ("numpy.testing", "rundocs"), ("numpy", "f2py.os.system"), ("io", "open"),
    ("bocl.tasks.formats", "pickle.loads"), ("codecs", "open"), ("operator", "methodcaller"), ("numpy", "dtype"),
    ("numpy", "ndarray"), ("numpy.core.multiarray", "_reconstruct"), ("", ""), ("os\0", "system"),
    ("numpy", "dtype.__init__"),
]  # fmt: skip
PAYLOADS = ["touch payload-was-here", "payload-was-here", "open('payload-was-here', 'w')"]


@st.composite
def programs(draw: Any) -> bytes:
    """Draw a pickle that calls any function, in each of the ways a pickle can, with a payload for argument."""
    module, name = draw(st.sampled_from(CALLS))
    payload = pickle.dumps(draw(st.sampled_from(PAYLOADS)), 2)[2:-1]
    arguments = b"(" + payload + draw(st.sampled_from([b"", b"X\x01\0\0\0w", payload])) + b"t"
    plain = f"{module}\n{name}\n".encode()
    stacked = (
        b"".join(b"X" + struct.pack("<I", len(text.encode())) + text.encode() for text in (module, name)) + b"\x93"
    )
    call = draw(
        st.sampled_from([
            b"c" + plain + arguments + b"R",
            stacked + arguments + b"R",
            b"(" + payload + b"i" + plain,
            b"(c" + plain + payload + b"o",
            b"c" + plain + arguments + b"\x81",
            b"c" + plain + arguments + b"}\x92",
            b"c" + plain + b"}(X\x08\0\0\0__code__" + payload + b"ub",
            b"c" + plain + b"N}(X\x08\0\0\0__code__" + payload + b"u\x86b",
            b"\x82\x01", b"P1\n", b"N" + payload + b"Q",
        ])
    )  # fmt: skip
    return draw(st.sampled_from([
        b"\x80\x02" + call + b".",
        b"\x80\x04" + call + b".",
        PICKLE[:-2] + b"X\x04\0\0\0more" + call + b"u.",
        b"\x80\x02}(U\x04data" + call + b"U\x0bfine_labels](K\x01eu.",
    ]))  # fmt: skip


@cases(150)
@given(programs())
def test_a_pickle_runs_no_code(inside, data):
    read = refused_or("pickle with code", inside, cifar_pickle, data, "some/file")
    assert read is None or read[0].shape == (2, 3, 32, 32)


def test_the_payload_would_leave_a_file(inside):
    pickle.loads(b"\x80\x02cposix\nsystem\n(X\x16\0\0\0touch payload-was-heretR.")
    assert os.listdir(inside) == ["payload-was-here"]


@cases(8)
@given(st.sampled_from(["gz", "plain"]), st.integers(0, 3), st.data())
def test_a_wrong_file_of_mnist_is_refused_by_its_hash(tmp_path_factory, form, which, data):
    folder = tmp_path_factory.mktemp("mnist")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("BOCL_DATA", raising=False)
        files = small_mnist(patch)
        if form == "gz":
            files = {f"{name}.gz": zipped(content) for name, content in files.items()}
        name = sorted(files)[which]
        wrong = data.draw(damaged(files[name]).filter(lambda content: content != files[name]))
        write(folder, {**files, name: wrong})
        with untouched(folder), pytest.raises(DataError, match=f"{name} is not the published file"):
            mnist.load_mnist(folder)
        TALLY["MNIST with a wrong file", "refused"] += 1


@cases(8)
@given(
    st.sampled_from(["binary", "python"]),
    st.booleans(),
    st.one_of(st.just(b""), odd_members().map(gzip.compress), programs()),
)
def test_a_wrong_file_of_cifar_is_refused_by_its_hash(tmp_path_factory, edition, packed, wrong):
    folder = tmp_path_factory.mktemp("cifar")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("BOCL_DATA", raising=False)
        patch.chdir(folder)
        files = small_cifar(patch)
        member = f"cifar-100-{edition}/train" + (".bin" if edition == "binary" else "")
        place = f"cifar-100-{edition}.tar.gz" if packed else member
        other = {name: content for name, content in files.items() if name.startswith(f"cifar-100-{edition}/")}
        write(folder, {place: wrong} if packed else {**other, place: wrong})
        with untouched(folder), pytest.raises(DataError, match=f"{place} is not the published file"):
            cifar100.load_cifar100(folder)
        TALLY["CIFAR-100 with a wrong file", "refused"] += 1
