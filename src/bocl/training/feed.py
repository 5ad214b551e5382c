"""Samples that do not fit on the device: they stay in host memory and are copied over ahead of use.

The order of an epoch is known when it begins. Its samples are gathered on the host, a window at a time, into
pinned memory, and copied by a stream of their own while the steps of the window before still run.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from bocl.errors import InputError

WINDOW_BYTES = 256 << 20
FEWEST = 1024  # samples of a window, however large each is


class Feed:
    """The samples of a split in host memory: raw (n, *shape) and labels (n,)."""

    def __init__(self, raw: Tensor, labels: Tensor) -> None:
        self.raw, self.labels = raw, labels
        per_sample = max(raw.nbytes // max(len(raw), 1), 1)
        self.room = min(len(raw), max(WINDOW_BYTES // per_sample, FEWEST))  # samples of a window

    def __len__(self) -> int:
        return len(self.labels)

    def rows(self, which: slice | Tensor) -> tuple[Tensor, Tensor]:
        """Return samples by their numbers, on the host."""
        return self.raw[which], self.labels[which]

    def window(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Make room on the device for a window of samples and labels."""
        inputs = torch.zeros(self.room, *self.raw.shape[1:], dtype=self.raw.dtype, device=device)
        return inputs, torch.zeros(self.room, dtype=self.labels.dtype, device=device)

    def batches(self, order: Tensor, inputs: Tensor, labels: Tensor) -> Iterator[Tensor]:
        """Yield for each row of ``order`` (steps, batch) its places in the window, once it is filled."""
        if order.shape[1] > self.room:
            raise InputError(
                f"a batch of {order.shape[1]} samples does not fit into the {self.room} that are fed to the device "
                "at a time; set recipe.batch_size lower"
            )
        windows = order.split(self.room // order.shape[1])
        stages = _Stage(self.raw, inputs), _Stage(self.labels, labels)
        for stage in stages:
            stage.fill(windows[0].flatten())
        for number, window in enumerate(windows):
            for stage in stages:
                stage.hand_over()
            if number + 1 < len(windows):
                for stage in stages:
                    stage.fill(windows[number + 1].flatten())
            yield from torch.arange(window.numel(), device=inputs.device).view(window.shape)


class _Stage:
    """The way from the host to a window on the device: a pinned buffer, and its copy on the device."""

    def __init__(self, source: Tensor, window: Tensor) -> None:
        self.source, self.window = source, window
        self.on_gpu = window.is_cuda
        self.pinned = torch.empty(window.shape, dtype=window.dtype, pin_memory=self.on_gpu)
        self.waiting = torch.empty_like(window) if self.on_gpu else self.pinned
        self.filled = 0
        if self.on_gpu:
            self.stream = torch.cuda.Stream(window.device, priority=-1)  # runs work on streams of priority 0
            self.arrived, self.taken = torch.cuda.Event(), torch.cuda.Event()

    def fill(self, rows: Tensor) -> None:
        """Gather rows of the source and start to copy them."""
        self.filled = len(rows)
        if self.on_gpu:
            self.arrived.synchronize()  # the copy before has left the pinned buffer
        torch.index_select(self.source, 0, rows, out=self.pinned[: self.filled])
        if self.on_gpu:
            with torch.cuda.stream(self.stream):
                self.stream.wait_event(self.taken)
                self.waiting[: self.filled].copy_(self.pinned[: self.filled], non_blocking=True)
                self.arrived.record(self.stream)

    def hand_over(self) -> None:
        """Put the copied rows into the window; steps already launched still see the rows before."""
        if self.on_gpu:
            torch.cuda.current_stream(self.window.device).wait_event(self.arrived)
        self.window[: self.filled].copy_(self.waiting[: self.filled])
        if self.on_gpu:
            self.taken.record(torch.cuda.current_stream(self.window.device))
