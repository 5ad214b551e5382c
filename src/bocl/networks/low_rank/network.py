"""The network that grows by low-rank factors: one frozen backbone, and a list of growths, one per task.

A task may read the factors of earlier tasks through gates of its own:

    W x + Σ_j up_j (σ(b_j) ⊙ α/√r_j down_j x) + α/√r · up (down x)        j over the tasks that it reads

Old tasks are never touched: what a task computes with is a copy made when it was committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from bocl.errors import NetworkError
from bocl.networks.by_task import join_tensors, part_tensors, sha256_of
from bocl.networks.check import BASE, check_growths, check_reads
from bocl.networks.compact import contiguous_copy
from bocl.networks.expandable import read_growths
from bocl.networks.growth import Growth, GrowthSettings, Shapes, count_tensors
from bocl.networks.low_rank.backbone import Backbone
from bocl.networks.low_rank.children import FactoredChildren, Read
from bocl.networks.low_rank.modules import WithFactors, WithOwnNorm, copied, every_part_called, replace_parts
from bocl.networks.low_rank.space import FactorSpace
from bocl.networks.single_task import SingleTask
from bocl.settings import parse_value
from bocl.widths import Widths


class TaskModule:
    """The network as one task sees it: the backbone with its factors, and its head.

    weights  factor/LAYER/down (R, in, *kernel) and up (out, R), of all tasks that it reads and its own, scaled and
             gated; and the task's own norm/…, head/…
    """

    def __init__(self, backbone: Backbone, weights: dict[str, Tensor]) -> None:
        self.weights = weights
        self.module = module = copied(backbone.module)
        parts: dict[str, nn.Module] = {}
        for layer in backbone.plan.layers:
            if f"factor/{layer.name}/down" in weights:
                down, up = (weights[f"factor/{layer.name}/{side}"] for side in ("down", "up"))
                parts[layer.name] = WithFactors(module.get_submodule(layer.name), layer, down, up)
        for name, kinds in backbone.norms_by_name.items():
            parts[name] = WithOwnNorm(
                module.get_submodule(name), {kind: weights[f"norm/{name}/{kind}"] for kind in kinds}
            )
        replace_parts(module, parts)

    def __call__(self, x: Tensor) -> Tensor:
        """Return logits (n, classes) for inputs (n, *shape)."""
        return F.linear(self.features(x), self.weights["head/weight"], self.weights["head/bias"])

    def features(self, x: Tensor) -> Tensor:
        """Return what the head reads of inputs (n, *shape): (n, features)."""
        with every_part_called():
            features: Tensor = self.module(x)
        return features


class FactoredNetwork:
    """A backbone with the growths of the tasks learnt so far."""

    pretrained = True
    own_only_alike = False

    def __init__(self, backbone: Backbone) -> None:
        self.graph = backbone
        self.settings: GrowthSettings = backbone.settings
        self.device = backbone.device
        self.growths: list[Growth] = []
        self.tasks: list[TaskModule] = []

    @property
    def all_tasks(self) -> tuple[int, ...]:
        """The numbers of all tasks."""
        return tuple(range(len(self.growths)))

    def widths(self, reads: tuple[int, ...] | None = None) -> Widths:
        """Return the rank of every group over these tasks; over all of them unless told."""
        return self.graph.total(self.growths[task].widths for task in (self.all_tasks if reads is None else reads))

    def own_parameters(self, classes: int) -> int:
        """Count what a task of so many classes takes that reads no other, at the largest ranks that are tried first."""
        return int(self.space(classes, ()).count_all(self.first_bounds()))

    def first_bounds(self) -> Widths:
        """Return the largest ranks that are tried first, unless settings say."""
        return self.useful(self.graph.widths)

    def useful(self, widths: Widths) -> Widths:
        """Return these ranks, or where no layer of a group can use so much, the largest of use."""
        return tuple(min(rank, self.graph.plan.most(group)) for group, rank in enumerate(widths))

    def lineage(self, task: int) -> tuple[int, ...]:
        """Return the tasks that one reads who reads this one: its factors alone."""
        return (task,)

    def space(self, classes: int, reads: tuple[int, ...] | None = None) -> FactorSpace:
        """Return the growths that a next task of so many classes may choose from if it reads these tasks."""
        return self.space_after(self.widths(reads), classes)

    def space_after(self, read: Widths, classes: int) -> FactorSpace:
        """Return the growths of a task that reads so much of earlier ones."""
        if self.graph.features is None:
            raise NetworkError("the module has not seen samples yet; what a head reads is not known")
        backbone = self.graph
        return FactorSpace(backbone.plan, read, classes, self.graph.features, backbone.norms, self.settings.attention)

    def grow(
        self,
        widths: Sequence[Widths],
        classes: int,
        *,
        seeds: Sequence[int],
        pad_to: Widths | None = None,
        dtype: torch.dtype = torch.float32,
        reads: tuple[int, ...] | None = None,
    ) -> FactoredChildren:
        """Make one child per entry of ``widths``, ready to be trained together; the network stays as it is."""
        reads = self.all_tasks if reads is None else reads
        space, bias = self.space(classes, reads), self.settings.gate_bias
        growths = [
            space.initialise(z, gate_bias=bias, reads=reads, seed=seed, dtype=dtype)
            for z, seed in zip(widths, seeds, strict=True)
        ]
        return FactoredChildren(self.graph, growths, self._read(reads), pad_to=pad_to, device=self.device)

    def _read(self, reads: tuple[int, ...]) -> Read:
        """Return the factors of some tasks, one after another, scaled: {layer: (down, up)}."""
        found = {}
        for layer in self.graph.plan.layers:
            read = [self.growths[task] for task in reads if self.growths[task].widths[layer.group]]
            if read:
                downs = [growth.tensors[f"factor/{layer.name}/down"] for growth in read]
                ups = [
                    growth.tensors[f"factor/{layer.name}/up"] * self._scale(growth.widths[layer.group])
                    for growth in read
                ]
                found[layer.name] = torch.cat(downs), torch.cat(ups, dim=1)
        return found

    def _scale(self, rank: int) -> float:
        """Return α/√r."""
        return float(self.settings.scale / rank**0.5)

    def candidate(self, growth: Growth) -> TaskModule:
        """Return the module that committing this growth would give."""
        read = self._read(growth.reads)
        weights = {name: tensor for name, tensor in growth.tensors.items() if not name.startswith(("factor/", "gate/"))}
        for layer in self.graph.plan.layers:
            rank, (down, up) = growth.widths[layer.group], self._own(growth, layer.name)
            parts = [(down, up * self._scale(rank))] if rank else []
            if layer.name in read:
                read_down, read_up = read[layer.name]
                gate = growth.tensors.get(f"gate/{layer.name}/unit")
                parts.insert(0, (read_down, read_up if gate is None else read_up * gate.sigmoid()))
            if parts:
                downs, ups = zip(*parts, strict=True)
                weights[f"factor/{layer.name}/down"], weights[f"factor/{layer.name}/up"] = (
                    torch.cat(downs),
                    torch.cat(ups, 1),
                )
        return TaskModule(self.graph, {name: contiguous_copy(tensor) for name, tensor in weights.items()})

    def _own(self, growth: Growth, layer: str) -> tuple[Tensor, Tensor]:
        return growth.tensors[f"factor/{layer}/down"], growth.tensors[f"factor/{layer}/up"]

    def commit(self, growth: Growth) -> None:
        """Make a trained growth part of the network, as its next task."""
        tensors = {name: tensor.detach().to(self.device, copy=True) for name, tensor in growth.tensors.items()}
        growth = replace(growth, tensors=tensors)
        self.tasks.append(self.candidate(growth))
        self.growths.append(growth)

    def drop_last(self) -> None:
        """Forget the last task."""
        del self.growths[-1], self.tasks[-1]

    def stored(self, first: int = 0, last: int | None = None, /) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved: what every growth is, and every tensor, ``TASK/NAME`` or ``base/NAME``.

        The backbone, which all compute with, is with the first.
        """
        kept = self.growths[first:last]
        growths = [
            {"widths": list(growth.widths), "classes": growth.classes, "reads": list(growth.reads)} for growth in kept
        ]
        own = join_tensors((growth.tensors for growth in kept), first)
        if first:
            return {"growths": growths}, own
        base = {f"{BASE}{name}": tensor for name, tensor in self.graph.tensors.items()}
        return {"growths": growths, **self._sample_facts()}, base | own

    def _sample_facts(self) -> dict[str, Any]:
        """Return what only samples showed of the module."""
        return {"features": self.graph.features, "unused": list(self.graph.unused)}

    def stored_shapes(self, facts: Mapping[str, Any], classes: Sequence[int]) -> Shapes:
        """Return the shape of every saved tensor; refuse growths that do not fit the module."""
        entries = read_growths(facts, classes)
        check_growths(
            self.graph,
            {f"facts.growths[{task}].widths": entry.widths for task, entry in enumerate(entries)},
            from_nothing=False,
        )
        check_reads([entry.reads for entry in entries], with_lineage=False)
        base: Shapes = {f"{BASE}{name}": tuple(tensor.shape) for name, tensor in self.graph.tensors.items()}
        if not entries:
            return base
        self._take_facts(facts)
        by_task = []
        for entry in entries:
            read = self.graph.total(entries[task].widths for task in entry.reads)
            by_task.append(self.space_after(read, entry.classes).shapes(entry.widths))
        return {**base, **join_tensors(by_task)}

    def _take_facts(self, facts: Mapping[str, Any]) -> None:
        features = parse_value(int | None, facts.get("features"), "facts.features")
        unused: tuple[str, ...] = parse_value(tuple[str, ...], facts.get("unused", []), "facts.unused")
        self.graph.recall(features, unused)

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: Sequence[int]) -> None:
        """Take back the backbone's weights and saved growths: each is committed again, in order."""
        self.graph.load({name.removeprefix(BASE): t for name, t in tensors.items() if name.startswith(BASE)})
        self._take_facts(facts)
        entries = read_growths(facts, classes)
        own = {name: tensor for name, tensor in tensors.items() if not name.startswith(BASE)}
        self.growths, self.tasks = [], []
        for entry, part in zip(entries, part_tensors(own, len(entries)), strict=True):
            self.commit(Growth(entry.widths, entry.classes, part, entry.reads))

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes of the task)."""
        with torch.no_grad():
            return self.tasks[task](x)

    def single_task(self, task: int) -> SingleTask:
        """Return what a task computes with, apart from the others."""
        base = {f"{BASE}{name}": tensor for name, tensor in self.graph.tensors.items()}
        return SingleTask("factors", self._sample_facts(), {**base, **self.tasks[task].weights})

    def base_features(self, x: Tensor) -> Tensor:
        """Return what the backbone alone makes of inputs: (n, features)."""
        return self.graph.run(x)

    def base_sha256(self) -> str:
        """Return a sha256 of the backbone's tensors."""
        return sha256_of(self.graph.tensors)

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part; the backbone is a part of its own."""
        return {"base": self.graph.parameters(), **count_tensors(*(growth.tensors for growth in self.growths))}

    def gate_openness(self, task: int, _inputs: Tensor) -> dict[str, Tensor]:
        """Return {gated layer: mean gate on the factors of every task so far}; NaN for those it does not read."""
        growth, found = self.growths[task], {}
        for layer in self.graph.plan.layers:
            gate = growth.tensors.get(f"gate/{layer.name}/unit")
            if gate is None:
                continue
            means = gate.new_full((task + 1,), torch.nan)
            ranks = [self.growths[other].widths[layer.group] for other in growth.reads]
            for other, part in zip(growth.reads, gate.sigmoid().split(ranks), strict=True):
                means[other] = part.mean()
            found[layer.name] = means
        return found

    def parameters_by_task(self) -> list[dict[str, int]]:
        """Count what each task stored, by part: shared, heads, attention, norms."""
        return [count_tensors(growth.tensors) for growth in self.growths]


def made_up_samples(shape: tuple[int, ...], padding: int | None) -> Tensor:
    """Return samples (4, *shape) that are the same on every machine: normal numbers, or token ids of several lengths.

    padding  the token id that stands for no token; None where samples are no texts
    """
    draws = np.random.RandomState(0)  # the one generator whose numbers NumPy promises to keep
    if padding is None:
        return torch.from_numpy(draws.standard_normal((4, *shape)).astype(np.float32))
    ids = torch.from_numpy(draws.randint(0, 4, (4, *shape), dtype=np.int64))  # small ones, which every vocabulary has
    lengths = (shape[-1] // torch.arange(1, 5)).clamp(min=1)
    tokens = torch.arange(shape[-1]) < lengths.unsqueeze(1)
    return torch.where(tokens, ids + (ids >= padding), padding).int()


def alike(found: Tensor, wanted: Tensor, tolerance: float) -> bool:
    """Whether two tensors differ by at most this share of the second, as lengths of vectors."""
    if found.shape != wanted.shape:
        return False
    found, wanted = found.float().cpu(), wanted.float().cpu()
    return bool((found - wanted).norm() <= tolerance * wanted.norm())
