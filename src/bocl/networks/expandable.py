"""The network that grows: a list of growths, and one compact network per task.

Old tasks are never touched: a task's compact network is a copy made when it was committed, and growing
only appends to the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bocl.errors import NetworkError
from bocl.networks.blocks import BASE_BLOCK, frozen_network, latest_norms, with_all_they_read
from bocl.networks.by_task import join_tensors, part_tensors, sha256_of
from bocl.networks.check import BASE, check_growths, check_reads
from bocl.networks.compact import CompactNetwork, assemble
from bocl.networks.graph import Graph
from bocl.networks.growth import Growth, GrowthSettings, GrowthSpace, Shapes, count_tensors, initialise
from bocl.networks.single_task import SingleTask
from bocl.networks.stacked import Children
from bocl.settings import parse_value
from bocl.widths import Widths


class ExpandableNetwork:
    """A graph with the growths of the tasks learnt so far.

    pretrained  whether every task grows from weights that were there before the first; they are in ``base``, once given
                or restored
    """

    def __init__(
        self,
        graph: Graph,
        settings: GrowthSettings | None = None,
        device: torch.device | str = "cpu",
        *,
        pretrained: bool = False,
        base: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.graph = graph
        self.settings = settings or GrowthSettings()
        self.device = torch.device(device)
        self.pretrained = pretrained
        self.base: dict[str, Tensor] = {}
        if base is not None:
            self._take_base(base)
        self.growths: list[Growth] = []
        self.tasks: list[CompactNetwork] = []
        self._joined: dict[tuple[int, ...], CompactNetwork] = {}  # frozen networks that are no task's own

    @property
    def own_only_alike(self) -> bool:
        """Whether children that read nothing can be trained together only if they have the same widths."""
        grouped = any(layer.separate == "grouped" for layer in self.graph.layers)
        return grouped or any(norm.kind != "batch" for norm in self.graph.norms)

    @property
    def all_tasks(self) -> tuple[int, ...]:
        """The numbers of all tasks."""
        return tuple(range(len(self.growths)))

    def frozen(self, reads: tuple[int, ...] | None = None) -> CompactNetwork | None:
        """Return the network that a next task grows from if it reads these tasks; all of them unless told."""
        reads = self.all_tasks if reads is None else reads
        if not reads and not self.pretrained:
            return None
        if self._is_one_task(reads):
            return self.tasks[reads[-1]]
        if reads not in self._joined:
            own_norms = self.settings.own_norms
            self._joined[reads] = frozen_network(
                self.graph, self._blocks(), self._with_base(reads), own_norms=own_norms
            )
        return self._joined[reads]

    def _blocks(self) -> Mapping[int, Growth]:
        """Return every task's growth, and the pretrained base, which all of them read, as a growth before them."""
        tasks = {task: replace(growth, reads=self._with_base(growth.reads)) for task, growth in enumerate(self.growths)}
        if not self.pretrained:
            return tasks
        if not self.base:
            raise NetworkError("the network was made without pretrained weights; give a module with its weights")
        return {BASE_BLOCK: Growth(self.graph.widths, 0, self.base), **tasks}

    def _with_base(self, reads: tuple[int, ...]) -> tuple[int, ...]:
        return (BASE_BLOCK, *reads) if self.pretrained else reads

    def _take_base(self, tensors: Mapping[str, Tensor]) -> None:
        self.base = {name: tensor.to(self.device) for name, tensor in tensors.items()}

    def _is_one_task(self, reads: tuple[int, ...]) -> bool:
        """Whether tasks are just the last of them and what it reads."""
        return bool(reads) and reads[:-1] == self.growths[reads[-1]].reads

    def widths(self, reads: tuple[int, ...] | None = None) -> Widths:
        """Return the width of every group over these tasks and the pretrained base; over all tasks unless told."""
        read = [self.growths[task].widths for task in (self.all_tasks if reads is None else reads)]
        return self.graph.total([self.graph.widths, *read] if self.pretrained else read)

    def space(self, classes: int, reads: tuple[int, ...] | None = None) -> GrowthSpace:
        """Return the growths that a next task of so many classes may choose from if it reads these tasks."""
        return self.space_after(self.widths(reads), classes)

    def space_after(self, read: Widths, classes: int) -> GrowthSpace:
        """Return the growths of a task that reads units of so many widths."""
        return GrowthSpace(self.graph, read, classes, self.settings)

    def own_parameters(self, classes: int) -> int:
        """Count what a task of so many classes takes as a network of its own, of the base network's shape."""
        return int(GrowthSpace.first(self.graph, classes).count_all(self.graph.widths))

    def useful(self, widths: Widths) -> Widths:
        """Return these widths: every unit may be of use."""
        return widths

    def first_bounds(self) -> Widths:
        """Return the most units of each group that a task may add, unless settings say: those of the base network.

        A pretrained network is large, and knows much: an eighth of it is tried first.
        """
        return tuple(-(-width // 8) for width in self.graph.widths) if self.pretrained else self.graph.widths

    def lineage(self, task: int) -> tuple[int, ...]:
        """Return the tasks that one reads who reads this one: it, and all that it reads."""
        return with_all_they_read([task], self.growths)

    def grow(
        self,
        widths: Sequence[Widths],
        classes: int,
        *,
        seeds: Sequence[int],
        pad_to: Widths | None = None,
        dtype: torch.dtype = torch.float32,
        reads: tuple[int, ...] | None = None,
    ) -> Children:
        """Make one child per entry of ``widths``, ready to be trained together; the network stays as it is.

        reads  the tasks whose units all of them read; all tasks unless told
        """
        reads = self.all_tasks if reads is None else reads
        space, last = self.space(classes, reads), self._norms(reads)
        growths = [
            initialise(space, z, last=last, reads=reads, seed=seed, dtype=dtype)
            for z, seed in zip(widths, seeds, strict=True)
        ]
        frozen = self.frozen(reads)
        return Children(self.graph, frozen, growths, pad_to=pad_to, settings=self.settings, device=self.device)

    def _norms(self, reads: tuple[int, ...]) -> Mapping[str, Tensor] | None:
        """Return what a task's own norms of what it reads start from."""
        if not self._with_base(reads) or not self.settings.own_norms:
            return None
        if self._is_one_task(reads):
            return self.growths[reads[-1]].tensors
        return latest_norms(self.graph, self._blocks(), self._with_base(reads))

    def candidate(self, growth: Growth) -> CompactNetwork:
        """Return the compact network that committing this growth would give."""
        return assemble(self.graph, self.frozen(growth.reads), growth, own_norms=self.settings.own_norms)

    def commit(self, growth: Growth) -> None:
        """Make a trained growth part of the network, as its next task."""
        tensors = {name: tensor.detach().to(self.device, copy=True) for name, tensor in growth.tensors.items()}
        growth = replace(growth, tensors=tensors)
        self.tasks.append(self.candidate(growth))
        self.growths.append(growth)
        self._joined = {}  # made for the children of one task

    def drop_last(self) -> None:
        """Forget the last task."""
        del self.growths[-1], self.tasks[-1]
        self._joined = {}

    def stored(self, first: int = 0, last: int | None = None, /) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Return what is saved: the widths, classes and reads of every growth, and every tensor, ``TASK/NAME``.

        A growth that reads all earlier tasks has no ``reads``, as in early files. The pretrained base, which all read,
        is with the first.
        """
        kept = self.growths[first:last]
        growths = [
            {"widths": list(growth.widths), "classes": growth.classes}
            | ({} if growth.reads == tuple(range(task)) else {"reads": list(growth.reads)})
            for task, growth in enumerate(kept, first)
        ]
        base = {} if first else {f"{BASE}{name}": tensor for name, tensor in self.base.items()}
        return {"growths": growths}, {**base, **join_tensors((growth.tensors for growth in kept), first)}

    def stored_shapes(self, facts: Mapping[str, Any], classes: Sequence[int]) -> Shapes:
        """Return the shape of every saved tensor; refuse growths that do not fit the network."""
        entries = read_growths(facts, classes)
        added = {f"facts.growths[{task}].widths": entry.widths for task, entry in enumerate(entries)}
        check_growths(self.graph, added, from_nothing=not self.pretrained)
        check_reads([entry.reads for entry in entries])
        base = [self.graph.widths] if self.pretrained else []
        by_task = []
        for entry in entries:
            before = self.graph.total([*base, *(entries[task].widths for task in entry.reads)])
            by_task.append(self.space_after(before, entry.classes).shapes(entry.widths))
        return {**self._base_shapes(), **join_tensors(by_task)}

    def _base_shapes(self) -> Shapes:
        """Return the shape of every tensor of the pretrained base, ``base/NAME``."""
        if not self.pretrained:
            return {}
        shapes = GrowthSpace.first(self.graph, 1).shapes(self.graph.widths)
        return {f"{BASE}{name}": shape for name, shape in shapes.items() if not name.startswith("head/")}

    def restore(self, facts: Mapping[str, Any], tensors: Mapping[str, Tensor], classes: Sequence[int]) -> None:
        """Take back the pretrained base, and saved growths: each is committed again, in order."""
        entries = read_growths(facts, classes)
        base = {name.removeprefix(BASE): tensor for name, tensor in tensors.items() if name.startswith(BASE)}
        self._take_base(base)
        own = {name: tensor for name, tensor in tensors.items() if not name.startswith(BASE)}
        self.growths, self.tasks, self._joined = [], [], {}
        for entry, part in zip(entries, part_tensors(own, len(entries)), strict=True):
            self.commit(Growth(entry.widths, entry.classes, part, entry.reads))

    def predict(self, x: Tensor, task: int) -> Tensor:
        """Return logits (n, classes of the task)."""
        with torch.no_grad():
            return self.tasks[task](x)

    def single_task(self, task: int) -> SingleTask:
        """Return what a task computes with, apart from the others."""
        return self.tasks[task].single_task()

    def base_features(self, x: Tensor) -> Tensor:
        """Return what the pretrained network alone makes of inputs: (n, C), what its head read."""
        read = self.graph.head.source.size(self.graph.widths)
        no_head = {"head/weight": x.new_zeros(0, read), "head/bias": x.new_zeros(0)}
        alone = assemble(self.graph, None, Growth(self.graph.widths, 0, {**self.base, **no_head}))
        with torch.no_grad():
            return alone.features(x)

    def base_sha256(self) -> str:
        """Return a sha256 of the pretrained weights that tasks grow from; '' without such."""
        return sha256_of(self.base) if self.pretrained else ""

    def parameters(self) -> dict[str, int]:
        """Count what is stored, by part; the pretrained base is a part of its own."""
        base = {"base": sum(count_tensors(self.base).values())} if self.pretrained else {}
        return {**base, **count_tensors(*(growth.tensors for growth in self.growths))}

    def gate_openness(self, task: int, inputs: Tensor) -> dict[str, Tensor]:
        """Return {gated layer: mean gate on the units of every task up to this one}; NaN for tasks it does not read."""
        read = torch.tensor([*self.growths[task].reads, task], device=inputs.device)
        missing = inputs.new_full((task + 1,), torch.nan)
        found = self.tasks[task].openness(inputs)
        return {layer: missing.index_copy(0, read, means[-len(read) :]) for layer, means in found.items()}

    def parameters_by_task(self) -> list[dict[str, int]]:
        """Count what each task stored, by part: shared, heads, attention, norms."""
        return [count_tensors(growth.tensors) for growth in self.growths]


@dataclass(frozen=True)
class SavedGrowth:
    """A growth without its tensors."""

    widths: Widths
    classes: int
    reads: tuple[int, ...]


def read_growths(facts: Mapping[str, Any], classes: Sequence[int]) -> tuple[SavedGrowth, ...]:
    """Read the growths of saved facts, or refuse those that are not of tasks with these numbers of classes."""
    listed = parse_value(list[dict[str, Any]], facts["growths"], "facts.growths")
    entries = [{"reads": list(range(task)), **entry} for task, entry in enumerate(listed)]
    found: tuple[SavedGrowth, ...] = parse_value(tuple[SavedGrowth, ...], entries, "facts.growths")
    if [entry.classes for entry in found] != list(classes):
        raise NetworkError(f"facts.growths has {len(found)} entries that are not those of the {len(classes)} tasks")
    return found
