from __future__ import annotations

import gzip

import numpy as np
import pytest
from data_files import idx_file, sha256, small_mnist, write, zipped

from bocl.errors import DataError
from bocl.tasks import mnist
from bocl.tasks.mnist import load_mnist


@pytest.mark.parametrize("folder", ["MNIST/raw/", ""])
@pytest.mark.parametrize("compressed", [True, False])
def test_every_layout_gives_the_same_images(folder, compressed, tmp_path, empty_cache, monkeypatch):
    contents = small_mnist(monkeypatch)
    for name, content in contents.items():
        place = f"{folder}{name}.gz" if compressed else f"{folder}{name}"
        write(tmp_path, {place: zipped(content) if compressed else content})
    images = load_mnist(tmp_path)
    assert (images.train_images.shape, images.test_images.shape) == ((200, 1, 28, 28), (50, 1, 28, 28))
    assert images.train_images.tobytes() == contents["train-images-idx3-ubyte"][16:]
    assert images.test_labels.tolist() == [label % 10 for label in range(50)]
    assert images.fingerprint == "40099bbb45c1b5067d0b71a4c9cea52d2b961eca2af902cc95637ee4917709c6"


def test_it_is_read_once(tmp_path, empty_cache, monkeypatch):
    folder = write(tmp_path, small_mnist(monkeypatch))
    images = load_mnist(folder)
    monkeypatch.setenv("BOCL_DATA", str(folder))
    assert load_mnist() is images


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte", "t10k-labels-idx1-ubyte.gz"])
def test_a_changed_file_is_refused(name, tmp_path, empty_cache, monkeypatch):
    contents = small_mnist(monkeypatch)
    places = {f"{key}.gz" if name.endswith("gz") else key: content for key, content in contents.items()}
    if name.endswith("gz"):
        places = {key: zipped(content) for key, content in places.items()}
    changed = bytearray(places[name])
    changed[-1] ^= 1
    write(tmp_path, {**places, name: bytes(changed)})
    with pytest.raises(DataError, match=f"{name} is not the published file"):
        load_mnist(tmp_path)


def test_labels_for_other_images_are_refused(tmp_path, empty_cache, monkeypatch):
    contents = small_mnist(monkeypatch)
    contents["train-labels-idx1-ubyte"] = idx_file(np.arange(199) % 10)
    hashes = dict(mnist.HASHES)
    hashes["train-labels-idx1-ubyte"] = ("", sha256(contents["train-labels-idx1-ubyte"]).split(":")[1])
    monkeypatch.setattr(mnist, "HASHES", hashes)
    with pytest.raises(DataError, match="get both again"):
        load_mnist(write(tmp_path, contents))


@pytest.mark.real_data
def test_the_published_files_decompressed_are_the_same_data(real_data, tmp_path):
    published = load_mnist(real_data)
    for name in mnist.HASHES:
        zipped_file = real_data / "MNIST" / "raw" / f"{name}.gz"
        write(tmp_path, {name: gzip.decompress(zipped_file.read_bytes())})
    plain = load_mnist(tmp_path)
    assert plain is not published
    assert plain.fingerprint == published.fingerprint
    assert published.fingerprint.startswith("161dcace")
