"""Requests that are computed together, without a server: which join, what each is answered, and what goes wrong."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch
from serving_examples import as_json, as_npy

from bocl.methods.method import Learner
from bocl.serving.line import Line, Question
from bocl.serving.replies import Reply

sys.path.append(str(Path(__file__).parents[1] / "methods"))
from exporting_examples import adapted, fixed, samples_for
from network_examples import NETWORKS

WITHIN = 1e-5  # of the largest logit


@pytest.fixture(scope="module")
def learner():
    return fixed(NETWORKS["mlp"]())


def as_reply(logits):
    return Reply(as_npy(logits.numpy()))


class Waiting:
    """Questions in a line, and the passes that answer them."""

    def __init__(self, most):
        self.line = Line(most)
        self.asked = []

    def ask(self, learner, x, task=0, reply=as_reply):
        """Wait with samples, or with bytes that are none; return the place of what is answered."""
        body = x if isinstance(x, bytes) else as_npy(np.asarray(x))
        self.asked.append(Question(learner, task, body, 1000, reply))
        self.line.join(self.asked[-1])
        return self.asked[-1].answer

    def answered(self):
        """Answer as often as was asked; return how many samples each pass had."""
        with mock.patch.object(Learner, "logits", autospec=True, side_effect=Learner.logits) as passes:
            for _ in self.asked:
                self.line.answer_next()
        assert all(question.answer.done() for question in self.asked)
        return [len(inputs) for (_, inputs, _), _ in passes.call_args_list]


def read(answer):
    return torch.from_numpy(np.load(io.BytesIO(answer.result().body), allow_pickle=False))


def check(answers, learner, x, task=0):
    """Every answer has the logits of its own samples, but for rounding."""
    for answer, samples in zip(answers, x, strict=True):
        wanted = learner.predict(samples, task)
        assert read(answer).shape == wanted.shape
        assert (read(answer) - wanted).abs().max() <= WITHIN * wanted.abs().max()


def same_bits(answer, wanted):
    return read(answer).numpy().tobytes() == wanted.numpy().tobytes()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind", ["float32", "uint8"])
def test_one_pass_answers_all_that_wait(name, kind):
    learner, waiting = fixed(NETWORKS[name](), kind, tasks=2), Waiting(64)
    x = samples_for(learner, 1, 16, kind).split([1, 4, 2, 9])
    answers = [waiting.ask(learner, samples, 1) for samples in x]
    assert waiting.answered() == [16]
    check(answers, learner, x, 1)


def test_texts_join_those_of_their_length():
    learner, waiting = adapted("text"), Waiting(64)
    ids = samples_for(learner, 0, 30).sort(1, descending=True).values
    ids = ids[(ids > 0).sum(1).argsort()]  # the shortest first; 12 columns become 8 or stay
    short = int(((ids > 0).sum(1) <= 8).sum())
    answers = [waiting.ask(learner, row[None]) for row in ids]
    assert waiting.answered() == [short, 30 - short]
    check(answers, learner, ids.split(1))


@pytest.mark.parametrize("most", [1, 64])
def test_alone_a_request_has_the_bits_of_predict(learner, most):
    for rows in (0, 1, 7):
        waiting, x = Waiting(most), samples_for(learner, 2, rows)
        answer = waiting.ask(learner, x, 2)
        assert waiting.answered() == [rows]
        assert same_bits(answer, learner.predict(x, 2))


def test_with_batches_of_one_none_join(learner):
    waiting, x = Waiting(1), samples_for(learner, 0, 12).split([1, 1, 3, 7])
    answers = [waiting.ask(learner, samples) for samples in x]
    assert waiting.answered() == [1, 1, 3, 7]
    assert all(same_bits(answer, learner.predict(samples, 0)) for answer, samples in zip(answers, x, strict=True))


def test_a_pass_has_no_more_samples_than_it_may_and_none_is_overtaken(learner):
    waiting, x = Waiting(8), samples_for(learner, 0, 33).split([3, 4, 2, 1, 20, 1, 2])
    answers = [waiting.ask(learner, samples) for samples in x]
    assert waiting.answered() == [7, 3, 20, 3]  # what has more than eight samples comes alone
    check(answers, learner, x)


def test_the_first_that_waits_is_answered_first_whatever_its_task(learner):
    waiting, x = Waiting(8), samples_for(learner, 0, 1)
    order = [waiting.ask(learner, x, task) for task in (0, 1, 0, 2, 1, 0)]
    for answered in (3, 5, 6):
        waiting.line.answer_next()
        assert sum(answer.done() for answer in order) == answered
    for answer, task in zip(order, (0, 1, 0, 2, 1, 0), strict=True):
        check([answer], learner, [x], task)


def test_an_older_learner_answers_what_it_was_asked(learner):
    newer, waiting, x = fixed(NETWORKS["mlp"](), tasks=1), Waiting(8), samples_for(learner, 0, 2)
    answers = [waiting.ask(each, x) for each in (learner, newer, learner)]
    assert waiting.answered() == [4, 2]
    check(answers[::2], learner, [x, x])
    assert same_bits(answers[1], newer.predict(x, 0))


def test_wrong_requests_spoil_no_others(learner):
    good, waiting = samples_for(learner, 0, 9).split([2, 3, 4]), Waiting(64)
    wrong = {
        b"nonsense": "the body is not JSON",
        as_json(np.zeros((1, 3))): "takes samples of shape (2, 6, 6)",
        as_npy(np.full((1, 2, 6, 6), np.nan, np.float32)): "not finite",
        as_npy(np.zeros((1, 2, 6, 6), np.uint8)): "learnt from floats",
        as_npy(np.zeros((1001, 2, 6, 6), np.float32)): "send at most 1000 at once",
    }
    bodies = iter(wrong)
    refused = [waiting.ask(learner, next(bodies))]
    answers = []
    for samples in good:
        answers.append(waiting.ask(learner, samples))
        refused.append(waiting.ask(learner, next(bodies)))
    refused.append(waiting.ask(learner, next(bodies)))
    assert waiting.answered() == [9]
    check(answers, learner, good)
    for answer, said in zip(refused, wrong.values(), strict=True):
        assert answer.result().status == 400
        assert said in json.loads(answer.result().body)["error"]


def test_an_answer_that_cannot_be_told_spoils_no_others(learner):
    def breaks(_logits):
        raise OverflowError

    waiting, x = Waiting(64), samples_for(learner, 0, 6).split(2)
    answers = [waiting.ask(learner, x[place], reply=(as_reply, breaks, as_reply)[place]) for place in range(3)]
    assert waiting.answered() == [6]
    check(answers[::2], learner, x[::2])
    assert answers[1].result().status == 500


def test_what_cannot_be_computed_together_is_computed_one_by_one(learner, monkeypatch, caplog):
    def with_little_memory(inputs, task, logits=learner.logits):
        if len(inputs) > 3:
            raise torch.OutOfMemoryError
        return logits(inputs, task)

    waiting, x = Waiting(64), samples_for(learner, 0, 9).split([2, 4, 3])
    answers = [waiting.ask(learner, samples) for samples in x]
    monkeypatch.setattr(learner, "logits", with_little_memory, raising=False)
    waiting.line.answer_next()
    assert [answer.result().status for answer in answers] == [200, 500, 200]
    assert all(same_bits(answers[place], learner.predict(x[place], 0)) for place in (0, 2))
    assert [record.message for record in caplog.records] == [
        "requests could not be computed together; each is computed by itself",
        "a request failed",
    ]
