"""The real download code against a server on this machine."""

from __future__ import annotations

import logging
import socket
import sys

import numpy as np
import pytest
from data_files import sha256, small_cifar, small_mnist, zipped
from data_server import Server

from bocl.errors import DataError
from bocl.tasks import cifar100, mnist
from bocl.tasks import download as downloads
from bocl.tasks.download import download
from bocl.tasks.files import PublishedFile, obtain

CONTENT = bytes(range(256)) * 1000
LIMIT = 2 * len(CONTENT)


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(downloads, "SCHEMES", ("https://", "http://"))  # the server has no certificate
    started = []

    def start(contents):
        started.append(Server(contents))
        return started[-1]

    yield start
    for server in started:
        server.stop()


def closed_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


def fetch(server, target, folders, failures=None):
    mirrors = [f"{server.address}/{folder}/file.bin" for folder in folders]
    return download(mirrors, target, sha256(CONTENT), LIMIT, [] if failures is None else failures)


@pytest.mark.parametrize("bad", ["missing", "short", "wrong"])
def test_the_second_mirror_is_tried_when_the_first_fails(serve, tmp_path, bad):
    server, failures = serve({"file.bin": CONTENT}), []
    target = tmp_path / "deep" / "folder" / "file.bin"
    assert fetch(server, target, [bad, "good"], failures)
    assert target.read_bytes() == CONTENT
    assert [path.name for path in target.parent.iterdir()] == ["file.bin"]
    assert server.asked == [f"/{bad}/file.bin", "/good/file.bin"]
    assert len(failures) == 1
    assert f"{server.address}/{bad}/file.bin" in failures[0]


def test_a_transfer_that_was_cut_is_tried_once_more(serve, tmp_path):
    server, failures = serve({"file.bin": CONTENT}), []
    assert fetch(server, tmp_path / "file.bin", ["flaky", "missing"], failures)
    assert server.asked == ["/flaky/file.bin", "/missing/file.bin", "/flaky/file.bin"]
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert not fetch(server, tmp_path / "other.bin", ["short"])
    assert server.asked[3:] == ["/short/file.bin"] * 2, "once more, not for ever"


def test_a_good_first_mirror_is_the_only_one_asked(serve, tmp_path):
    server = serve({"file.bin": CONTENT})
    assert fetch(server, tmp_path / "file.bin", ["good", "other"])
    assert server.asked == ["/good/file.bin"]


def test_nothing_is_left_behind_when_every_mirror_fails(serve, tmp_path):
    server, failures = serve({"file.bin": CONTENT}), []
    assert not fetch(server, tmp_path / "file.bin", ["missing", "short", "wrong"], failures)
    assert list(tmp_path.iterdir()) == []
    reasons = [failure.rpartition(": ")[2] for failure in failures]
    assert reasons[0] == "answered 404"
    assert reasons[2] == "the file has the wrong hash"


def test_a_failed_search_and_download_is_one_clear_line(serve, empty_cache):
    address = closed_port()
    file = PublishedFile("a/file.bin", sha256(CONTENT), (f"{address}/one/file.bin", f"{address}/two/file.bin"))
    with pytest.raises(DataError) as caught:
        obtain("Some data", [(file,)], None)
    message = str(caught.value)
    assert "\n" not in message
    for part in (
        str(empty_cache),
        f"{address}/one/file.bin: ConnectionError",
        "/two/file.bin",
        "BOCL_DATA",
        "a/file.bin",
    ):
        assert part in message
    assert len(message) < 600


def test_a_cache_that_cannot_be_written_is_said(serve, tmp_path):
    server, failures = serve({"file.bin": CONTENT}), []
    (tmp_path / "file").write_text("in the way")
    assert not fetch(server, tmp_path / "file" / "file.bin", ["good"], failures)
    assert "file" in failures[0]


def test_progress_goes_to_a_terminal_alone(serve, tmp_path, capfd, monkeypatch):
    server = serve({"file.bin": CONTENT})
    assert fetch(server, tmp_path / "quiet.bin", ["good"])
    assert capfd.readouterr() == ("", "")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert fetch(server, tmp_path / "loud.bin", ["good"])
    out, err = capfd.readouterr()
    assert out == ""
    assert "256k" in err


def test_the_loggers_level_is_put_back(serve, tmp_path):
    import pooch

    level = pooch.get_logger().level
    fetch(serve({"file.bin": CONTENT}), tmp_path / "file.bin", ["good"])
    assert pooch.get_logger().level == level != logging.ERROR


def test_mnist_is_downloaded_once_in_the_published_layout(serve, empty_cache, monkeypatch):
    contents = {f"{name}.gz": zipped(content) for name, content in small_mnist(monkeypatch).items()}
    server = serve(contents)
    monkeypatch.setattr(mnist, "MIRRORS", (f"{server.address}/short/", f"{server.address}/good/"))
    images = mnist.load_mnist()
    assert images.train_images.shape == (200, 1, 28, 28)
    assert sorted(path.name for path in (empty_cache / "MNIST" / "raw").iterdir()) == sorted(contents)
    asked = len(server.asked)
    mnist._read.cache_clear()
    assert np.array_equal(mnist.load_mnist().train_images, images.train_images)
    assert len(server.asked) == asked == 8


@pytest.mark.parametrize("edition", ["binary", "python"])
def test_either_edition_of_cifar_is_downloaded(serve, empty_cache, monkeypatch, edition):
    contents = small_cifar(monkeypatch)
    name = f"cifar-100-{edition}.tar.gz"
    server = serve({name: contents[name]})
    for constant in ("BINARY_ARCHIVE", "PYTHON_ARCHIVE"):
        file = getattr(cifar100, constant)
        mirrors = (f"{server.address}/good/{file.place}",)
        monkeypatch.setattr(cifar100, constant, PublishedFile(file.place, file.hash, mirrors))
    assert cifar100.load_cifar100().train_images.shape == (400, 3, 32, 32)
    assert [path.name for path in empty_cache.iterdir()] == [name]


def test_the_real_mirrors_are_encrypted_and_more_than_one():
    cifar = [*cifar100.BINARY_ARCHIVE.mirrors, *cifar100.PYTHON_ARCHIVE.mirrors]
    for mirrors in (mnist.MIRRORS, cifar):
        assert len(mirrors) > 1
        assert all(mirror.startswith("https://") for mirror in mirrors)


def test_a_mirror_that_sends_too_much_is_stopped(serve, tmp_path):
    failures: list[str] = []
    assert not fetch(serve({"file.bin": CONTENT}), tmp_path / "file.bin", ["endless", "bomb"], failures)
    assert [failure.rpartition("/file.bin: ")[2] for failure in failures] == [
        f"sends more than the {LIMIT} bytes expected; do not trust it"
    ] * 2
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_encrypted_is_not_asked(serve, tmp_path, monkeypatch):
    server, failures = serve({"file.bin": CONTENT}), []
    monkeypatch.setattr(downloads, "SCHEMES", ("https://",))
    assert not fetch(server, tmp_path / "file.bin", ["good"], failures)
    assert server.asked == []
    assert failures == [f"{server.address}/good/file.bin: not encrypted: only https is used"]


def test_a_redirect_cannot_leave_what_is_encrypted(serve, tmp_path, monkeypatch):
    server, failures = serve({"file.bin": CONTENT}), []
    monkeypatch.setattr(downloads, "SCHEMES", (f"{server.address}/away/",))  # stands for https
    assert not fetch(server, tmp_path / "file.bin", ["away"], failures)
    assert server.asked == ["/away/file.bin"]
    assert failures[0].endswith("not encrypted: only https is used")
