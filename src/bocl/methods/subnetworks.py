"""What methods that choose a task's weights by scores have in common: WSN and SupSup."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bocl.methods.method import Learned
from bocl.methods.plain import train_one
from bocl.networks.growth import Growth
from bocl.networks.masked import ByLayer, MaskedNetwork
from bocl.networks.subnetworks import Subnetworks
from bocl.records.events import Callback, RoundStarted
from bocl.training.batches import DeviceTask
from bocl.training.evaluation import accuracy
from bocl.training.recipe import Recipe
from bocl.training.trainer import Effort


def choose_subnetwork(
    network: MaskedNetwork,
    start: Growth,
    data: DeviceTask,
    recipe: Recipe,
    *,
    fixed: ByLayer,
    weights: ByLayer,
    scores: ByLayer,
    density: float,
    seed: int,
    callback: Callback,
) -> tuple[ByLayer, Learned]:
    """Train scores, and the weights that are not fixed; keep the subnetwork and return the scores it ended with.

    fixed    which weights are not trained
    weights  their values
    scores   where they start
    density  share of a layer's weights that the task uses
    seed     of the order of samples

    There is no weight decay. It would shrink the weights outside the subnetwork, which have no gradient to oppose it,
    to 0, and a weight of 0 has no gradient for its score.
    """
    callback(RoundStarted("base", (network.graph.widths,)))
    counts = {name: max(1, round(density * each.numel())) for name, each in scores.items()}
    trained = Subnetworks(
        network.graph,
        [start],
        fixed=[fixed],
        weights=[weights],
        scores=[scores],
        counts=[counts],
        device=network.device,
    )
    fit = train_one(trained, [data], replace(recipe, weight_decay=0.0), seed=seed, callback=callback)
    network.commit(trained.growth(0).tensors, trained.masks(0), trained.weights(0))
    return trained.scores(0), learned_masked(network, data, fit.effort)


def learned_masked(network: MaskedNetwork, data: DeviceTask, effort: Effort) -> Learned:
    """Describe the task that was kept last: only a network's first task adds units."""
    widths = network.graph.no_units if data.index else network.graph.widths
    score = accuracy(partial(network.predict, task=data.index), data.validation)
    return Learned(data.name, widths, score, network.added(), effort=effort)
