"""What the server does with a request, as ASGI has it: seven places, and one clear line for everything else.

A prediction has the bits that ``predict`` gives for the samples of its request, because each is computed by itself: a
product over the rows of two requests has other last bits than one over the rows of each. Whoever gives that up for
speed (``Limits.batch``) has requests computed together that wait for the same task.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TypeVar
from urllib.parse import parse_qs

import numpy as np
from torch import Tensor

from bocl.errors import BoclError, DataError, InputError, did_you_mean
from bocl.methods.method import Learner
from bocl.methods.seen import SeenTask
from bocl.methods.unnamed import predict_unnamed
from bocl.serving.bodies import Bodies, ClientLeft, Receive, Scope, Send, busy
from bocl.serving.limits import Limits
from bocl.serving.line import Line, Question
from bocl.serving.page import page
from bocl.serving.replies import NPY, Refusal, Reply, as_json, error, failed, log
from bocl.serving.samples import read_samples
from bocl.serving.served import ServedRun
from bocl.version import __version__

T = TypeVar("T")

LOOK = 1.0  # seconds between two looks at the run
AT_ONCE = 0.002  # seconds; what takes no longer is answered where it is read, without a thread
AT_ONCE_IN_BATCHES = 0.0002  # seconds; with batches too, because handing over to a thread takes as long
SHORT = 64 * 1024  # bytes of such a request
BEGIN, END = "/tasks/", "/predict"
PLACES = {"/": ("GET",), "/tasks": ("GET",), "/health": ("GET",), "/audit": ("GET", "POST"), END: ("POST",)}


class App:
    """Answers for one run."""

    def __init__(self, run: ServedRun, limits: Limits) -> None:
        self._run = run
        self._limits = limits
        self._bodies = Bodies(limits)
        self._worker = ThreadPoolExecutor(1, "predictions")  # one device, one prediction after the other
        self._beside = ThreadPoolExecutor(2, "beside")  # loads what is new, and audits
        self._line = Line(limits.batch)  # which the worker answers
        self._at_once = AT_ONCE if limits.batch == 1 else AT_ONCE_IN_BATCHES
        self._waiting = 0
        self._looking: asyncio.Future[None] | None = None
        self._auditing: asyncio.Future[Reply] | None = None
        self._last_audit: Reply = as_json({"time": None})
        self._follower: asyncio.Task[None] | None = None
        self._page = page()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; or begin and end with the server."""
        if scope["type"] == "lifespan":
            await self._live(receive, send)
            return
        try:
            reply = await self._answer(scope, receive)
        except ClientLeft:
            return
        except Exception as failure:
            reply = failed(failure)
        with suppress(OSError):
            await send({"type": "http.response.start", "status": reply.status, "headers": reply.all_headers})
            await send({"type": "http.response.body", "body": reply.body})

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._follower = asyncio.create_task(self._follow())
            elif self._follower is not None:
                self._follower.cancel()
                self._worker.shutdown(wait=False, cancel_futures=True)
                self._beside.shutdown(wait=False, cancel_futures=True)
            await send({"type": f"{message['type']}.complete"})
            if message["type"] == "lifespan.shutdown":
                return

    async def _follow(self) -> None:
        while True:
            await asyncio.sleep(LOOK)
            try:
                await self._look()
            except Exception:
                log.exception("the run could not be looked at")

    async def _look(self) -> None:
        """Take what the run has learnt since; who asks meanwhile waits for the same look."""
        if self._looking is None or self._looking.done():
            self._looking = _in(self._beside, self._run.look)
        await asyncio.shield(self._looking)

    async def _answer(self, scope: Scope, receive: Receive) -> Reply:
        path, method = scope["path"], scope["method"]
        predicts = path.startswith(BEGIN) and path.endswith(END) and len(path) > len(BEGIN + END)
        allowed = ("POST",) if predicts else PLACES.get(path)
        if allowed is None:
            places = "GET /, /tasks, /health, /audit; POST /tasks/NAME/predict, /predict, /audit"
            raise Refusal(404, f"there is nothing at {path}; there is {places}")
        method = "GET" if method == "HEAD" else method
        if method not in allowed:
            raise Refusal(405, f"{path} takes {' and '.join(allowed)}, not {method}", ("allow", ", ".join(allowed)))
        if predicts:
            return await self._predict(path[len(BEGIN) : -len(END)], scope, receive)
        if path == END:
            return await self._predict_unnamed(scope, receive)
        if path == "/audit":
            return await self._audit() if method == "POST" else self._last_audit
        if path == "/tasks":
            return as_json({"tasks": self._run.served.describe()})
        return self._page if path == "/" else self._health()

    def _health(self) -> Reply:
        served, trouble = self._run.served, self._run.trouble
        facts = {
            "status": "behind" if trouble else "ok",  # it answers; what the run has learnt since is not served
            "trouble": trouble,
            "run": str(self._run.folder),
            "tasks": len(served.learner.seen),
            "device": str(served.learner.device),
            "head": served.head,
            "waiting": self._waiting,
            "batch": self._limits.batch,
            "bocl": __version__,
        }
        return as_json(facts)

    async def _audit(self) -> Reply:
        if self._auditing is None or self._auditing.done():
            self._auditing = _in(self._beside, partial(_audited, self._run))
        self._last_audit = await asyncio.shield(self._auditing)
        return self._last_audit

    async def _predict(self, name: str, scope: Scope, receive: Receive) -> Reply:
        served = self._run.served
        if name not in served.numbers:  # perhaps the run has just learnt it
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look(), self._limits.seconds)
            served = self._run.served
        if name not in served.numbers:
            names = [about.name for about in served.learner.seen]
            raise Refusal(404, f"no task '{name}' has been learnt{did_you_mean(name, names)}")
        number = served.numbers[name]
        to_reply = partial(_reply, served.learner.seen[number], _form(scope))
        body = await self._bodies.read(scope, receive)
        try:
            question = Question(served.learner, number, body, self._limits.samples, to_reply)
            if len(body) <= SHORT and served.costs[number].seconds(len(question.samples)) <= self._at_once:
                return question.reply()
            with self._place():
                self._line.join(question)
                self._worker.submit(self._line.answer_next)
                return await asyncio.shield(asyncio.wrap_future(question.answer))
        finally:
            self._bodies.release(body)

    async def _predict_unnamed(self, scope: Scope, receive: Receive) -> Reply:
        """Answer samples that come without a task."""
        learner = self._run.served.learner
        if learner.discriminant is None:
            why = "the run keeps nothing to guess tasks by (guess.map); ask for a task, at /tasks/NAME/predict"
            raise Refusal(400, why)
        together = _asked(scope, "together")
        body = await self._bodies.read(scope, receive)
        try:
            with self._place():
                answer = partial(_guess_and_answer, learner, body, together, self._limits.samples)
                return await _in(self._worker, answer)
        finally:
            self._bodies.release(body)

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Count a prediction that waits, as long as it does."""
        if self._waiting >= self._limits.waiting:
            raise busy(f"{self._waiting} predictions wait already")
        self._waiting += 1
        try:
            yield
        finally:
            self._waiting -= 1


def _in(place: ThreadPoolExecutor, work: Callable[[], T]) -> asyncio.Future[T]:
    return asyncio.get_running_loop().run_in_executor(place, work)


def _audited(run: ServedRun) -> Reply:
    """Audit a run, and say when that was."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    try:
        return as_json({"time": now, "ok": True, **run.audit()})
    except InputError as mistake:
        return error(400, str(mistake))
    except BoclError as drift:
        return as_json({"time": now, "ok": False, "error": str(drift)})


