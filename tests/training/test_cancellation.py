"""A training that is told to stop ends with its epoch, and no other does."""

from __future__ import annotations

import threading

import pytest
from training_examples import children, easy_task

from bocl.training.cancellation import cancelled_by
from bocl.training.recipe import Recipe
from bocl.training.trainer import train


def test_it_ends_after_the_epoch_in_which_it_was_told():
    stop, epochs = threading.Event(), []

    def tell(done, *_facts):
        epochs.append(done)
        if done == 2:
            stop.set()

    with cancelled_by(stop), pytest.raises(KeyboardInterrupt):
        train(children(), [easy_task()], Recipe(epochs=9), seed=0, on_epoch=tell)
    assert epochs == [1, 2]


def test_only_what_is_trained_inside_is_stopped():
    stop = threading.Event()
    stop.set()
    with cancelled_by(stop):
        other = threading.Thread(target=lambda: fits.extend(train(children(), [easy_task()], Recipe(epochs=1), seed=0)))
        fits: list[object] = []
        other.start()
        other.join()
    fits += train(children(), [easy_task()], Recipe(epochs=1), seed=0)
    assert len(fits) == 2
