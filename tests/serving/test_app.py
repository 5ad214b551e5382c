"""What is answered to a request, without a server around it."""

from __future__ import annotations

import asyncio
import io
import json
import threading
from dataclasses import replace
from unittest import mock

import numpy as np
import pytest
from serving_examples import NAMES, as_json, as_npy, ask, asked, images, make_run, write_task

import bocl
from bocl.methods.method import Learner
from bocl.serving.app import App
from bocl.serving.limits import Limits
from bocl.serving.served import Cost, ServedRun

ODD, PLAIN = NAMES


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("served"))


@pytest.fixture
def served(run):
    return ServedRun(run.folder, device="cpu")


@pytest.fixture
def app(served):
    return App(served, Limits(body=64 * 1024, samples=50))


def told(answer):
    status, headers, body = answer
    assert headers["content-type"] == "application/json"
    assert int(headers["content-length"]) == len(body)
    assert body.endswith(b"}\n"), "a shell's next prompt has a line of its own"
    return status, json.loads(body)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("form", [as_json, as_npy])
@pytest.mark.parametrize("rows", [0, 1, 7, 50])
def test_answers_have_the_bits_of_predict(app, run, name, form, rows):
    x = images(7)[:rows]
    logits = run.predict(x, name)
    path = f"/tasks/{name}/predict"
    status, found = told(ask(app, "POST", path, form(x), query="logits=true"))
    assert status == 200
    assert found["labels"] == run.predict_labels(x, name)
    assert np.float32(found["logits"]).tobytes() == logits.numpy().tobytes()
    assert np.float32(found["probabilities"]).tobytes() == run.predict_proba(x, name).numpy().tobytes()
    status, headers, body = ask(app, "POST", path, form(x), headers=[("Accept", "application/x-npy")])
    assert (status, headers["content-type"]) == (200, "application/x-npy")
    assert np.load(io.BytesIO(body), allow_pickle=False).tobytes() == logits.numpy().tobytes()


def test_a_thread_gives_the_same_bits(app, served, run):
    served.served = replace(served.served, costs=(Cost(1.0, 0.0),) * 2)  # too long for the event loop
    _, found = told(ask(app, "POST", f"/tasks/{PLAIN}/predict", as_npy(images(7)), query="logits=true"))
    assert found == {"error": "the request holds 60 samples; send at most 50 at once"}
    _, found = told(ask(app, "POST", f"/tasks/{PLAIN}/predict", as_npy(images(7)[:9]), query="logits=true"))
    assert np.float32(found["logits"]).tobytes() == run.predict(images(7)[:9], PLAIN).numpy().tobytes()


@pytest.mark.parametrize(
    ("batch", "seconds", "waits"),
    [(1, 0.001, False), (1, 1.0, True), (64, 0.0001, False), (64, 0.001, True), (64, 1.0, True)],
)
def test_requests_that_wait_share_a_pass_if_they_may(served, run, batch, seconds, waits):
    served.served = replace(served.served, costs=(Cost(seconds, 0.0),) * 2)
    app, x = App(served, Limits(batch=batch)), images(7)[:30].reshape(10, 3, *images(7).shape[1:])
    requests = [(NAMES[place % 2], as_npy(samples), samples) for place, samples in enumerate(x)]
    requests.insert(5, (PLAIN, b"[]", None))

    async def all_at_once():
        free = threading.Event()
        app._worker.submit(free.wait)
        asks = [
            asyncio.create_task(asked(app, "POST", f"/tasks/{name}/predict", body, query="logits=true"))
            for name, body, _ in requests
        ]
        while waits and app._waiting < len(x):
            await asyncio.sleep(0)
        free.set()
        return await asyncio.gather(*asks)

    with mock.patch.object(Learner, "logits", autospec=True, side_effect=Learner.logits) as passes:
        answers = asyncio.run(all_at_once())
    assert [len(call.args[1]) for call in passes.call_args_list] == ([15, 15] if batch > 1 and waits else [3] * 10)
    for (name, _, samples), answer in zip(requests, answers, strict=True):
        status, found = told(answer)
        if samples is None:
            assert (status, "no list 'samples'" in found["error"]) == (400, True)
            continue
        wanted = run.predict(samples, name).numpy()
        if batch == 1 or not waits:
            assert np.float32(found["logits"]).tobytes() == wanted.tobytes()
        np.testing.assert_allclose(found["logits"], wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())
    assert (app._waiting, app._bodies.held) == (0, 0)


