"""Whether samples of several requests may share a batch: do a sample's bits depend on the batch it is computed in?

python -m replication.speed.batches
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

import bocl

SIZES = (2, 4, 8, 16, 64)
FIXED = 16
NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp, 48 and 24 units": (lambda: bocl.mlp(64, [48, 24]), (64,)),
    "mlp, 300 and 100 units": (lambda: bocl.mlp(784, [300, 100]), (784,)),
    "mlp, 2000 and 2000 units": (lambda: bocl.mlp(784, [2000, 2000]), (784,)),
    "convnet": (lambda: bocl.convnet(3), (3, 32, 32)),
    "resnet": (lambda: bocl.resnet(3), (3, 32, 32)),
}


def learnt(network: nn.Module, shape: tuple[int, ...]) -> bocl.Learner:
    """Return a learner of two random tasks."""
    random = np.random.default_rng(0)
    pairs = [(random.normal(size=(200, *shape)).astype(np.float32), np.arange(200) % 10) for _ in range(2)]
    learner = bocl.Fixed(network, recipe=bocl.Recipe(epochs=1, batch_size=50), device="cpu")
    for task in bocl.from_arrays(pairs):
        learner.learn(task)
    return learner


def changed_rows(predict: Callable[[Tensor], Tensor], x: Tensor, size: int) -> int:
    """Count the samples whose logits alone have other bits than in a batch of this size."""
    alone = torch.cat([predict(row) for row in x.split(1)])
    return int((torch.cat([predict(batch) for batch in x.split(size)]) != alone).any(1).sum())


def changed_places(predict: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """Count the places in a batch of a fixed size, among any neighbours, at which a sample has other bits."""
    random, found = torch.Generator().manual_seed(0), []
    for trial in range(10 * FIXED):
        batch = 10 ** (trial % 7 - 3) * torch.randn(FIXED, *x.shape[1:], generator=random)
        batch[trial % FIXED] = x[0]
        found.append(predict(batch)[trial % FIXED])
    return sum(bool((logits != found[0]).any()) for logits in found)


def milliseconds(predict: Callable[[Tensor], Tensor], x: Tensor) -> float:
    """Return the CPU time of the best of many calls, which others on the machine disturb least."""
    best = math.inf
    for _ in range(50):
        began = time.process_time()
        predict(x)
        best = min(best, time.process_time() - began)
    return 1e3 * best


def main() -> None:
    """Print a line for every network."""
    print(f"{torch.get_num_threads()} thread, PyTorch {torch.__version__}, second task of two")
    for name, (make, shape) in NETWORKS.items():
        learner = learnt(make(), shape)
        x = torch.randn(64, *shape, generator=torch.Generator().manual_seed(1))

        def predict(batch: Tensor, learner: bocl.Learner = learner) -> Tensor:
            return learner.predict(batch, 1)

        changed = ", ".join(f"{changed_rows(predict, x, size)} in {size}s" for size in SIZES)
        times = " ".join(f"{milliseconds(predict, x[:size]):.2f}" for size in (1, FIXED))
        print(f"{name}: of 64 samples, other bits than alone: {changed}")
        places = changed_places(predict, x)
        print(f"    in {10 * FIXED} batches of {FIXED}, other bits: {places}; ms of CPU for 1, {FIXED}: {times}")


if __name__ == "__main__":
    main()
