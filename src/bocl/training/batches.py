"""A task's samples on the device, and the order in which they are shown, without a data loader."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bocl.tasks.task import Scaling, Split, Task
from bocl.training.feed import Feed

SHARE_OF_FREE_MEMORY = 0.5  # of a GPU; samples that would take more are fed from the host


@dataclass(frozen=True, eq=False)
class DeviceSplit:
    """Samples for a network. How they are kept does not change what it sees.

    inputs  (n, *shape) on the device: floats, or bytes that ``scale`` turns into floats when they are taken
    labels  (n,) on the device
    feed    brings samples from the host; inputs and labels then hold only those of the next steps
    """

    inputs: Tensor
    labels: Tensor
    scale: Scaling | None = None
    feed: Feed | None = None

    def __len__(self) -> int:
        return len(self.labels) if self.feed is None else len(self.feed)

    def batches(self, order: Tensor) -> Iterator[Tensor]:
        """Yield for each row of ``order`` (steps, batch) the places of its samples during the next step."""
        if self.feed is None:
            return iter(order.to(self.inputs.device))
        return self.feed.batches(order, self.inputs, self.labels)

    def take(self, places: Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs (batch, *shape) as a network sees them, and labels (batch,), at places from ``batches``."""
        return self._scaled(self.inputs.index_select(0, places)), self.labels.index_select(0, places)

    def rows(self, which: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of samples by their numbers in the split."""
        if self.feed is None:
            return self._scaled(self.inputs[which]), self.labels[which]
        inputs, labels = self.feed.rows(which)
        return self._scaled(inputs.to(self.inputs.device)), labels.to(self.labels.device)

    def _scaled(self, inputs: Tensor) -> Tensor:
        return inputs if self.scale is None else self.scale(inputs)


@dataclass(frozen=True, eq=False)
class DeviceTask:
    """A task on the device.

    index          its number as its learner counts tasks
    class_weights  (classes,) how much a sample of each class counts in the loss; None where all count the same
    """

    name: str
    index: int
    classes: int
    train: DeviceSplit
    validation: DeviceSplit
    class_weights: Tensor | None = None

    @property
    def device(self) -> torch.device:
        """Where the samples are."""
        return self.train.inputs.device


def to_device(split: Split, device: torch.device | str, dtype: torch.dtype = torch.float32) -> DeviceSplit:
    """Bring a split to the device.

    A GPU keeps bytes as bytes, because scaling a batch takes next to no time. A CPU scales all samples once. Samples
    that would take too much of a GPU's free memory stay on the host and are fed.
    """
    device = torch.device(device)
    scale = split.scaling(device, dtype)
    if device.type == "cuda" and split.raw.nbytes > torch.cuda.mem_get_info(device)[0] * SHARE_OF_FREE_MEMORY:
        feed = Feed(split.raw, split.labels)
        return DeviceSplit(*feed.window(device), scale, feed)
    raw, labels = (_ordinary(tensor.to(device)) for tensor in (split.raw, split.labels))
    if device.type == "cuda" and raw.dtype == torch.uint8:
        return DeviceSplit(raw, labels, scale)
    return DeviceSplit(scale(raw), labels)


def _ordinary(tensor: Tensor) -> Tensor:
    """Return a tensor that gradients can be computed with: one that was made in inference mode is copied."""
    return tensor.clone() if tensor.is_inference() else tensor


def task_to_device(
    task: Task, index: int, device: torch.device | str, dtype: torch.dtype = torch.float32
) -> DeviceTask:
    """Bring a task's training and validation samples to the device."""
    train, validation = (to_device(split, device, dtype) for split in (task.train, task.validation))
    weights = torch.tensor(task.class_weights, dtype=dtype, device=device) if task.class_weights else None
    return DeviceTask(task.name, index, task.classes, train, validation, weights)


def epoch_order(samples: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """Return (steps, batch) indices: a fresh permutation, its last batch filled up from its beginning.

    Every sample is shown at least once an epoch and every batch has the same shape.
    """
    batch_size = min(batch_size, samples)
    steps = -(-samples // batch_size)
    permutation = torch.randperm(samples, generator=generator)
    return permutation[torch.arange(steps * batch_size) % samples].view(steps, batch_size)