@pytest.mark.parametrize("together", [False, True])
def test_without_a_task_it_is_guessed(together, tmp_path):
    run = make_run(tmp_path, guess=bocl.GuessSettings("auto"))
    guessing, x = App(ServedRun(run.folder, device="cpu"), Limits()), images(7)[:9]
    status, found = told(ask(guessing, "POST", "/predict", as_npy(x), query="together=true" if together else ""))
    guess = run.learner.predict_task(x, together=together)
    assert status == 200
    assert found["tasks"] == list(guess.names)
    assert found["labels"] == run.learner.predict_labels(x, together=together)
    assert found["task_probabilities"] == guess.probabilities.tolist()


def test_a_run_that_keeps_nothing_to_guess_by_says_so(app):
    status, found = told(ask(app, "POST", "/predict", as_json(images(7)[:2])))
    assert status == 400
    assert "keeps nothing to guess tasks by (guess.map); ask for a task, at /tasks/NAME/predict" in found["error"]


def test_a_task_may_be_named_by_its_number(app, run):
    _, found = told(ask(app, "POST", "/tasks/2/predict", as_json(images(7)[:2])))
    assert found["task"] == PLAIN
    assert found["labels"] == run.predict_labels(images(7)[:2], PLAIN)


def test_tasks_and_health(app, run):
    _, found = told(ask(app, "GET", "/tasks"))
    first = {"name": ODD, "classes": ["bright", "dark"], "samples": "bytes", "shape": [1, 4, 4], "columns": []}
    assert found["tasks"][0] == {**first, "accuracy": run.records[-1].row[0]}
    _, found = told(ask(app, "GET", "/health"))
    assert (found["status"], found["tasks"], found["trouble"], found["device"]) == ("ok", 2, "", "cpu")
    assert found["head"] == run.audit().head
    assert (found["waiting"], found["batch"]) == (0, 1)


def test_health_says_how_large_batches_are(served):
    assert told(ask(App(served, Limits(batch=64)), "GET", "/health"))[1]["batch"] == 64


def test_an_audit_is_made_when_it_is_asked_for(app, run):
    assert told(ask(app, "GET", "/audit")) == (200, {"time": None})
    status, found = told(ask(app, "POST", "/audit"))
    assert (status, found["ok"], found["head"]) == (200, True, run.audit().head)
    assert [task["canaries"] for task in found["tasks"]] == [0.0, 0.0]
    assert told(ask(app, "GET", "/audit")) == (200, found)


def test_an_audit_looks_at_what_answers(app, served):
    compact = served.served.learner.network.tasks[0]
    compact.weights["head/bias"] += 1e-6
    _, found = told(ask(app, "POST", "/audit"))
    assert not found["ok"]
    assert "task 1, 'left/right': tensor compact/head/bias is not the one recorded" in found["error"]


def test_a_saved_model_is_served_too(run, tmp_path):
    run.learner.save(tmp_path / "model")
    app = App(ServedRun(tmp_path / "model", device="cpu"), Limits())
    _, found = told(ask(app, "POST", f"/tasks/{PLAIN}/predict", as_json(images(7)[:2])))
    assert found["labels"] == run.predict_labels(images(7)[:2], PLAIN)
    assert told(ask(app, "GET", "/tasks"))[1]["tasks"][0]["accuracy"] is None
    status, found = told(ask(app, "POST", "/audit"))
    assert (status, "has no records to audit" in found["error"]) == (400, True)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "said"),
    [
        ("GET", "/nothing", b"", 404, "there is nothing at /nothing"),
        ("GET", "/tasks/top/predict", b"", 405, "takes POST, not GET"),
        ("DELETE", "/tasks", b"", 405, "takes GET, not DELETE"),
        ("POST", "/tasks/tpo/predict", b"", 404, "no task 'tpo' has been learnt (did you mean 'top'?)"),
        ("POST", "/tasks/3/predict", b"", 404, "no task '3' has been learnt"),
        ("POST", "/tasks/\x1b[2J/predict", b"", 404, "no task '\\x1b[2J'"),
        ("POST", "/tasks/top/predict", b"{}", 400, "no list 'samples'"),
        ("POST", "/tasks/top/predict", b'{"samples": [[1, 2]]}', 400, "takes samples of shape (1, 4, 4)"),
        ("POST", "/tasks/top/predict", as_npy(np.full((1, 1, 4, 4), np.nan, np.float32)), 400, "not finite"),
        ("POST", "/tasks/top/predict", b" " * 16385, 413, "more than 16,384 bytes of JSON"),
        ("POST", "/tasks/top/predict", b"\x93NUMPY" + b" " * 65536, 413, "more than 65,536 bytes"),
    ],
)
def test_a_mistake_is_told_in_one_line(app, method, path, body, status, said):
    found, answer = told(ask(app, method, path, body))
    assert (found, [*answer]) == (status, ["error"])
    assert said in answer["error"]
    assert answer["error"].isprintable()


