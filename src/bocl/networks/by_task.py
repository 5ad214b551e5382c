"""Several tasks' tensors, or their shapes, in one mapping with the names ``TASK/NAME``: as they are saved."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from bocl.errors import NetworkError

T = TypeVar("T")


def join_tensors(by_task: Iterable[Mapping[str, T]], first: int = 0) -> dict[str, T]:
    """Put the tensors or shapes of every task, from number ``first`` on, into one mapping."""
    return {f"{task}/{name}": value for task, values in enumerate(by_task, first) for name, value in values.items()}


def sha256_of(tensors: Mapping[str, Tensor]) -> str:
    """Return one sha256 of several tensors: of their names, types, shapes and bytes."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {plain.dtype} {tuple(plain.shape)}\n".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def part_tensors(tensors: Mapping[str, Tensor], tasks: int) -> list[dict[str, Tensor]]:
    """Undo ``join_tensors``."""
    parted: list[dict[str, Tensor]] = [{} for _ in range(tasks)]
    numbers = {str(task): task for task in range(tasks)}
    for key, tensor in tensors.items():
        task, _, name = key.partition("/")
        if task not in numbers:
            raise NetworkError(f"tensor '{key}' belongs to none of the {tasks} tasks")
        parted[numbers[task]][name] = tensor
    return parted
