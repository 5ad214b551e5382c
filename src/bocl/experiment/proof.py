"""What is written when a task is finished, so that it can be checked later: hashes and canaries.

After each task some of the earlier ones are checked by it; an audit checks all.

A canary is an input whose logits are kept. If they are still the same, the task still computes the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor

from bocl.errors import NetworkError
from bocl.methods.method import Learner
from bocl.tasks.task import Task

CANARIES = 16
MOST_CHECKED = 16  # earlier tasks after each task, so that a late task takes no longer than an early one


def checked_again(done: int) -> list[int]:
    """Return which of ``done`` earlier tasks are checked after one more: all in turn, so many at a time."""
    begin = 0
    for earlier in range(1, done):
        begin = (begin + MOST_CHECKED) % earlier
    return sorted({(begin + step) % done for step in range(min(MOST_CHECKED, done))})


def hashes(tensors: Mapping[str, Tensor]) -> dict[str, str]:
    """Return the sha256 of every tensor: of its type, shape and bytes."""
    return {name: _sha256(tensor) for name, tensor in sorted(tensors.items())}


def _sha256(tensor: Tensor) -> str:
    plain = tensor.detach().cpu().contiguous()
    digest = hashlib.sha256(f"{plain.dtype} {tuple(plain.shape)}\n".encode("ascii"))
    digest.update(plain.numpy().data)  # read in place, not copied
    return digest.hexdigest()


def changed_tensor(tensors: Mapping[str, Tensor], recorded: Mapping[str, str]) -> str | None:
    """Return the name of a tensor that is not as recorded, or None."""
    found = hashes(tensors)
    return next((name for name in sorted({*found, *recorded}) if found.get(name) != recorded.get(name)), None)


def make_canaries(learner: Learner, task: Task) -> dict[str, Tensor]:
    """Return the first validation samples of a task, as they came, and their logits."""
    inputs = task.validation.raw[:CANARIES]
    return {"inputs": inputs, "logits": learner.predict(inputs, task.index)}


def canary_drift(method: Learner, index: int, canaries: Mapping[str, Tensor]) -> float:
    """Return how far the logits are from those recorded, relative to the largest of them; 0.0 for the same bits."""
    if canaries.keys() != {"inputs", "logits"}:
        raise NetworkError(f"it holds {', '.join(map(repr, sorted(canaries)))}, not 'inputs' and 'logits'")
    now = method.predict(canaries["inputs"], index).cpu()
    then = canaries["logits"]
    if (now.shape, now.dtype) != (then.shape, then.dtype):
        raise NetworkError(f"its logits are {then.dtype} of shape {tuple(then.shape)}, not those of its inputs")
    if torch.equal(now, then):
        return 0.0
    return float((now - then).abs().max() / then.abs().max().clamp(min=1.0))
