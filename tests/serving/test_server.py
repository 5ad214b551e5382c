"""A real server, asked by real clients: many at once, wrong, huge and slow ones; killed, restarted and stopped."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from urllib.parse import quote

import numpy as np
import pytest
from server_process import SURROUNDINGS, server
from serving_examples import NAMES, as_json, as_npy, images, make_run, write_task

import bocl
from bocl.errors import InputError
from bocl.serving.limits import Limits
from bocl.serving.server import listen

pytestmark = pytest.mark.extras("uvicorn")

CLIENTS = 200


def received(connection):
    """Return all that comes until the server closes."""
    parts = []
    try:
        while part := connection.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def predict_path(name):
    return f"/tasks/{quote(name, safe='')}/predict"


def logits(content):
    """Return the logits in an answer, JSON or npy, as bytes of float32."""
    if content.startswith(b"\x93NUMPY"):
        return np.load(io.BytesIO(content), allow_pickle=False).tobytes()
    return np.float32(json.loads(content)["logits"]).tobytes()


def questions(learner, names):
    """Return (path, body, headers, logits) for requests of all kinds and several sizes."""
    found = []
    for name in names:
        for rows in (1, 3, 16):
            x = images(rows)[:rows]
            wanted = learner.predict(x, name).numpy().tobytes()
            found.append((f"{predict_path(name)}?logits=true", as_json(x), {}, wanted))
            found.append((predict_path(name), as_npy(x), {"Accept": "application/x-npy"}, wanted))
    return found


def test_no_answer_changes_while_a_task_is_added_nor_after_a_kill(tmp_path):
    run = make_run(tmp_path)
    asked, wrong, counts = questions(run.learner, NAMES), [], []
    new_task, stop, begin = write_task(tmp_path, "new", 3), threading.Event(), threading.Barrier(CLIENTS + 1)

    def client(number):
        connection, count = running.client(), 0
        begin.wait()
        try:
            while not stop.is_set() or count < 3:
                path, body, headers, wanted = asked[(number + count) % len(asked)]
                status, content = running.ask(path, body, connection=connection, **headers)
                if status != 200 or logits(content) != wanted:
                    wrong.append((path, status, content[:200]))
                count += 1
                time.sleep(0.1)  # the run is to learn meanwhile, on the same cores
        except Exception as error:
            wrong.append(error)
        connection.close()
        counts.append(count)

    with server(run.folder) as running:
        assert f"2 tasks of {run.folder}, on cpu" in running.line
        threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        begin.wait()
        learnt = subprocess.run(
            [sys.executable, "-m", "bocl", "learn", str(run.folder), str(new_task), "--name", "new"],
            **{"env": SURROUNDINGS, "capture_output": True, "text": True},
        )
        assert learnt.returncode == 0, learnt.stderr
        learner = bocl.load(run.folder, device="cpu")
        path, body, headers, wanted = questions(learner, ["new"])[0]
        status, content = running.ask(path, body, **headers)
        stop.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert len(counts) == CLIENTS
        assert min(counts) >= 3
        assert (status, logits(content)) == (200, wanted)
        assert json.loads(running.ask("/health")[1])["tasks"] == 3
        running.process.send_signal(signal.SIGKILL)
        running.process.wait()

    with server(run.folder) as running, closing(running.client()) as connection:
        for path, body, headers, wanted in questions(learner, [*NAMES, "new"]):
            status, content = running.ask(path, body, connection=connection, **headers)
            assert (status, logits(content)) == (200, wanted)
        running.process.send_signal(signal.SIGINT)  # as Ctrl-C does
        assert running.process.wait(timeout=20) == 0


def test_in_batches_every_client_is_answered_its_own(tmp_path):
    run, wrong, begin = make_run(tmp_path, hidden=20_000), [], threading.Barrier(CLIENTS)
    asked = questions(run.learner, NAMES)

    def client(number):
        begin.wait()
        with closing(running.client()) as connection:
            for count in range(3):
                path, body, headers, wanted = asked[(number + count) % len(asked)]
                spoilt = number % 5 == count
                status, content = running.ask(path, b"[]" if spoilt else body, connection=connection, **headers)
                if spoilt and (status, b"no list 'samples'" in content) == (400, True):
                    continue
                found, expected = np.frombuffer(logits(content), np.float32), np.frombuffer(wanted, np.float32)
                if status != 200 or np.abs(found - expected).max() > 1e-5 * np.abs(expected).max():
                    wrong.append((path, status, content[:200]))

    with server(run.folder, "--batch", "64") as running:
        assert "on cpu, in batches of up to 64 samples; Ctrl-C" in running.line
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(client, range(CLIENTS)))
        assert wrong == []
        health = json.loads(running.ask("/health")[1])
        assert (health["batch"], health["waiting"]) == (64, 0)
        running.process.send_signal(signal.SIGINT)
        assert running.process.wait(timeout=20) == 0


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """A server with tight limits."""
    run = make_run(tmp_path_factory.mktemp("small"))
    with server(run.folder, "--max-bytes", str(1024 * 1024), "--timeout", "1") as running:
        yield running


def trickle(connection, part):
    """Send a little now and then, until the server has hung up."""
    for _ in range(100):
        time.sleep(0.1)
        connection.sendall(part)


HEAD = f"POST {predict_path('top')} HTTP/1.1\r\nHost: a\r\n".encode()


def still_answers(running):
    status, content = running.ask(predict_path("top"), as_json(images(1)[:1]))
    return status == 200 and json.loads(content)["labels"][0] in ("dark", "bright")


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400),  # how TLS begins
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 400_000 + b"\r\n\r\n", 400),
        (b"GET /" + b"a" * 100_000, 400),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400),
        (HEAD + b"Content-Length: 999999999999999\r\n\r\n", 413),
        (HEAD + b"Content-Length: -1\r\n\r\n", 400),
        (HEAD + b"Content-Length: 5\r\n\r\n[[[[[", 400),
        (b"GET /health HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_what_is_malformed_is_refused_in_json(small, sent, status):
    with small.connect(sent) as connection:
        answer = b""
        while b"}" not in answer and (part := connection.recv(65536)):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert [*json.loads(body)] == ["error"]
    assert still_answers(small)


def test_huge_and_slow_clients_take_little_memory_and_no_place(small):
    assert still_answers(small)
    before = small.most_memory()
    chunk = b"10000\r\n" + b"[" * 65536 + b"\r\n"

    def endless(begin):
        """Send without an end, until the server hangs up."""
        sent = 0
        with small.connect(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + begin) as connection:
            try:
                while sent < 500:
                    connection.sendall(chunk)
                    sent += 1
            except OSError:
                pass
            ends.append((sent, received(connection)))

    ends = []
    floods = [threading.Thread(target=endless, args=(begin,)) for begin in [b"", b"6\r\n\x93NUMPY\r\n"] * 10]
    for thread in floods:
        thread.start()
    # Each of these has sent a part of a request, or nothing, and goes on waiting.
    parts = (b"", b"GET / HT", HEAD, HEAD + b"X: 1\r\n", HEAD + b"Content-Length: 100\r\n\r\n[[[")
    slow = [small.connect(part) for part in parts for _ in range(20)]
    for thread in floods:
        thread.join()
    deep = b'{"samples": ' + b"[" * 200_000 + b"]"
    lists = b'{"samples": [' + b"[]," * 80_000 + b"[]]}"
    claims = b"\x93NUMPY\x01\x00" + (b"{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000, 1, 4, 4)}\n")
    for body in (deep, lists, claims[:8] + (len(claims) - 8).to_bytes(2, "little") + claims[8:]):
        status, content = small.ask(predict_path("top"), body)
        assert (status, [*json.loads(content)]) == (400, ["error"])
    trickled = small.connect(HEAD)
    with pytest.raises(OSError):
        trickle(trickled, b"X: 1\r\n")
    trickled.close()
    for connection in slow:
        ends.append((0, received(connection)))  # and then it is closed
        connection.close()
    assert len(ends) == len(floods) + len(slow)
    assert {answer[9:12] for _, answer in ends} <= {b"", b"408", b"413", b"503"}
    assert sum(b"the body did not arrive within 1 seconds" in answer for _, answer in ends) == 20
    assert still_answers(small)
    assert small.most_memory() - before < 48


def test_a_client_that_takes_no_answer_is_dropped(small):
    with small.connect(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 2000) as connection, pytest.raises(OSError):
        trickle(connection, b"G")
    assert still_answers(small)


def test_clients_beyond_the_limit_are_sent_away(small):
    most = Limits().connections
    opened = [small.connect() for _ in range(most)]
    one_more = small.connect()
    assert received(one_more).startswith(b"HTTP/1.1 503 ")
    for connection in [*opened, one_more]:
        assert received(connection) == b""  # they asked for nothing, and were dropped
        connection.close()
    assert still_answers(small)


def test_it_stops_when_it_is_told_to_and_finishes_what_it_accepted(tmp_path):
    run = make_run(tmp_path)
    body, x = as_json(images(1)[:1]), images(1)[:1]
    with server(run.folder) as running, running.connect(), running.connect() as half:
        half.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body[:5])
        time.sleep(0.3)
        running.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        half.sendall(body[5:])
        answer = received(half)
        assert answer.startswith(b"HTTP/1.1 200 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["labels"] == run.predict_labels(x, "top")
        assert running.process.wait(timeout=20) == 0
        assert running.process.stderr.read() == ""


def test_a_port_that_is_taken_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1, port {port}: Address already in use; give"):
            listen("127.0.0.1", port)
