"""What methods on a network of fixed size have in common: training it whole, and what that added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from bocl.methods.failures import check_trained
from bocl.methods.method import Learned
from bocl.networks.growth import PARTS, count_tensors
from bocl.networks.plain import PlainNetwork
from bocl.networks.stacked import Children
from bocl.records.events import Callback, EpochDone, RoundStarted
from bocl.seeding import seed_for
from bocl.training.batches import DeviceTask
from bocl.training.evaluation import accuracy
from bocl.training.hooks import Hooks
from bocl.training.recipe import Recipe
from bocl.training.trainable import Trainable
from bocl.training.trainer import Effort, Fit, train


def fine_tune(
    network: PlainNetwork,
    data: DeviceTask,
    recipe: Recipe,
    *,
    seed: int,
    callback: Callback,
    hooks: Callable[[Children], Hooks] = lambda _trained: Hooks(),
) -> tuple[PlainNetwork, Learned]:
    """Train a copy of the network on one more task: an interrupted training leaves nothing behind.

    seed   of the method; the start of a new head and the order of samples follow from it and the task's number
    hooks  made for the network while it is trained
    """
    before = count_tensors(network.tensors)
    network = network.copy()
    network.add_task(data.classes, seed=seed_for(seed, "base", data.index))
    order = seed_for(seed, "order", data.index)
    effort = train_plain(network, [data], recipe, seed=order, callback=callback, hooks=hooks)
    return network, learned_plain(network, data, head=data.index, before=before, effort=effort)


def train_plain(
    network: PlainNetwork,
    tasks: Sequence[DeviceTask],
    recipe: Recipe,
    *,
    seed: int,
    callback: Callback,
    hooks: Callable[[Children], Hooks] = lambda _trained: Hooks(),
) -> Effort:
    """Train every weight of the network on these tasks, the one being learnt last, and return what that took."""
    callback(RoundStarted("base", (network.graph.widths,)))
    trained = network.trainable()
    fit = train_one(trained, tasks, recipe, seed=seed, callback=callback, hooks=hooks(trained))
    network.take(trained)
    return fit.effort


def train_one(
    network: Trainable,
    tasks: Sequence[DeviceTask],
    recipe: Recipe,
    *,
    seed: int,
    callback: Callback,
    hooks: Hooks = Hooks(),  # noqa: B008 - frozen
) -> Fit:
    """Train a stack of one, tell every epoch, and refuse what diverged on the last of the tasks."""
    (fit,) = train_stack(network, tasks, recipe, seed=seed, callback=callback, hooks=hooks)
    check_trained(fit.accuracy, tasks[-1].name)
    return fit


def train_stack(
    network: Trainable,
    tasks: Sequence[DeviceTask],
    recipe: Recipe,
    *,
    seed: int,
    callback: Callback,
    hooks: Hooks = Hooks(),  # noqa: B008 - frozen
) -> list[Fit]:
    """Train a stack and tell every epoch; the fit of what diverged has no accuracy."""
    return train(
        network,
        tasks,
        recipe,
        seed=seed,
        hooks=hooks,
        on_epoch=lambda *facts: callback(EpochDone(*facts)),
    )


def learned_plain(
    network: PlainNetwork, data: DeviceTask, *, head: int, before: dict[str, int], effort: Effort
) -> Learned:
    """Describe a task learnt by a network of fixed size: only a network's first task adds units.

    head    number of the task in this network
    before  what the method stored before the task, by part
    """
    widths = network.graph.widths if head == 0 else network.graph.no_units
    now = count_tensors(network.tensors)
    added = {part: now[part] - before[part] for part in PARTS}
    return Learned(
        data.name,
        widths,
        accuracy(partial(network.predict, task=head), data.validation),
        added,
        effort=effort,
    )
