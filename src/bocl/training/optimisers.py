"""SGD and Adam over the tensors of all networks at once, by PyTorch's own functions.

``torch.optim.SGD`` and ``torch.optim.Adam`` compute the same by the same functions. Their objects load PyTorch's
compiler with the first step, hundreds of modules that nothing here uses: seconds, in every process that trains.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

BETAS = (0.9, 0.999)
EPSILON = 1e-8


class Optimiser(Protocol):
    """What a step needs of an optimiser; ``rate`` is a number, or a tensor that a captured step reads."""

    rate: Any

    def step(self) -> None:
        """Move every tensor that has a gradient."""
        ...

    def forget(self) -> None:
        """Begin anew, in the same memory."""
        ...

    def step_size(self, parameter: Tensor) -> Any:
        """Return s, a number or one for every entry: a steady gradient g moves the parameter by -s g a step."""
        ...


class SGD:
    """b ← μ b + g + λ θ,  θ ← θ - η b.

    fused  one kernel for all tensors; they must all get their first gradient in the same step
    """

    def __init__(
        self, parameters: Sequence[Tensor], rate: Any, *, momentum: float, weight_decay: float, fused: bool
    ) -> None:
        self.rate = rate
        self._parameters = parameters
        self._momentum, self._weight_decay, self._fused = momentum, weight_decay, fused
        self._velocities: dict[Tensor, Tensor | None] = dict.fromkeys(parameters) if momentum else {}

    def step(self) -> None:
        """Move every tensor that has a gradient."""
        moved, gradients = _with_gradients(self._parameters)
        velocities = [self._velocities[parameter] for parameter in moved] if self._momentum else []
        with torch.no_grad():
            sgd(
                moved,
                gradients,
                velocities,
                fused=self._fused or None,
                weight_decay=self._weight_decay,
                momentum=self._momentum,
                lr=self.rate,
                dampening=0.0,
                nesterov=False,
                maximize=False,
            )
        self._velocities.update(zip(moved, velocities, strict=False))

    def forget(self) -> None:
        """Begin anew, in the same memory."""
        for velocity in self._velocities.values():
            if velocity is not None:
                velocity.zero_()

    def step_size(self, parameter: Tensor) -> Any:  # noqa: ARG002 - the same for all
        """Return η / (1 - μ)."""
        return self.rate / (1 - self._momentum)


class Adam:
    """m ← β₁ m + (1 - β₁) g,  v ← β₂ v + (1 - β₂) g²,  θ ← θ - η m̂ / (√v̂ + ε)  with g + λ θ for g; m̂, v̂ unbiased.

    fused       one kernel for all tensors
    capturable  the step can be captured as a CUDA graph: its count of steps is on the device
    """

    def __init__(
        self, parameters: Sequence[Tensor], rate: Any, *, weight_decay: float, fused: bool, capturable: bool
    ) -> None:
        self.rate = rate
        self._parameters = parameters
        self._weight_decay, self._fused, self._capturable = weight_decay, fused, capturable
        self._moments: dict[Tensor, tuple[Tensor, Tensor, Tensor]] = {}  # m, v, steps

    def step(self) -> None:
        """Move every tensor that has a gradient."""
        moved, gradients = _with_gradients(self._parameters)
        for parameter in moved:
            if parameter not in self._moments:
                place = parameter.device if self._fused or self._capturable else torch.device("cpu")
                count = torch.zeros((), dtype=torch.float32, device=place)
                self._moments[parameter] = (torch.zeros_like(parameter), torch.zeros_like(parameter), count)
        means, squares, steps = ([self._moments[parameter][part] for parameter in moved] for part in range(3))
        with torch.no_grad():
            adam(
                moved,
                gradients,
                means,
                squares,
                [],
                steps,
                fused=self._fused or None,
                capturable=self._capturable,
                amsgrad=False,
                beta1=BETAS[0],
                beta2=BETAS[1],
                lr=self.rate,
                weight_decay=self._weight_decay,
                eps=EPSILON,
                maximize=False,
            )

    def forget(self) -> None:
        """Begin anew, in the same memory."""
        for moments in self._moments.values():
            for tensor in moments:
                tensor.zero_()

    def step_size(self, parameter: Tensor) -> Any:
        """Return η / (√v̂ + ε)."""
        _, square, steps = self._moments[parameter]
        return self.rate / ((square / (1 - BETAS[1] ** steps)).sqrt() + EPSILON)


def _with_gradients(parameters: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    pairs = [(parameter, parameter.grad) for parameter in parameters if parameter.grad is not None]
    return [parameter for parameter, _ in pairs], [gradient for _, gradient in pairs]
