from __future__ import annotations

import numpy as np
import pytest
from data_files import md5, small_cifar, tar_file, write

from bocl.errors import DataError
from bocl.tasks import cifar100
from bocl.tasks.cifar100 import load_cifar100
from bocl.tasks.files import PublishedFile

EDITIONS = {
    "binary files": ["cifar-100-binary/train.bin", "cifar-100-binary/test.bin"],
    "binary archive": ["cifar-100-binary.tar.gz"],
    "python files": ["cifar-100-python/train", "cifar-100-python/test"],
    "python archive": ["cifar-100-python.tar.gz"],
}


@pytest.mark.parametrize("edition", EDITIONS)
def test_every_edition_gives_the_same_images(edition, tmp_path, empty_cache, monkeypatch):
    contents = small_cifar(monkeypatch)
    images = load_cifar100(write(tmp_path, {place: contents[place] for place in EDITIONS[edition]}))
    records = np.frombuffer(contents["cifar-100-binary/train.bin"], np.uint8).reshape(400, 3074)
    assert np.array_equal(images.train_images.reshape(400, 3072), records[:, 2:])
    assert np.array_equal(images.train_labels, records[:, 1])
    assert images.test_images.shape == (200, 3, 32, 32)
    others = load_cifar100(write(tmp_path / "other", contents))
    assert images.fingerprint == others.fingerprint


@pytest.mark.parametrize("edition", EDITIONS)
def test_a_changed_file_is_refused(edition, tmp_path, empty_cache, monkeypatch):
    contents = small_cifar(monkeypatch)
    *others, last = EDITIONS[edition]
    changed = contents[last][:-1] + b"?"
    write(tmp_path, {**{place: contents[place] for place in others}, last: changed})
    with pytest.raises(DataError, match=f"{last} is not the published file"):
        load_cifar100(tmp_path)


@pytest.mark.parametrize("edition", ["binary", "python"])
def test_a_member_is_verified_even_in_an_archive_that_is_believed(edition, tmp_path, empty_cache, monkeypatch):
    contents = small_cifar(monkeypatch)
    name = f"cifar-100-{edition}.tar.gz"
    members = {place: contents[place] for place in EDITIONS[f"{edition} files"]}
    place = EDITIONS[f"{edition} files"][0]
    forged = tar_file({**members, place: contents[place][:-1] + b"?"})
    constant = f"{edition.upper()}_ARCHIVE"
    monkeypatch.setattr(cifar100, constant, PublishedFile(name, md5(forged)))
    with pytest.raises(DataError, match=f"{place} is not the published file"):
        load_cifar100(write(tmp_path, {name: forged}))


@pytest.mark.real_data
def test_the_published_files(real_data):
    images = load_cifar100(real_data)
    assert load_cifar100(real_data) is images
    assert (images.train_images.shape, images.test_images.shape) == ((50_000, 3, 32, 32), (10_000, 3, 32, 32))
    assert np.bincount(images.train_labels).tolist() == [500] * 100
    assert np.bincount(images.test_labels).tolist() == [100] * 100
    assert images.train_labels[:5].tolist() == [19, 29, 0, 11, 1]
    assert images.test_labels[:5].tolist() == [49, 33, 72, 51, 71]
    assert images.fingerprint.startswith("b569d27f")
