"""Children of the benchmark's MLP as a JAX user would train them: masked networks, `vmap` over them, one `jit`.

python -m replication.speed.in_jax [--children 1,4,16,32,64] [--quick] [--json]

Both sides train the same growth, without gates, of the same frozen network on the same samples with the recipe of
`bocl bench`; on a GPU both multiply in TF32. In JAX a child is a network of its whole size in which a mask lets only
new weights change. An epoch is one `lax.scan` over batches, so nothing but one call comes from Python. Compiling is
not timed. JAX is in no extra of bocl: who has it, can compare.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import torch

from bocl.benchmarks.speed import Case, cases, known_network, seconds_and_memory, train_together
from bocl.networks.growth import PAPERS_WAY
from bocl.training.device import resolve_device
from bocl.training.steps import StepCache

UNGATED = replace(PAPERS_WAY, attention=False)
Parameters = dict[str, Any]  # of JAX


@dataclass(frozen=True)
class Side:
    """One measurement."""

    side: str
    children: int
    ms_per_child_epoch: float


def masked_epoch(case: Case, known: dict[str, torch.Tensor], count: int) -> tuple[Callable[..., Any], Parameters]:
    """Return an epoch of K masked networks, and their first weights, every tensor (K, …).

    W = known + mask · own, where known holds the frozen weights in its corner and mask is 0 there
    """
    import jax
    import jax.numpy as jnp

    sizes = [case.shape[0], *(known[f"{name}/bias"].shape[0] for name in ("fc1", "fc2"))]
    whole = [sizes[0], *(old + new for old, new in zip(sizes[1:], case.widths, strict=True)), 10]
    frozen: Parameters = {}
    mask: Parameters = {}
    own: Parameters = {}
    keys = jax.random.split(jax.random.PRNGKey(0), 3)
    for at, layer in enumerate(("fc1", "fc2", "head")):
        shape, bias = (whole[at + 1], whole[at]), (whole[at + 1],)
        weight, is_new, of_bias = jnp.zeros(shape), jnp.ones(shape), jnp.ones(bias)
        start = jnp.zeros(bias)
        if layer != "head":  # every task has a head of its own
            old, old_bias = (jnp.asarray(known[f"{layer}/{part}"].cpu().numpy()) for part in ("weight", "bias"))
            rows, columns = old.shape
            weight, start = weight.at[:rows, :columns].set(old), start.at[:rows].set(old_bias)
            is_new, of_bias = is_new.at[:rows].set(0), of_bias.at[:rows].set(0)  # old units read no new ones
        frozen |= {f"{layer}/weight": weight, f"{layer}/bias": start}
        mask |= {f"{layer}/weight": is_new, f"{layer}/bias": of_bias}
        own[f"{layer}/weight"] = jax.random.normal(keys[at], (count, *shape)) / whole[at] ** 0.5
        own[f"{layer}/bias"] = jnp.zeros((count, *bias))

    def loss(own: Parameters, x: Any, labels: Any) -> Any:
        w = {name: frozen[name] + mask[name] * own[name] for name in own}
        for layer in ("fc1", "fc2"):
            x = jax.nn.relu(x @ w[f"{layer}/weight"].T + w[f"{layer}/bias"])
        logits = x @ w["head/weight"].T + w["head/bias"]
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    recipe = case.recipe
    gradients = jax.vmap(jax.grad(loss), in_axes=(0, None, None))

    def epoch(own: Parameters, moments: Parameters, inputs: Any, labels: Any, order: Any) -> Any:
        def step(carried: Any, batch: Any) -> Any:
            own, moments = carried
            slopes = gradients(own, inputs[batch], labels[batch])
            slopes = {name: slopes[name] + recipe.weight_decay * mask[name] * own[name] for name in own}
            moments = {name: recipe.momentum * moments[name] + slopes[name] for name in own}
            own = {name: own[name] - recipe.learning_rate * moments[name] for name in own}
            return (own, moments), None

        return jax.lax.scan(step, (own, moments), order)[0]

    return jax.jit(epoch), own


def in_jax(case: Case, known: dict[str, torch.Tensor], task: Any, count: int) -> float:
    """Return the seconds of one epoch, the best of three after one that compiles."""
    import jax
    import jax.numpy as jnp

    epoch, own = masked_epoch(case, known, count)
    inputs, labels = (jnp.asarray(part.cpu().numpy()) for part in (task.train.inputs, task.train.labels))
    moments = {name: jnp.zeros_like(tensor) for name, tensor in own.items()}
    steps, best = case.recipe.steps(case.samples), float("inf")
    for trial in range(4):
        shuffled = jax.random.permutation(jax.random.PRNGKey(trial), case.samples)
        order = shuffled[jnp.arange(steps * case.recipe.batch_size) % case.samples].reshape(steps, -1)
        jax.block_until_ready(order)
        began = time.perf_counter()
        own, moments = jax.block_until_ready(epoch(own, moments, inputs, labels, order))
        if trial:
            best = min(best, time.perf_counter() - began)
    return best


def measure(counts: list[int], *, quick: bool, tell: Callable[[Side], None]) -> list[Side]:
    """Measure both sides in turn for every number of children."""
    device = resolve_device("auto")
    (case,) = (case for case in cases(device, quick) if case.network == "mlp")
    network, task = known_network(case, device, UNGATED)
    frozen = network.frozen()
    assert frozen is not None
    known = {name.removeprefix("layer/"): tensor for name, tensor in frozen.weights.items()}
    rows = []
    for count in counts:
        ours = partial(train_together, case, network, task, count, StepCache())
        ours_takes = seconds_and_memory(ours, device)[0] / case.recipe.epochs_of(case.recipe.steps(case.samples))
        for side, seconds in (("ours", ours_takes), ("JAX", in_jax(case, known, task, count))):
            rows.append(Side(side, count, round(1e3 * seconds / count, 3)))
            tell(rows[-1])
    return rows


def main() -> None:
    """Measure, and print a line or JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--children", default="1,4,16,32,64", help="how many at once, separated by commas")
    parser.add_argument("--quick", action="store_true", help="fewer samples")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    try:
        import jax
    except ImportError:
        parser.error("JAX is not installed")

    def tell(row: Side) -> None:
        if not asked.json:
            print(f"{row.side:5} {row.children:3} children  {row.ms_per_child_epoch:10.3f} ms per child and epoch")

    rows = measure([int(word) for word in asked.children.split(",")], quick=asked.quick, tell=tell)
    if asked.json:
        versions = {"jax": jax.__version__, "torch": torch.__version__, "device": jax.devices()[0].device_kind}
        print(json.dumps({"versions": versions, "rows": [asdict(row) for row in rows]}, indent=1))


if __name__ == "__main__":
    main()
