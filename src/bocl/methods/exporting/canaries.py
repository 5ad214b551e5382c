"""The check of every export: samples go through what was written, and their logits are compared with the learner's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from bocl.errors import InputError, WorkError
from bocl.methods.method import Learner
from bocl.networks.low_rank.network import made_up_samples

#: As an audit allows, of the largest logit: rounding differs between kernels, devices and machines.
MOST = 1e-3


@dataclass(frozen=True, eq=False)
class Canaries:
    """Samples of a task as they came, (n, *shape), and the logits that belong to them, (n, classes); on the CPU.

    stored  whether the logits were stored when the task was learnt
    """

    samples: Tensor
    logits: Tensor
    stored: bool = True


def made_up_canaries(learner: Learner, number: int) -> Canaries:
    """Return samples that are the same on every machine, in the task's scale, and the learner's logits for them."""
    about = learner.seen[number]
    samples = made_up_samples(about.shape, about.padding)
    if about.in_bytes:
        samples = (samples * 64 + 128).clamp(0, 255).to(torch.uint8)
    elif about.padding is None:
        scale = [torch.tensor(values).reshape(-1, *(1,) * (len(about.shape) - 1)) for values in (about.mean, about.std)]
        samples = samples * scale[1] + scale[0]
    try:
        logits = learner.predict(samples, number)
    except Exception as error:  # a module of the user's may fail in any way on samples that are none of a task
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        raise InputError(
            f"task '{about.name}' cannot be checked with made-up samples ({reason}); export it from its run, which has "
            "stored some (bocl export)"
        ) from error
    return Canaries(samples, logits.cpu(), stored=False)


def check_logits(compute: Callable[[Tensor], Tensor], canaries: Canaries, what: str) -> float:
    """Refuse what gives other logits than those wanted; return the largest difference, as a share of the largest logit.

    compute  samples (n, *shape) as they came → logits (n, classes)
    """
    found = compute(canaries.samples)
    wanted = canaries.logits
    if found.shape != wanted.shape:
        raise WorkError(
            f"{what} gives logits of shape {tuple(found.shape)}, not {tuple(wanted.shape)}; nothing was kept"
        )
    gap = (found.float() - wanted).abs().max() if len(wanted) else torch.zeros(())
    share = float(gap / wanted.abs().max().clamp(min=torch.finfo(torch.float32).tiny)) if len(wanted) else 0.0
    if not share <= MOST:
        raise WorkError(
            f"{what} gives other logits than the task, by up to {share:.2g} of the largest; nothing was kept"
        )
    return share
