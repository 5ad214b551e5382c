"""What a method adds to a training step: EWC's anchor, GEM's projection, DEN's sparsity."""

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

    Where the host must have its say, ``adjust_gradients`` is a generator. It yields a function for the host to call in
    every step, between the operations before it and those after it, which become a graph each. Values pass between
    them in tensors made before the ``yield``. Other runs may go on meanwhile (``gpu_lock.py``): the function copies
    from the device, computes on the host and copies back, nothing else.
    """

    adjust_gradients: Callable[[Parameters], Iterator[Part] | None] | None = None
    proximal: Proximal | None = None

    def update(self, optimiser: torch.optim.Optimizer, parameters: Parameters) -> None:
        """Take the optimiser's step and all that goes with it; gradients are there."""
        for host_part in self.parts_of_update(optimiser, parameters):
            host_part()

    def parts_of_update(self, optimiser: torch.optim.Optimizer, parameters: Parameters) -> Iterator[Part]:
        """Do the same, as far as the next thing that the host does, and yield that."""
        if self.adjust_gradients is not None:
            yield from self.adjust_gradients(parameters) or ()
        optimiser.step()
        if self.proximal is not None:
            with torch.no_grad():
                self.proximal(parameters, partial(step_size, optimiser))
