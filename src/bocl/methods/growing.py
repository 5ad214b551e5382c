"""What methods on a growing network have in common."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bocl.checks import checked
from bocl.methods.method import Learned, Learner
from bocl.networks.expandable import ExpandableNetwork
from bocl.networks.graph import Graph
from bocl.networks.growth import Growth, GrowthSettings, count_tensors
from bocl.tasks.task import Task
from bocl.training.batches import DeviceTask
from bocl.training.evaluation import accuracy
from bocl.training.recipe import Recipe
from bocl.widths import Widths


class GrowingLearner(Learner):
    """A learner whose network grows for every task and whose earlier tasks are frozen."""

    forgets = False
    network: ExpandableNetwork

    def __init__(
        self,
        network: nn.Module | Graph,
        *,
        growth: GrowthSettings,
        recipe: Recipe,
        seed: int,
        device: str | torch.device,
    ) -> None:
        super().__init__(network, recipe=recipe, seed=seed, device=device)
        self.growth = checked("growth", growth, GrowthSettings)
        self.network = ExpandableNetwork(self.graph, growth, self.device)

    def _commit(self, task: Task, growth: Growth, data: DeviceTask) -> Learned:
        """Keep a winner, scored once more in compact form, the form it will predict in."""
        score = accuracy(self.network.candidate(growth), data.validation)
        self.network.commit(growth)
        parameters = count_tensors(growth.tensors)
        return Learned(task.name, growth.widths, score, parameters, reads=growth.reads)

    def widths_by_task(self) -> list[Widths]:
        """Return what every task added."""
        return [growth.widths for growth in self.network.growths]

    def tensors_by_task(self) -> list[dict[str, Tensor]]:
        """Return every tensor of each task, as stored and, ``compact/…``, as used to predict."""
        return [
            {**own, **{f"compact/{name}": tensor for name, tensor in task.weights.items()}}
            for own, task in zip(super().tensors_by_task(), self.network.tasks, strict=True)
        ]

    def gate_openness(self, task: int, inputs: Tensor, /) -> dict[str, Tensor]:
        """Return {gated layer: mean gate on the units of every task up to this one}; NaN for tasks it does not read."""
        read = torch.tensor([*self.network.growths[task].reads, task], device=inputs.device)
        found = self.network.tasks[task].openness(inputs)
        missing = inputs.new_full((task + 1,), torch.nan)
        return {layer: missing.index_copy(0, read, means) for layer, means in found.items()}
