"""The line of requests that wait for a prediction: the first is computed next, with those behind it that may join it.

Requests that join are for one task of one learner. Each is read and checked by itself, then one pass through the
network serves them all. A request that nobody joins is computed as ``predict`` computes it.
"""

from __future__ import annotations

from asyncio import Future
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import torch
from torch import Tensor

from bocl.methods.method import Learner
from bocl.methods.seen import check_inputs
from bocl.serving.replies import Reply, failed, log
from bocl.serving.samples import read_samples


@dataclass(eq=False, slots=True)
class Question:
    """A request for a prediction.

    most    samples that it may have
    reply   turns their logits (n, classes) into an answer
    answer  that answer, or what is wrong
    """

    learner: Learner
    task: int
    body: bytes
    most: int
    reply: Callable[[Tensor], Reply]
    answer: Future[Reply]
    _samples: Any = None
    _inputs: Tensor | None = None

    def samples(self) -> Any:
        """Return its samples as they came, read when they are first wanted."""
        if self._samples is None:
            self._samples = read_samples(self.body, self.learner.seen[self.task], self.most)
        return self._samples

    def inputs(self) -> Tensor:
        """Return its samples as the network sees them, checked when they are first wanted."""
        if self._inputs is None:
            learner = self.learner
            self._inputs = check_inputs(self.samples(), self.task, learner.seen, learner.device, learner.text)
        return self._inputs

    def may_join(self, other: Question) -> bool:
        """Whether one pass may serve both: the shapes of texts, which are cut down to the longest, may differ."""
        same_network = (self.learner, self.task) == (other.learner, other.task)
        return same_network and self.inputs().shape[1:] == other.inputs().shape[1:]


class Line:
    """Questions in the order they came, of which one thread answers.

    most  samples of several questions that are computed in one pass; with 1, every question is computed by itself
    tell  sets an answer, in that thread
    """

    def __init__(self, most: int, tell: Callable[[Future[Reply], Reply], None]) -> None:
        self._most = most
        self._tell = tell
        self._coming: SimpleQueue[Question] = SimpleQueue()
        self._waiting: list[Question] = []  # only the thread that answers reads or changes it

    def join(self, question: Question) -> None:
        """Put a question at the end, from any thread; call ``answer_next`` once for each."""
        self._coming.put(question)

    def answer_next(self) -> None:
        """Answer the first that waits, if any does, and those that may join it."""
        while not self._coming.empty():
            self._waiting.append(self._coming.get())
        questions = self._taken()
        parts: Sequence[Tensor] = ()
        if len(questions) > 1:
            try:
                parts = _logits(questions)
            except Exception:
                log.exception("requests could not be computed together; each is computed by itself")
        for place, question in enumerate(questions):
            try:
                reply = question.reply(parts[place] if parts else _logits([question])[0])
            except Exception as failure:
                reply = failed(failure)
            self._tell(question.answer, reply)

    def _taken(self) -> list[Question]:
        """Take the first question and those that join it; answer those before or among them that are wrong."""
        taken: list[Question] = []
        samples = 0
        for question in tuple(self._waiting):
            try:
                if taken and not question.may_join(taken[0]):
                    continue
                samples += len(question.inputs())
            except Exception as failure:
                self._waiting.remove(question)
                self._tell(question.answer, failed(failure))
                continue
            if taken and samples > self._most:
                break
            self._waiting.remove(question)
            taken.append(question)
            if samples >= self._most:
                break
        return taken


def _logits(questions: list[Question]) -> Sequence[Tensor]:
    """Return the logits of each question, (n, classes), all from one pass."""
    learner, task = questions[0].learner, questions[0].task
    inputs = [question.inputs() for question in questions]
    if len(inputs) == 1:  # as it is, so that it has the bits of predict
        return [learner.logits(inputs[0], task).cpu()]
    parts: Sequence[Tensor] = learner.logits(torch.cat(inputs), task).cpu().split([*map(len, inputs)])
    return parts
