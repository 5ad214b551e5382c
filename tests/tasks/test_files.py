from __future__ import annotations

import hashlib
from pathlib import Path

import platformdirs
import pytest
from data_files import sha256, write

from bocl.errors import DataError
from bocl.tasks import files
from bocl.tasks.files import FoundFile, PublishedFile, obtain, read_verified, search_folders, verify_bytes

CONTENT = b"published"
PAIR = (PublishedFile("folder/one", sha256(CONTENT)), PublishedFile("folder/two", sha256(CONTENT)))
SINGLE = (PublishedFile("archive", sha256(CONTENT)),)


@pytest.fixture
def folders(tmp_path, empty_cache, monkeypatch):
    """Return the three places in the order they are looked in."""
    for name in ("data", "environment", "cache"):
        (tmp_path / name).mkdir()
    monkeypatch.setenv("BOCL_DATA", str(tmp_path / "environment"))
    return [tmp_path / name for name in ("data", "environment", "cache")]


def test_folders_are_searched_in_order(folders):
    assert search_folders(folders[0]) == folders
    assert search_folders(str(folders[0])) == folders
    assert search_folders(None) == folders[1:]
    for folder in reversed(folders):
        write(folder, {"archive": CONTENT})
        assert obtain("it", [SINGLE], folders[0]) == (FoundFile(folder / "archive", sha256(CONTENT)),)


def test_the_cache_is_the_users(monkeypatch):
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name, **_: f"/caches/{name}")
    assert str(files.cache_folder()) == "/caches/bocl"


def test_an_edition_counts_only_when_it_is_complete(folders):
    write(folders[0], {"folder/one": CONTENT})
    write(folders[2], {"archive": CONTENT})
    assert [file.path.name for file in obtain("it", [PAIR, SINGLE], folders[0])] == ["archive"]
    write(folders[0], {"folder/two": CONTENT})
    assert [file.path.name for file in obtain("it", [PAIR, SINGLE], folders[0])] == ["one", "two"]


@pytest.mark.parametrize("source", ["data", "BOCL_DATA"])
def test_a_folder_that_is_not_there_is_refused(source, tmp_path, empty_cache, monkeypatch):
    missing = tmp_path / "missing"
    monkeypatch.setenv("BOCL_DATA", str(missing if source == "BOCL_DATA" else tmp_path))
    with pytest.raises(DataError, match=f"{source} is '{missing}', which is not a folder"):
        obtain("it", [SINGLE], missing if source == "data" else None)


def test_what_is_nowhere_and_has_no_mirror_says_where_to_put_it(folders):
    with pytest.raises(DataError) as caught:
        obtain("Some data", [PAIR, SINGLE], folders[0])
    message = str(caught.value)
    assert message.startswith("Some data was not found in")
    assert all(str(folder) in message for folder in folders)
    assert "put folder/one and folder/two or archive in a folder" in message
    assert "BOCL_DATA" in message
    assert "\n" not in message
    assert "not downloaded" not in message, "nothing was tried"


def test_what_is_nowhere_says_with_which_command_it_is_fetched(folders):
    file = PublishedFile("archive", sha256(CONTENT), command="npm pack archive@1")
    with pytest.raises(DataError) as caught:
        obtain("Some data", [(file,)], folders[0])
    places = ", ".join(map(str, folders))
    assert str(caught.value) == (
        f"Some data was not found in {places}; fetch it with npm pack archive@1, then put archive in a folder and give "
        "that as data or in BOCL_DATA"
    )


def test_a_file_with_another_hash_is_refused_and_left_alone(tmp_path):
    path = write(tmp_path, {"file": b"something else"}) / "file"
    with pytest.raises(DataError) as caught:
        read_verified(FoundFile(path, sha256(CONTENT)))
    message = str(caught.value)
    for part in (
        str(path),
        hashlib.sha256(CONTENT).hexdigest(),
        hashlib.sha256(b"something else").hexdigest(),
    ):
        assert part in message
    assert "delete or move it" in message
    assert path.read_bytes() == b"something else"


def test_a_wrong_file_is_never_skipped_for_a_right_one_further_on(folders):
    write(folders[0], {"archive": b"wrong"})
    write(folders[1], {"archive": CONTENT})
    (found,) = obtain("it", [SINGLE], folders[0])
    with pytest.raises(DataError, match="not the published file"):
        read_verified(found)


def test_md5_and_bytes_are_verified_too(tmp_path):
    wanted = f"md5:{hashlib.md5(CONTENT).hexdigest()}"
    path = write(tmp_path, {"file": CONTENT}) / "file"
    assert read_verified(FoundFile(path, wanted)) == CONTENT
    verify_bytes(CONTENT, wanted, "it")
    with pytest.raises(DataError, match="some member is not the published file"):
        verify_bytes(CONTENT + b"!", wanted, "some member")


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(DataError, match=f"{tmp_path} cannot be read"):
        read_verified(FoundFile(tmp_path, sha256(CONTENT)))


def test_what_is_verified_is_what_is_used(tmp_path, monkeypatch):
    path = write(tmp_path, {"file": CONTENT}) / "file"
    opened, open_file = [], Path.open

    def changing(self, *arguments):
        opened.append(self)
        if len(opened) > 1:
            path.write_bytes(b"something else")
        return open_file(self, *arguments)

    monkeypatch.setattr(Path, "open", changing)
    assert read_verified(FoundFile(path, sha256(CONTENT))) == CONTENT


def test_no_more_is_read_than_a_published_file_has(tmp_path, monkeypatch):
    with (tmp_path / "file").open("wb") as file:
        file.truncate(1 << 40)
    monkeypatch.setattr("bocl.tasks.files.LARGEST", len(CONTENT))
    with pytest.raises(DataError, match="not the published file"):
        read_verified(FoundFile(tmp_path / "file", sha256(CONTENT)))
