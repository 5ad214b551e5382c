"""What methods that choose a task's weights by scores have in common: WSN and SupSup."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Protocol

from pydantic import Field

from bocl.checks import Fraction, checked
from bocl.methods.failures import check_trained
from bocl.methods.method import Learned
from bocl.methods.plain import train_stack
from bocl.networks.masked import ByLayer, MaskedNetwork
from bocl.networks.subnetworks import Draft, Subnetworks
from bocl.records.events import Callback, RoundStarted, ignore_events
from bocl.seeding import seed_for
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask, task_to_device
from bocl.training.evaluation import accuracy
from bocl.training.recipe import Recipe
from bocl.training.surroundings import usual_surroundings
from bocl.training.trainer import Effort, Fit

Density = Annotated[Fraction, Field(gt=0)]  # share of a layer's weights that a task uses


class ChoosesWeights(Protocol):
    """A learner that begins a task with a draft."""

    network: MaskedNetwork
    recipe: Recipe
    seed: int

    def draft(self, data: DeviceTask) -> Draft:
        """Return where the subnetwork of a task starts."""


def choose_subnetwork(learner: ChoosesWeights, data: DeviceTask, callback: Callback) -> tuple[ByLayer, Learned]:
    """Train a task's subnetwork, keep it, and return the scores it ended with."""
    trained, (fit,) = _trained(learner, data, [learner.draft(data)], callback)
    check_trained(fit.accuracy, data.name)
    learner.network.commit(trained.growth(0).tensors, trained.masks(0), trained.weights(0))
    return trained.scores(0), learned_masked(learner.network, data, fit.effort)


@usual_surroundings()
def try_densities(learner: Any, task: Task, densities: Sequence[float]) -> list[float]:
    """Return the validation accuracy that a task would have with each of these densities; nothing is kept.

    learner  a WSN or SupSup; its networks of all densities are trained together
    """
    data = task_to_device(task, len(learner.seen), learner.device)
    draft = learner.draft(data)
    drafts = [replace(draft, density=each) for each in checked("densities", list(densities), list[Density])]
    _, fits = _trained(learner, data, drafts, ignore_events)
    return [fit.accuracy for fit in fits]


def _trained(
    learner: ChoosesWeights, data: DeviceTask, drafts: Sequence[Draft], callback: Callback
) -> tuple[Subnetworks, list[Fit]]:
    """Train scores, and the weights that are not fixed.

    There is no weight decay. It would shrink the weights outside the subnetwork, which have no gradient to oppose it,
    to 0, and a weight of 0 has no gradient for its score.
    """
    graph = learner.network.graph
    callback(RoundStarted("base", (graph.widths,) * len(drafts)))
    trained = Subnetworks(graph, drafts, device=learner.network.device)
    recipe, seed = replace(learner.recipe, weight_decay=0.0), seed_for(learner.seed, "order", data.index)
    return trained, train_stack(trained, [data], recipe, seed=seed, callback=callback)


def learned_masked(network: MaskedNetwork, data: DeviceTask, effort: Effort) -> Learned:
    """Describe the task that was kept last: only a network's first task adds units."""
    widths = network.graph.no_units if data.index else network.graph.widths
    score = accuracy(partial(network.predict, task=data.index), data.validation)
    return Learned(data.name, widths, score, network.added(), effort=effort)
