from __future__ import annotations

import pickle

import numpy as np
import pytest
from data_files import idx_file, python2_pickle

from bocl.errors import DataError
from bocl.tasks.formats import cifar_pickle, cifar_records, idx_array

IMAGES = np.random.default_rng(0).integers(0, 256, (4, 3072)).astype(np.uint8)


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
