"""A round: children of one network, made, trained together and taken out again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Widths
from bocl.networks.growth import Growth
from bocl.records.events import EpochDone, Listener
from bocl.training.batches import DeviceTask
from bocl.training.recipe import Recipe
from bocl.training.steps import StepCache
from bocl.training.trainer import Fit, train


@dataclass(frozen=True, eq=False)
class TrainedChild:
    """A child's new tensors, and how its training ended."""

    growth: Growth
    fit: Fit


def padding(widths: Sequence[Widths], bounds: Widths) -> Widths:
    """Return what a round is padded to: the next power of two above its widest child, at most the bounds.

    Buckets keep the number of shapes small, so that a captured step serves many rounds, and a round of small
    children does not pay for the whole box.
    """
    widest = [max(group) for group in zip(*widths, strict=True)]
    buckets = [1 << (most - 1).bit_length() if most else 0 for most in widest]
    return tuple(map(min, bounds, buckets))


def train_round(
    network: ExpandableNetwork,
    task: DeviceTask,
    widths: Sequence[Widths],
    *,
    classes: int,
    recipe: Recipe,
    seeds: Sequence[int],
    order_seed: int,
    pad_to: Widths,
    listen: Listener,
    cache: StepCache | None = None,
) -> list[TrainedChild]:
    """Train one child per entry of ``widths``, in that order; the network itself stays as it is.

    A pure function of its arguments. Children of every round of a task share ``order_seed``, so that they
    see the same batches and their accuracies differ by their widths rather than by luck.
    """
    children = network.grow(widths, classes, seeds=seeds, pad_to=pad_to)
    fits = train(
        children,
        [task],
        recipe,
        seed=order_seed,
        on_epoch=lambda done, total: listen(EpochDone(done, total)),
        cache=cache,
    )
    return [TrainedChild(children.growth(index), fit) for index, fit in enumerate(fits)]
