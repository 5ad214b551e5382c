"""`recipe.use_validation`: what was chosen is trained once more, on the validation samples too."""

from __future__ import annotations

from dataclasses import replace

import torch
from method_examples import RECIPE, hard_stream, small_mlp

from bocl.methods.bocl import BOCL
from bocl.methods.fixed import Fixed, FixedSettings
from bocl.search.settings import SearchSettings
from bocl.tasks.task import with_validation

ALL = replace(RECIPE, use_validation=True)
SEARCH = SearchSettings("random", trials=3, warm_points=1, round_size=4, bounds=3, halving=False)


def learnt(recipe):
    return BOCL(small_mlp(), recipe=recipe, search=SEARCH, seed=0, device="cpu").learn(hard_stream()[0])


def test_a_task_has_its_validation_samples_twice():
    task = hard_stream()[0]
    both = with_validation(task)
    assert len(both.train) == len(task.train) + len(task.validation)
    assert torch.equal(both.train.raw[len(task.train) :], task.validation.raw)
    assert torch.equal(both.train.labels[: len(task.train)], task.train.labels)
    assert both.validation is task.validation


def test_a_search_chooses_as_before_and_its_choice_is_trained_once_more():
    before, after = learnt(RECIPE), learnt(ALL)
    assert after.trials == before.trials
    assert after.widths == before.widths
    samples = len(hard_stream()[0].train) + len(hard_stream()[0].validation)
    steps = -(-samples // ALL.batch_size)
    shown = steps * min(ALL.batch_size, samples) * ALL.epochs_of(steps)
    assert after.effort.samples - before.effort.samples == shown


def test_what_is_kept_is_the_choice_from_its_own_first_weights():
    """With one child there is nothing to choose. The first of two has its seed, and is the better one here."""
    ends = []
    for children in (1, 2):
        learner = Fixed(small_mlp(), settings=FixedSettings(2, children=children), recipe=ALL, seed=0, device="cpu")
        learner.learn(hard_stream()[0])
        ends.append(learner.state().tensors)
    for name, tensor in ends[0].items():
        torch.testing.assert_close(ends[1][name], tensor)
