"""What one task adds to a module that grows by factors: its tensors, their shapes, their first values and their number.

factor/LAYER/down, up    of the group's rank, none where it is 0
gate/LAYER/unit          one number for every rank that is read of earlier tasks
norm/NAME/…              weight, bias, mean, var, where a task has its own norms
head/weight, bias
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bocl.networks.growth import Growth, Shapes, count_by_owner, count_shapes, uniform_within
from bocl.networks.low_rank.plan import Plan
from bocl.widths import Widths


@dataclass(frozen=True)
class FactorSpace:
    """Every growth that a task may choose from, one for each z: the rank of every group.

    read      rank of every group that the task reads of earlier tasks
    classes   of the task
    features  numbers that a head reads
    norms     {norm/NAME/…: tensor that it starts from}, where a task has its own norms
    gated     whether what is read is gated

    z is (…, groups) integers, as in ``GrowthSpace``.
    """

    plan: Plan
    read: Widths
    classes: int
    features: int
    norms: Mapping[str, Tensor]
    gated: bool = True

    def shapes(self, z: Any) -> Shapes:
        """Return the shape of every tensor that growing by z adds; entries that depend on z are arrays."""
        z = np.asarray(z, dtype=np.int64)
        found: Shapes = {}
        for layer in self.plan.layers:
            rank = z[..., layer.group]
            found[f"factor/{layer.name}/down"] = (rank, layer.inputs, *layer.kernel)
            found[f"factor/{layer.name}/up"] = (layer.outputs, rank)
            if self.gated and self.read[layer.group]:
                found[f"gate/{layer.name}/unit"] = (self.read[layer.group],)
        found |= {name: tuple(tensor.shape) for name, tensor in self.norms.items()}
        found["head/weight"] = (self.classes, self.features)
        found["head/bias"] = (self.classes,)
        return found

    def count(self, z: Any) -> dict[str, NDArray[np.int64]]:
        """Count the parameters growing by z would add, by part."""
        return count_shapes(self.shapes(z), np.asarray(z).shape[:-1])

    def count_all(self, z: Any) -> NDArray[np.int64]:
        """Count all parameters growing by z would add."""
        total: NDArray[np.int64] = np.sum(list(self.count(z).values()), axis=0)
        return total

    def count_by_group(self, z: Any) -> NDArray[np.int64]:
        """Count the factors added to each group's layers: (…, groups)."""
        owners = {f"factor/{layer.name}": layer.group for layer in self.plan.layers}
        return count_by_owner(self.shapes(z), owners, np.asarray(z).shape)

    def initialise(
        self, z: Widths, *, gate_bias: float, reads: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float32
    ) -> Growth:
        """Make a child's new tensors. ``up`` is 0, so that a child begins as the module it grows from.

        ``down`` and the head are uniform in ±1/√fan-in, as PyTorch starts its own layers. The draw depends only on the
        seed.
        """
        generator = torch.Generator().manual_seed(seed)
        tensors: dict[str, Tensor] = {}
        for name, wanted in self.shapes(z).items():
            shape = tuple(int(entry) for entry in wanted)
            if name in self.norms:
                tensor = self.norms[name].to("cpu", dtype, copy=True)
            elif name.endswith("/up"):
                tensor = torch.zeros(shape, dtype=dtype)
            elif name.startswith("gate/"):
                tensor = torch.full(shape, gate_bias, dtype=dtype)
            else:
                fan_in = self.features if name.startswith("head/") else prod(shape[1:])
                tensor = uniform_within(shape, fan_in, generator, dtype)
            tensors[name] = tensor
        return Growth(z, self.classes, tensors, reads)