def _form(scope: Scope) -> str:
    """Return how an answer is wanted: npy, or json with or without logits."""
    accept = next((value for name, value in scope["headers"] if name == b"accept"), b"").decode("latin-1")
    if any(kind in accept for kind in (NPY, "application/octet-stream")):
        return "npy"
    return "json+logits" if _asked(scope, "logits") else "json"


def _asked(scope: Scope, name: str) -> bool:
    """Whether the address ends with ?NAME=true."""
    query = scope["query_string"].decode("latin-1")
    asked = parse_qs(query, keep_blank_values=True)
    if query and asked not in ({name: ["true"]}, {name: ["false"]}):
        raise Refusal(400, f"the address ends with ?{query}; it may with ?{name}=true")
    return asked.get(name) == ["true"]


def _reply(about: SeenTask, form: str, logits: Tensor) -> Reply:
    """Answer with the logits (n, classes) of one request."""
    if form == "npy":
        return _as_npy(logits)
    labels = about.class_labels
    found = {
        "task": about.name,
        "labels": [labels[place] for place in logits.argmax(dim=1).tolist()],
        "probabilities": logits.softmax(dim=1).tolist(),
    }
    if form == "json+logits":
        found["logits"] = logits.tolist()
    try:
        return as_json(found)
    except ValueError as mistake:
        raise DataError("the answer is not finite, so the samples are far from what was learnt") from mistake


def _guess_and_answer(learner: Learner, body: bytes, together: bool, most: int) -> Reply:
    """Guess the task of every sample of one request, and predict with its network."""
    samples = read_samples(body, learner.seen[0], most)
    guess, logits = predict_unnamed(learner, samples, together=together)
    tasks, best = guess.tasks.tolist(), logits.argmax(dim=1).tolist() if len(logits) else []
    found = {
        "tasks": [learner.seen[task].name for task in tasks],
        "task_probabilities": guess.probabilities.tolist(),
        "labels": [learner.seen[task].class_labels[place] for task, place in zip(tasks, best, strict=True)],
    }
    return as_json(found)


def _as_npy(logits: Tensor) -> Reply:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, logits.numpy(), allow_pickle=False)
    return Reply(stream.getvalue(), NPY)
