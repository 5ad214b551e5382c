"""What every method is: one call per task, predictions for any task seen, a state that can be saved.

A method counts tasks in the order it learns them, from 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from bocl.errors import NetworkError
from bocl.methods.checks import Seen
from bocl.networks.graph import Graph
from bocl.records.events import Listener, nobody
from bocl.records.record import Diagnostics, Trial, Widths
from bocl.tasks.task import Task
from bocl.training.trainer import Effort

MEMORY = "memory/"  # begins the names of tensors that a method keeps beside its networks


@dataclass(frozen=True)
class Learned:
    """What a method did for one task.

    widths               units added to each hidden group; all of the base network's for a first task
    validation_accuracy  of the network that was kept, in compact form
    parameters           what the task added to what is stored, by part
    trials               every child of its search, z = 0 first; empty without a search
    difficulty           M_t, where it was measured
    effort               samples shown and seconds spent, over all networks trained for the task
    diagnostics          of its search, where the searcher has any
    units                how many units of each hidden group the method's own steps were about, by step (DEN's)
    """

    name: str
    widths: Widths
    validation_accuracy: float
    parameters: dict[str, int]
    trials: tuple[Trial, ...] = ()
    difficulty: float = math.nan
    effort: Effort = field(default_factory=Effort)
    diagnostics: Diagnostics | None = None
    units: dict[str, Widths] = field(default_factory=dict)

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
    """A system that learns tasks in a row.

    forgets  whether learning a task may change what earlier tasks compute with
    """

    name: ClassVar[str]
    forgets: ClassVar[bool]
    graph: Graph
    device: torch.device
    seen: list[Seen]

    def learn(self, task: Task, listen: Listener = nobody) -> Learned:
        """Learn one more task."""
        ...

    def predict(self, x: Any, task: int) -> Tensor:
        """Return logits (n, classes) for the inputs of a task learnt before; ``check_inputs`` says what x may be."""
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


@runtime_checkable
class KeepsToBudget(Protocol):
    """A method that may be given a number of parameters to keep to."""

    def check_budget(self, classes: int) -> None:
        """Refuse, before anything is trained, a budget that tasks of as many classes exceed even if nothing grows."""
        ...


def join_tensors(by_task: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Put the tensors of every task into one mapping, named ``TASK/NAME``."""
    return {f"{task}/{name}": tensor for task, tensors in enumerate(by_task) for name, tensor in tensors.items()}


def part_tensors(tensors: Mapping[str, Tensor], tasks: int) -> list[dict[str, Tensor]]:
    """Undo ``join_tensors``."""
    parted: list[dict[str, Tensor]] = [{} for _ in range(tasks)]
    numbers = {str(task): task for task in range(tasks)}
    for key, tensor in tensors.items():
        task, _, name = key.partition("/")
        if task not in numbers:
            raise NetworkError(f"tensor '{key}' is of none of the {tasks} there are")
        parted[numbers[task]][name] = tensor
    return parted


def take_memory(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Return what a method keeps beside its network, names without ``MEMORY``, and the network's own tensors."""
    memory = {name.removeprefix(MEMORY): tensor for name, tensor in tensors.items() if name.startswith(MEMORY)}
    return memory, {name: tensor for name, tensor in tensors.items() if not name.startswith(MEMORY)}
