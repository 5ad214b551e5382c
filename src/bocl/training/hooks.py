"""What a method adds to a training step: EWC's anchor, GEM's projection, DEN's sparsity, HAT's gates."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from bocl.training.proximal import Proximal, step_size

Parameters = Mapping[str, Tensor]
Part = Callable[[], None]  # of a step


@dataclass(frozen=True)
class Hooks:
    """What is done in every step besides the loss, each optional.

    adjust_gradients  called between backward and the optimiser's step, may change ``.grad``
    proximal          called after the optimiser's step, solves for another term of the objective (``proximal.py``)

    A step may be captured as a CUDA graph: a hook is called a few times beforehand, and then only its operations are
    repeated. So hooks are tensor operations, the same in every step, and all they read is on the device.

    Where the host must compute something, ``adjust_gradients`` is a generator. It yields a function for the host to
    call in every step; the operations before and after it become one graph each. Values pass between them in tensors
    made before the ``yield``. Other runs may use the GPU meanwhile (``gpu_lock.py``), so the function only copies from
    the device, computes on the host and copies back.
    """

    adjust_gradients: Callable[[Parameters], Iterator[Part] | None] | None = None
    proximal: Proximal | None = None

    def update(self, optimiser: torch.optim.Optimizer, parameters: Parameters) -> None:
        """Take the optimiser's step with its hooks; the gradients are computed already."""
        for host_part in self.parts_of_update(optimiser, parameters):
            host_part()

    def parts_of_update(self, optimiser: torch.optim.Optimizer, parameters: Parameters) -> Iterator[Part]:
        """Do the same, but yield what the host must call instead of calling it."""
        if self.adjust_gradients is not None:
            yield from self.adjust_gradients(parameters) or ()
        optimiser.step()
        if self.proximal is not None:
            with torch.no_grad():
                self.proximal(parameters, partial(step_size, optimiser))
