"""Tensors of several tasks in one mapping, named ``TASK/NAME``: the form in which they are saved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from bocl.errors import NetworkError


def join_tensors(by_task: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Put the tensors of every task into one mapping."""
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
