"""Mirrors that misbehave in every way and order, on a server of this machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from data_files import sha256
from data_server import Server
from fuzzing import TALLY, cases
from hypothesis import given
from hypothesis import strategies as st

from bocl.tasks import download as downloads

CONTENT = bytes(range(256)) * 1000
GOOD = ("good", "away", "flaky")
BAD = ("missing", "short", "wrong", "endless", "bomb", "nobody", "noscheme", "plain", "")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """Serve one file, and stop in the end."""
    server = Server({"file.bin": CONTENT})
    yield server
    server.stop()


def address(server: Server, folder: str) -> str:
    odd = {
        "nobody": "http://127.0.0.1:9/file.bin",
        "noscheme": "127.0.0.1/file.bin",
        "plain": "gopher://a/file.bin",
        "": "",
    }
    return odd.get(folder, f"{server.address}/{folder}/file.bin")


@cases(15)
@given(st.lists(st.sampled_from(GOOD + BAD), max_size=4), st.sampled_from([len(CONTENT) - 1, len(CONTENT), 10**6]))
def test_the_right_file_comes_whole_or_nothing_does(tmp_path_factory, server, folders, limit):
    target = tmp_path_factory.mktemp("cache") / "deep" / "file.bin"
    failures: list[str] = []
    server.asked.clear()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "127.0.0.1")
        patch.setattr(downloads, "SCHEMES", ("https://", "http://"))
        mirrors = [address(server, folder) for folder in folders]
        there = downloads.download(mirrors, target, sha256(CONTENT), limit, failures)
    assert there == (limit >= len(CONTENT) and any(folder in GOOD for folder in folders))
    assert [path.read_bytes() == CONTENT for path in target.parent.glob("*")] == [True] * there
    assert all("\n" not in failure for failure in failures)
    assert there or len(failures) >= len(folders)
    TALLY["mirrors", "came whole" if there else "refused"] += 1
