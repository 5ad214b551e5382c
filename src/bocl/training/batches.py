"""A task's samples on the device, and the order in which they are shown, without a data loader."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from bocl.tasks.task import Scaling, Split, Task
from bocl.training.feed import Feed

COLUMNS = (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # batches of texts are cut down to one of these
TEXTS_AT_ONCE = 256
BATCHES_SORTED = 16  # texts of so many batches are sorted by length, so that those of a batch are about as long
SHARE_OF_FREE_MEMORY = 0.5  # of a GPU; samples that would take more are fed from the host


@dataclass(frozen=True, eq=False)
class Batch:
    """Samples of one step.

    places   (n,) where they are, as ``DeviceSplit.take`` understands it
    columns  so many token ids of every row, where there are no more tokens; None: all there are
    changes  (n, 3) what is done to every image (``augment.py``); None: nothing
    """

    places: Tensor
    columns: int | None = None
    changes: Tensor | None = None

    def __len__(self) -> int:
        return len(self.places)


@dataclass(frozen=True, eq=False)
class DeviceSplit:
    """Samples for a network. How they are kept does not change what it sees.

    inputs  (n, *shape) on the device: floats, or bytes that ``scale`` turns into floats when they are taken
    labels  (n,) on the device
    feed    brings samples from the host; inputs and labels then hold only those of the next steps
    lengths (n,) on the host, where samples are rows of token ids: how many of them are tokens
    """

    inputs: Tensor
    labels: Tensor
    scale: Scaling | None = None
    feed: Feed | None = None
    lengths: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels) if self.feed is None else len(self.feed)

    def batches(self, order: Tensor) -> Iterator[Tensor]:
        """Yield for each row of ``order`` (steps, batch) the places of its samples during the next step."""
        if self.feed is None:
            return iter(order.to(self.inputs.device))
        return self.feed.batches(order, self.inputs, self.labels)

    def take(self, places: Tensor, columns: int | None = None) -> tuple[Tensor, Tensor]:
        """Return inputs (batch, *shape) as a network sees them, and labels (batch,), at places from ``batches``.

        columns  so many token ids of every row, where there are no more tokens
        """
        inputs = self.inputs.index_select(0, places)
        return self._scaled(inputs if columns is None else inputs[:, :columns]), self.labels.index_select(0, places)

    def columns(self, order: Tensor) -> list[int | None]:
        """Return for each row of ``order`` (steps, batch) how many columns its samples need; None: all there are."""
        if self.lengths is None:
            return [None] * len(order)
        return [columns_for(length, self.inputs.shape[1]) for length in self.lengths[order].amax(1).tolist()]

    def rows(self, which: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Return inputs and labels of samples by their numbers in the split; texts are cut down to the longest."""
        if self.lengths is not None:
            longest = int(self.lengths[which.cpu() if isinstance(which, Tensor) else which].amax())
            return self.inputs[which, : columns_for(longest, self.inputs.shape[1])], self.labels[which]
        if self.feed is None:
            return self._scaled(self.inputs[which]), self.labels[which]
        inputs, labels = self.feed.rows(which)
        return self._scaled(inputs.to(self.inputs.device)), labels.to(self.labels.device)

    def parts(self, size: int, size_of_texts: int = TEXTS_AT_ONCE) -> Iterator[slice | Tensor]:
        """Yield the numbers of all samples in parts of this size, in order; texts by their length, fewer at once."""
        if self.lengths is None:
            yield from (slice(start, start + size) for start in range(0, len(self), size))
        else:
            yield from self.lengths.argsort(stable=True).to(self.inputs.device).split(min(size, size_of_texts))

    def _scaled(self, inputs: Tensor) -> Tensor:
        return inputs if self.scale is None else self.scale(inputs)


@dataclass(frozen=True, eq=False)
class DeviceTask:
    """A task on the device.

    index          its number as its learner counts tasks
    class_weights  (classes,) how much a sample of each class counts in the loss; None where all count the same
    teacher        a frozen network, inputs (n, *shape) → logits (n, classes): its probabilities are what is learnt of
                   the training samples; None where it is their labels
    """

    name: str
    index: int
    classes: int
    train: DeviceSplit
    validation: DeviceSplit
    class_weights: Tensor | None = None
    teacher: Callable[[Tensor], Tensor] | None = None

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
    if split.padding is not None:
        return DeviceSplit(raw, labels, lengths=token_lengths(split.raw, split.padding))
    if device.type == "cuda" and raw.dtype == torch.uint8:
        return DeviceSplit(raw, labels, scale)
    return DeviceSplit(scale(raw), labels)


def token_lengths(ids: Tensor, padding: int) -> Tensor:
    """Return how many columns each row of token ids (n, length) needs, (n,): up to its last token."""
    places = torch.arange(1, ids.shape[1] + 1, device=ids.device)
    return ((ids != padding) * places).amax(1).clamp(min=1)


def columns_for(length: int, width: int) -> int:
    """Return to how many columns rows of ``width`` token ids are cut down, whose longest text has so many tokens."""
    return min(width, next((most for most in COLUMNS if most >= length), width))


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


def epoch_order(samples: int, batch_size: int, generator: torch.Generator, lengths: Tensor | None = None) -> Tensor:
    """Return (steps, batch) indices: a fresh permutation, its last batch filled up from its beginning.

    Every sample is shown at least once an epoch and every batch has the same shape. Samples that have lengths (n,) are
    put into batches with others of about the same length, and the batches are shuffled.
    """
    batch_size = min(batch_size, samples)
    steps = -(-samples // batch_size)
    permutation = torch.randperm(samples, generator=generator)
    order = permutation[torch.arange(steps * batch_size) % samples]
    if lengths is None:
        return order.view(steps, batch_size)
    parts = order.split(BATCHES_SORTED * batch_size)
    alike = torch.cat([part[lengths[part].argsort(stable=True)] for part in parts]).view(steps, batch_size)
    return alike[torch.randperm(steps, generator=generator)]
