"""What a method adds to a training step: EWC's anchor, GEM's projection, DEN's sparsity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from bocl.training.proximal import Proximal, take_proximal

Parameters = Mapping[str, Tensor]
OnHost = Callable[[], None]


@dataclass(frozen=True)
class Hooks:
    """Functions called in every step, each optional.

    adjust_gradients  called between backward and the optimiser's step, may change ``.grad``
    proximal          called after the optimiser's step, solves for another term of the objective (``proximal.py``)

    A step may be captured as a CUDA graph. So hooks are tensor operations, the same in every step, and all they read is
    on the device. Where the host must have its say, ``adjust_gradients`` is a generator: it yields what the host does
    there, and the operations before and after become a graph each.
    """

    adjust_gradients: Callable[[Parameters], Iterator[OnHost] | None] | None = None
    proximal: Proximal | None = None

    def update(self, optimiser: torch.optim.Optimizer, parameters: Parameters) -> Iterator[OnHost]:
        """Take the optimiser's step and all that goes with it, and yield what the host does meanwhile.

        Gradients are there. What is yielded must be called before the next is asked for.
        """
        if self.adjust_gradients is not None:
            yield from self.adjust_gradients(parameters) or ()
        optimiser.step()
        if self.proximal is not None:
            take_proximal(self.proximal, parameters, optimiser)
