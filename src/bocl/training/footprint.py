"""How much memory training a network takes: it follows from its shapes only, so that a run can be repeated anywhere."""

from __future__ import annotations

import torch
from torch import Tensor

from bocl.training.batches import DeviceTask
from bocl.training.draws import Draws
from bocl.training.precision import repeatable_products
from bocl.training.recipe import Recipe
from bocl.training.trainable import Trainable

COPIES_OF_WEIGHTS = 4  # the weights, their gradients, two moments of the optimiser
COPIES_OF_AVERAGES = 2  # the averages, and their differences from the weights


def training_bytes(network: Trainable, task: DeviceTask, recipe: Recipe) -> int:
    """Count the bytes a training step keeps for the backward pass and for the weights, without temporary work space.

    What the backward pass keeps is a fixed part and a part per sample; passes of one and two samples tell them apart.
    They take milliseconds, and run on the task's own device: a GPU convolves in another way and keeps more.
    """
    bf16 = torch.autocast(task.device.type, dtype=torch.bfloat16, enabled=recipe.precision == "bf16")
    with repeatable_products(recipe.precision), bf16:
        one = _kept_bytes(network, task, 1)
        per_sample = _kept_bytes(network, task, 2) - one
    weights = sum(tensor.numel() * tensor.element_size() for tensor in network.parameters.values())
    copies = COPIES_OF_WEIGHTS + (0 if recipe.average == "off" else COPIES_OF_AVERAGES)
    return one + per_sample * (min(recipe.batch_size, len(task.train)) - 1) + weights * copies


def _kept_bytes(network: Trainable, task: DeviceTask, samples: int) -> int:
    """Count the bytes autograd saves in a forward pass: each storage once, and parameters not at all."""
    parameters = {tensor.untyped_storage().data_ptr() for tensor in network.parameters.values()}
    kept: dict[int, torch.UntypedStorage] = {}  # as they are held here, no address is given out twice

    def note(tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            kept[storage.data_ptr()] = storage

    draws = Draws(network, task.device, seed=0)  # what is dropped out does not change how much is kept
    # Nothing goes backward here. A hook that gave the tensor back would make it and its graph hold each other for ever.
    with draws.in_use(), torch.autograd.graph.saved_tensors_hooks(note, lambda nothing: nothing):
        network(task.train.rows(slice(samples))[0], task.index)
    return sum(storage.nbytes() for storage in kept.values())
