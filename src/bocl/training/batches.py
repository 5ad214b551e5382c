"""A task's samples on the device, and the order in which they are shown. No data loader."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from bocl.tasks.task import Split, Task


@dataclass(frozen=True, eq=False)
class DeviceSplit:
    """Samples ready for a network: inputs (n, *shape) floats and labels (n,), both on the device."""

    inputs: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class DeviceTask:
    """A task on the device, numbered as its learner counts tasks."""

    index: int
    train: DeviceSplit
    validation: DeviceSplit

    @property
    def device(self) -> torch.device:
        """Where the samples are."""
        return self.train.inputs.device


def to_device(split: Split, device: torch.device | str, dtype: torch.dtype = torch.float32) -> DeviceSplit:
    """Move a split to the device, bytes as bytes, and scale it there."""
    return DeviceSplit(split.inputs(device, dtype), split.labels.to(device))


def task_to_device(
    task: Task, index: int, device: torch.device | str, dtype: torch.dtype = torch.float32
) -> DeviceTask:
    """Move a task's training and validation samples to the device."""
    return DeviceTask(index, to_device(task.train, device, dtype), to_device(task.validation, device, dtype))


def epoch_order(samples: int, batch_size: int, generator: torch.Generator) -> Tensor:
    """Return (steps, batch) indices: a fresh permutation, its last batch filled up from its beginning.

    Every sample is shown at least once an epoch and every batch has the same shape.
    """
    batch_size = min(batch_size, samples)
    steps = -(-samples // batch_size)
    permutation = torch.randperm(samples, generator=generator)
    return permutation[torch.arange(steps * batch_size) % samples].view(steps, batch_size)
