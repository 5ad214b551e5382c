"""What every method is: one call per task, predictions for any task seen, a state that can be saved.

A method counts tasks in the order it learns them, from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from bocl.errors import DataError, InputError, NetworkError
from bocl.networks.compact import assemble
from bocl.networks.graph import Graph
from bocl.networks.growth import GrowthSettings, initialise
from bocl.networks.trace import trace
from bocl.records.events import Listener, nobody
from bocl.records.record import Trial, Widths
from bocl.tasks.task import Split, Task


@dataclass(frozen=True)
class Learned:
    """What a method did for one task.

    widths               units added to each hidden group; all of the base network's for a first task
    validation_accuracy  of the network that was kept, in compact form
    parameters           what the task added to what is stored, by part
    trials               every child of its search, z = 0 first; empty without a search
    difficulty           M_t, where it was measured
    samples              training samples shown, over all networks trained for the task
    """

    name: str
    widths: Widths
    validation_accuracy: float
    parameters: dict[str, int]
    trials: tuple[Trial, ...] = ()
    difficulty: float = math.nan
    samples: int = 0

    @property
    def added_parameters(self) -> int:
        """All parameters the task added: shared, head, attention and norms."""
        return sum(self.parameters.values())


@dataclass(frozen=True, eq=False)
class State:
    """All a method must remember, without its settings: JSON values and tensors."""

    facts: dict[str, Any]
    tensors: dict[str, Tensor]


class Method(Protocol):
    """A system that learns tasks in a row."""

    name: ClassVar[str]
    graph: Graph
    device: torch.device
    seen: list[Seen]

    def learn(self, task: Task, listen: Listener = nobody) -> Learned:
        """Learn one more task."""
        ...

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes) for the inputs of a task learnt before."""
        ...

    def parameters(self) -> dict[str, int]:
        """Count what is stored now, by part: shared, heads, attention, norms."""
        ...

    def state(self) -> State:
        """Return what has been learnt."""
        ...

    def restore(self, state: State) -> None:
        """Take back what ``state`` returned, in a method made with the same settings."""
        ...


@dataclass(frozen=True)
class Seen:
    """What is kept of a task once it is learnt: enough to check and scale later inputs."""

    name: str
    classes: int
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]

    @staticmethod
    def of(task: Task) -> Seen:
        """Return what is kept of this task."""
        return Seen(task.name, task.classes, task.input_shape, task.train.mean, task.train.std)


def as_graph(network: nn.Module | Graph) -> Graph:
    """Trace a module; a graph is taken as it is."""
    return network if isinstance(network, Graph) else trace(network)


def check_task(graph: Graph, task: Task, seen: list[Seen]) -> None:
    """Refuse a task whose samples the network cannot take, before anything is trained."""
    if seen and task.input_shape != seen[0].shape:
        raise DataError(
            f"task '{task.name}' has samples of shape {task.input_shape}, but the tasks before have {seen[0].shape}"
        )
    if seen:
        return
    growth = initialise(graph, [], graph.widths, task.classes, GrowthSettings(), seed=0)
    try:
        logits = assemble(graph, None, growth)(torch.zeros(2, *task.input_shape))
    except (RuntimeError, ValueError) as error:
        raise NetworkError(f"the network cannot take samples of shape {task.input_shape}: {error}") from error
    if logits.shape != (2, task.classes):
        raise NetworkError(
            f"the network turns a sample of shape {task.input_shape} into {tuple(logits.shape[1:])} logits; "
            f"one per class, {(task.classes,)}, is needed (is a flatten missing?)"
        )


def check_inputs(x: Tensor | np.ndarray[Any, Any], task: int, seen: list[Seen], device: torch.device) -> Tensor:
    """Return inputs as a network sees them: floats as they are, bytes scaled as the task's training samples were."""
    if not 0 <= task < len(seen):
        raise InputError(f"task {task} has not been learnt; there are {len(seen)} tasks, numbered from 0")
    x = torch.as_tensor(x)
    about = seen[task]
    if tuple(x.shape[1:]) != about.shape:
        raise DataError(f"task {task} takes samples of shape {about.shape}, not {tuple(x.shape[1:])}")
    return Split(x, torch.zeros(len(x), dtype=torch.int64), about.mean, about.std).inputs(device)


def seen_from(facts: Mapping[str, Any]) -> list[Seen]:
    """Read the tasks seen from saved facts."""
    return [
        Seen(entry["name"], entry["classes"], *(tuple(entry[name]) for name in ("shape", "mean", "std")))
        for entry in facts["seen"]
    ]


def join_tensors(by_task: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Put the tensors of every task into one mapping, named ``TASK/NAME``."""
    return {f"{task}/{name}": tensor for task, tensors in enumerate(by_task) for name, tensor in tensors.items()}


def part_tensors(tensors: Mapping[str, Tensor], tasks: int) -> list[dict[str, Tensor]]:
    """Undo ``join_tensors``."""
    parted: list[dict[str, Tensor]] = [{} for _ in range(tasks)]
    for key, tensor in tensors.items():
        task, _, name = key.partition("/")
        parted[int(task)][name] = tensor
    return parted
