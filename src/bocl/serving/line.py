"""The line of requests that wait for a prediction: the first is computed next, with those behind it that may join it.

Requests that join are for one task of one learner. Each is read and checked by itself, then one pass through the
network serves them all. A request that nobody joins is computed as ``predict`` computes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from bocl.methods.method import Learner
from bocl.methods.seen import check_inputs
from bocl.serving.replies import Reply, failed, log
from bocl.serving.samples import read_samples


@dataclass(eq=False)
class Question:
    """A request for a prediction.

    most      samples that it may have
    to_reply  turns their logits (n, classes) into an answer
    answer    that answer, or what is wrong
    """

    learner: Learner
    task: int
    body: bytes
    most: int
    to_reply: Callable[[Tensor], Reply]
    answer: Future[Reply] = field(default_factory=Future)

    @cached_property
    def samples(self) -> Any:
        """Its samples as they came, (n, *shape)."""
        return read_samples(self.body, self.learner.seen[self.task], self.most)

    @cached_property
    def inputs(self) -> Tensor:
        """Its samples as the network sees them, checked."""
        return check_inputs(self.samples, self.task, self.learner.seen, self.learner.device, self.learner.text)

    def reply(self) -> Reply:
        """Answer by itself, with the bits of ``predict``."""
        return self.to_reply(self.learner.logits(self.inputs, self.task).cpu())

    def may_join(self, other: Question) -> bool:
        """Whether one pass may serve both: the shapes of texts, which are cut down to the longest, may differ."""
        same_network = (self.learner, self.task) == (other.learner, other.task)
        return same_network and self.inputs.shape[1:] == other.inputs.shape[1:]


class Line:
    """Questions in the order they came, of which one thread answers.

    most  samples of several questions that are computed in one pass; with 1, every question is computed by itself
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._waiting: deque[Question] = deque()

    def join(self, question: Question) -> None:
        """Put a question at the end, from any thread; call ``answer_next`` once for each."""
        self._waiting.append(question)

    def answer_next(self) -> None:
        """Answer the first that waits, if any does, and those that may join it."""
        questions = self._take()
        parts: Sequence[Tensor | None] = [None] * len(questions)
        if len(questions) > 1:
            try:
                parts = _logits_together(questions)
            except Exception:
                log.exception("requests could not be computed together; each is computed by itself")
        for question, logits in zip(questions, parts, strict=True):
            try:
                reply = question.reply() if logits is None else question.to_reply(logits)
            except Exception as failure:
                reply = failed(failure)
            question.answer.set_result(reply)

    def _take(self) -> list[Question]:
        """Take the first question and those that join it; answer those among them that are wrong."""
        taken: list[Question] = []
        others: list[Question] = []
        samples = 0
        while self._waiting and samples < self._most:
            question = self._waiting.popleft()
            try:
                if taken and not question.may_join(taken[0]):
                    others.append(question)
                    continue
                samples += len(question.inputs)
            except Exception as failure:
                question.answer.set_result(failed(failure))
                continue
            (others if taken and samples > self._most else taken).append(question)
        self._waiting.extendleft(reversed(others))
        return taken


def _logits_together(questions: list[Question]) -> Sequence[Tensor]:
    """Return the logits of each question, (n, classes), all from one pass."""
    inputs = [question.inputs for question in questions]
    logits = questions[0].learner.logits(torch.cat(inputs), questions[0].task).cpu()
    parts: Sequence[Tensor] = logits.split([*map(len, inputs)])
    return parts
