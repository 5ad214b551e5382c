"""Guessed tasks: the tables are what the records say, and the ways to guess are told apart as they should be."""

from __future__ import annotations

import pytest
import torch

import bocl
from bocl.methods.guessing import GuessSettings
from replication.guessing import measure, tables
from replication.tables import filled


@pytest.mark.parametrize("page", tables.PAGES, ids=lambda page: page.stem)
def test_the_tables_of_the_pages_are_what_the_records_say(page):
    text = page.read_text(encoding="utf-8")
    assert filled(text, tables.TABLES) == text, "run `python -m replication.guessing.tables --write`"


@pytest.mark.parametrize("stream", measure.EPOCHS)
def test_every_record_says_what_made_it(stream):
    assert [record["seed"] for record in tables.records(stream)] == list(range(tables.SEEDS))
    for record in tables.records(stream):
        assert record["command"].startswith(f"python -m replication.guessing.measure {stream}")
        assert record["versions"]["commit"]
        assert not record["versions"]["commit"].endswith("-dirty")
        assert record["map"] == "filters"
        assert record["epochs"] == measure.EPOCHS[stream]


def test_what_is_measured_is_what_a_learner_answers():
    stream = bocl.permuted_digits(tasks=2, seed=0)
    learner = bocl.Fixed(bocl.mlp(64, [8]), recipe=bocl.Recipe(epochs=2), device="cpu", guess=GuessSettings("auto"))
    for task in stream:
        learner.learn(task)
    splits = [stream.test_split(index) for index in range(2)]
    found = measure.shares(learner, splits, seed=0)
    named, given, softmax = [], [], []
    for index, split in enumerate(splits):
        named.append((learner.predict_task(split.raw).tasks == index).double().mean().item())
        given.append((learner.predict(split.raw, index).argmax(1) == split.labels).double().mean().item())
        sure = torch.stack([learner.predict_proba(split.raw, task).amax(1) for task in range(2)], 1)
        softmax.append((sure.argmax(1) == index).double().mean().item())
    assert found["named"]["discriminant"] == pytest.approx(sum(named) / 2)
    assert found["task_given"] == pytest.approx(sum(given) / 2)
    assert found["named"]["softmax"] == pytest.approx(sum(softmax) / 2, abs=0.005)
    assert found["named_by_20"]["discriminant"] >= found["named"]["discriminant"] > found["named"]["softmax"]
    assert all(found["accuracy"][way] <= found["named"][way] for way in tables.WAYS)