def test_what_is_said_to_be_long_is_not_read(app):
    headers = [("Content-Length", "65537")]
    status, found = told(ask(app, "POST", "/tasks/top/predict", headers=headers, pause=60))
    assert (status, found["error"]) == (413, "the body has more than 65,536 bytes; send fewer samples at once")


def test_bodies_are_bounded_together(app):
    app._bodies.held = 4 * 64 * 1024
    status, headers, body = ask(app, "POST", "/tasks/top/predict", as_json(images(7)[:2]))
    assert (status, headers["retry-after"]) == (503, "1")
    app._bodies.held = 0
    for body in (as_json(images(7)[:2]), b"wrong", b" " * 20_000):
        ask(app, "POST", "/tasks/top/predict", body)
    assert app._bodies.held == 0  # given back, whatever was answered


@pytest.mark.parametrize("batch", [1, 64])
def test_waiting_predictions_are_bounded(served, batch):
    served.served = replace(served.served, costs=(Cost(1.0, 0.0),) * 2)
    app = App(served, Limits(waiting=0, batch=batch))
    status, headers, body = ask(app, "POST", "/tasks/top/predict", as_json(images(7)[:2]))
    assert (status, headers["retry-after"]) == (503, "1")
    assert json.loads(body)["error"] == "0 predictions wait already; try again"


def test_an_unknown_query_is_refused(app):
    status, found = told(ask(app, "POST", "/tasks/top/predict", as_json(images(7)[:2]), query="logit=true"))
    assert (status, "it may with ?logits=true" in found["error"]) == (400, True)


def test_the_page_may_only_use_what_is_in_it(app):
    status, headers, body = ask(app, "GET", "/")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert "default-src 'none'" in headers["content-security-policy"]
    assert "unsafe" not in headers["content-security-policy"]
    assert not any(word in body for word in (b"http://", b"https://", b"innerHTML", b" style="))


# A run that grows.


@pytest.fixture
def growing(tmp_path):
    run = make_run(tmp_path)
    return tmp_path, run, ServedRun(run.folder, device="cpu")


def test_a_task_learnt_meanwhile_is_answered_at_once(growing):
    folder, run, served = growing
    app, before = App(served, Limits()), run.predict(images(7), PLAIN)
    assert told(ask(app, "POST", "/tasks/new/predict", as_npy(images(7)[:2])))[0] == 404
    run.learn_file(write_task(folder, "new", 3), "new")
    _, found = told(ask(app, "POST", "/tasks/new/predict", as_npy(images(7)[:2])))
    assert found["labels"] == bocl.load(run.folder).predict_labels(images(7)[:2], "new")
    assert served.served.learner.predict(images(7), PLAIN).numpy().tobytes() == before.numpy().tobytes()


@pytest.mark.parametrize("damage", ["weights", "canaries", "journal", "gone", "another"])
def test_what_is_damaged_does_not_answer(growing, damage, tmp_path_factory):
    folder, run, served = growing
    old = served.served
    run.learn_file(write_task(folder, "new", 3), "new")
    journal = run.folder / "journal.jsonl"
    if damage in ("weights", "canaries"):
        pattern = {"weights": "checkpoints/task-03/weights-*", "canaries": "canaries/task-03*"}[damage]
        (place,) = run.folder.glob(pattern)
        whole = place.read_bytes()
        place.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    elif damage == "journal":
        journal.write_bytes(journal.read_bytes().replace(b'"name":"top"', b'"name":"pot"'))
    elif damage == "gone":
        journal.unlink()
    else:
        journal.write_bytes((make_run(tmp_path_factory.mktemp("other")).folder / "journal.jsonl").read_bytes())
    served.look()
    assert served.served is old
    assert served.trouble
    status, found = told(ask(App(served, Limits()), "GET", "/health"))
    assert (status, found["status"], found["trouble"]) == (200, "behind", served.trouble)
    if damage == "weights":
        place.write_bytes(whole)
        served._retry = 0.0  # the time to try again has come
        served.look()
        assert (served.trouble, len(served.served.learner.seen)) == ("", 3)


def test_rounds_of_a_task_that_is_not_finished_change_nothing(growing):
    _, run, served = growing
    old = served.served
    with (run.folder / "journal.jsonl").open("ab") as journal:
        journal.write(b'{"before":"')  # a line that is being written
    served.look()
    assert (served.served is old, served.trouble) == (True, "")
