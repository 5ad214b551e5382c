"""Tasks that are unlike: constants of a search's size, sizes within a total, and the tables made from records."""

from __future__ import annotations

import itertools
import math
from statistics import fmean
from types import SimpleNamespace

import pytest
import torch

from bocl.experiment.build import build_base, build_method
from bocl.experiment.study import jobs, load_study
from bocl.settings import to_plain
from bocl.tasks.arrays import from_arrays
from replication.tables import filled
from replication.unequal import sizes, tables

CLASSES = [7, 26, 2, 10]
SEARCHES = load_study(str(sizes.HERE / "studies" / "searches.toml"))


def config_of(name):
    (job,) = jobs([SEARCHES], names=[name], seeds=[0])
    return job.config


def test_the_tables_of_the_page_are_what_the_records_say():
    text = tables.PAGE.read_text(encoding="utf-8")
    assert filled(text, tables.tables()) == text, "run `python -m replication.unequal.tables --write`"


def test_the_constants_are_made_from_the_records():
    runs = [run for by_seed in tables.runs().values() for run in by_seed.values()]
    for place, searches in sizes.STUDIES.items():
        assert place.read_text(encoding="utf-8") == sizes.study(runs, sizes.classes_of(runs), searches)


def test_the_recipe_is_the_best_that_was_tried():
    tried = {name: by_seed[100] for name, by_seed in tables.runs().items() if name.startswith("recipe-")}
    best = max(tried.values(), key=lambda run: fmean(run.tasks[-1].validation_row))
    assert best.config["recipe"] == to_plain(config_of("bocl"))["recipe"]


def test_what_constants_store_is_what_a_learner_stores():
    config = config_of("front-16")
    learner = build_method(config, build_base(config), "cpu")
    for task in from_arrays([(torch.randn(6 * each, 64), torch.arange(6 * each) % each) for each in CLASSES]):
        learner.learn(task)
    assert sum(learner.parameters().values()) == sizes.stored((16, 8), CLASSES)


def test_a_shape_is_scaled_in_its_proportions():
    assert sizes.scaled((2, 1), sizes.stored((20, 10), CLASSES), CLASSES) == (20, 10)
    wide, narrow = sizes.scaled((30, 10), sizes.stored((20, 10), CLASSES), CLASSES)
    assert wide == pytest.approx(3 * narrow, abs=2)
    assert sizes.stored((wide, narrow), CLASSES) == pytest.approx(sizes.stored((20, 10), CLASSES), rel=0.05)


def test_what_a_constant_needs_lies_between_two_sizes(monkeypatch):
    def run(accuracy, stored):
        return SimpleNamespace(seed=3, figures=lambda: {"accuracy": accuracy}, tasks=[SimpleNamespace(stored=stored)])

    levels = zip(tables.SIZES, (0.5, 0.7, 0.8, 0.9), (10, 100, 1000, 10_000), strict=True)
    front = {size: {3: run(accuracy, stored)} for size, accuracy, stored in levels}
    monkeypatch.setattr(tables, "front", lambda: front)
    assert tables.needed(run(0.6, 1)) == pytest.approx(10**1.5)
    assert tables.needed(run(0.89, 1)) == pytest.approx(10**3.9)
    assert math.isnan(tables.needed(run(0.91, 1)))
    assert math.isnan(tables.needed(run(0.49, 1)))


def test_sizes_within_a_total_are_the_best_there_are(monkeypatch):
    parameters = {"a": [10, 20, 40, 80], "b": [11, 21, 41, 81], "c": [12, 22, 42, 82]}
    monkeypatch.setattr(tables, "front_parameters", lambda: parameters)
    scores = {"a": [0.1, 0.5, 0.6, 0.9], "b": [0.8, 0.81, 0.82, 0.83], "c": [0.2, 0.4, 0.7, 0.7]}
    for total in (33, 60, 100, 150, 1000):
        picked = tables.chosen(scores, total)
        assert sum(parameters[name][at] for name, at in picked.items()) <= total
        every = [dict(zip("abc", at, strict=True)) for at in itertools.product(range(4), repeat=3)]
        best = max(
            sum(scores[name][at] for name, at in one.items())
            for one in every
            if sum(parameters[name][at] for name, at in one.items()) <= total
        )
        assert sum(scores[name][at] for name, at in picked.items()) == pytest.approx(best)
