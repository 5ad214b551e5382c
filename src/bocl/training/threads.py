"""How many CPU threads a training step is worth: counted in floating-point operations, by PyTorch's own formulas."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from bocl.training.batches import DeviceTask
from bocl.training.trainable import Trainable

WORTH_SHARING = 10_000_000  # floating-point operations of a step's forward pass


class FlopCounter(TorchDispatchMode):
    """Adds up the operations of every product and convolution inside, in ``count``.

    ``torch.utils.flop_counter.FlopCounterMode`` counts the same, but loads PyTorch's compiler.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        formula: Callable[..., int] | None = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.count += formula(*args, **(kwargs or {}), out_val=result)
        return result


@contextmanager
def sensible_threads(network: Trainable, task: DeviceTask, batch_size: int) -> Iterator[None]:
    """Use one CPU thread for steps too small to be worth sharing out: waking the others costs more than it saves."""
    if task.device.type != "cpu" or _forward_flops(network, task) * batch_size >= WORTH_SHARING:
        yield
        return
    before = torch.get_num_threads()  # PyTorch has one number for the whole process: the caller gets it back
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _forward_flops(network: Trainable, task: DeviceTask) -> int:
    """Count the floating-point operations of a forward pass of one sample."""
    training, network.training = network.training, False
    counter = FlopCounter()
    with torch.no_grad(), counter:
        network(task.train.rows(slice(1))[0], task.index)
    network.training = training
    return counter.count
