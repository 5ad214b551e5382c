"""One task of a learner as an ordinary ``nn.Module``: for a server, an export, or a training of one's own."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bocl.errors import InputError
from bocl.methods.seen import SeenTask, usual_strides
from bocl.networks.graph import Graph
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.single_task import SingleTask
from bocl.networks.task_modules import task_module
from bocl.tasks.labels import Label
from bocl.tasks.texts import TextFormat
from bocl.training.batches import columns_for, token_lengths


class TaskNetwork(nn.Module):
    """What one task computes, apart from its learner: its own parameters, in evaluation mode.

    about    what is kept of the task: name, labels, the shape and the scale of its samples
    text     how texts become its samples; None where they are no texts
    scaling  whether it takes samples as they came, and scales them: bytes as numbers from 0 to 255, of any type.
             Otherwise it takes what the network sees, as ``Split.inputs`` gives it
    """

    mean: Tensor | None
    std: Tensor | None
    _typed: Tensor

    def __init__(
        self, network: nn.Module, about: SeenTask, text: TextFormat | None = None, *, scaling: bool = True
    ) -> None:
        super().__init__()
        self.network = network
        self.about = about
        self.text = text
        self.scaling = scaling
        scaled = scaling and about.padding is None and (about.in_bytes or (about.mean, about.std) != ((0.0,), (1.0,)))
        device = next(network.parameters()).device
        for name, values in (("mean", about.mean), ("std", about.std)):
            shape = (-1, *(1,) * (len(about.shape) - 1))
            tensor = torch.tensor(values, dtype=torch.float32, device=device).reshape(shape) if scaled else None
            self.register_buffer(name, tensor)
        # A frozen module may hold tensors of several types; samples have the one that tasks learn in.
        self.register_buffer("_typed", torch.zeros((), dtype=torch.float32, device=device), persistent=False)

    @property
    def name(self) -> str:
        """The task's name."""
        return self.about.name

    @property
    def labels(self) -> tuple[Label, ...]:
        """What its classes are called, in the order of the logits."""
        return self.about.class_labels

    def forward(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) for samples (n, *shape); of texts, their token ids (n, length)."""
        if self.about.padding is not None:
            return self._logits(self._tokens(x, self.about.padding))
        x = x.to(self._typed.dtype)  # as predict takes numbers of any type
        if not torch.compiler.is_compiling():
            x = usual_strides(x)
        if self.mean is not None and self.std is not None:
            x = ((x / 255 if self.about.in_bytes else x) - self.mean) / self.std
        return self._logits(x)

    def _logits(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits

    def _tokens(self, ids: Tensor, padding: int) -> Tensor:
        """Return ids as the network reads them; where it is not exported, cut down to the longest text."""
        ids = ids.int()
        if torch.compiler.is_compiling():
            return ids
        longest = int(token_lengths(ids, padding).amax()) if len(ids) else 1
        return ids[:, : columns_for(longest, ids.shape[1])]

    def extra_repr(self) -> str:
        """Say which task it is."""
        return f"task={self.name!r}, classes={self.about.classes}, shape={self.about.shape}, scaling={self.scaling}"


def task_network(
    graph: Graph | Backbone, single: SingleTask, about: SeenTask, text: TextFormat | None, *, scaling: bool
) -> TaskNetwork:
    """Return one task as a module of its own."""
    try:
        network = task_module(graph, single)
    except KeyError as error:
        # A user's layer may be called like something that every module has.
        raise InputError(f"task '{about.name}' cannot be a module: {error.args[0]}; rename that layer") from error
    return TaskNetwork(network, about, text, scaling=scaling).eval()
