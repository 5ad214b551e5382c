"""Test accuracy against trials: every child that was the best of its search so far, scored from its kept weights.

It is done when the task is learnt and nothing is left to choose, so that no choice sees it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from bocl.experiment.round_archive import read_child
from bocl.experiment.store import RunStore
from bocl.methods.method import Learner
from bocl.networks.compact import assemble
from bocl.networks.expandable import ExpandableNetwork
from bocl.records.record import Trial
from bocl.training.batches import DeviceSplit
from bocl.training.evaluation import accuracy


def score_bests(
    store: RunStore, learner: Learner, trials: Sequence[Trial], test: DeviceSplit
) -> tuple[tuple[int, float], ...]:
    """Return (number, test accuracy) of each trial of the last task that had the best reward when it was trained."""
    network = learner.network
    if not trials or not isinstance(network, ExpandableNetwork):
        return ()
    frozen, classes = network.tasks[-2], network.growths[-1].classes
    found, best = [], -math.inf
    for number, trial in enumerate(trials):
        if not trial.failed and trial.reward > best:
            best = trial.reward
            growth = read_child(store, network, frozen.widths, trials, trial.widths, classes)
            found.append((number, accuracy(assemble(network.graph, frozen, growth), test)))
    return tuple(found)
