"""A trained module that stays as it is: the frozen base of every task that grows by low-rank factors.

The module may be any code. It must take one tensor with samples first, and return one: (n, features), or logits of a
head that every task replaces by its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from bocl.errors import NetworkError, did_you_mean
from bocl.networks.graph import Group
from bocl.networks.growth import GrowthSettings
from bocl.networks.low_rank.cut import Cut, find_cut
from bocl.networks.low_rank.modules import NORMS, every_part_called, own_tensors, replace_parts
from bocl.networks.low_rank.plan import FactoredLayer, Plan, make_plan
from bocl.settings import parse_value
from bocl.widths import Widths

NO_HEAD = "none"
_HEADS = re.compile(r"(^|\.)(_?fc|head|classifier|logits|score)(\.\d+)?$")


@dataclass(frozen=True)
class Description:
    """What identifies a module without its code.

    kind     its class
    head     the layer that every task replaces by its own; None where there is none
    tensors  the shape of every tensor, those of the head left out
    build    how it is made again, where it is a network of bocl's own: its name and arguments
    """

    kind: str
    head: str | None
    tensors: dict[str, tuple[int, ...]]
    build: dict[str, Any] | None = None


class Backbone:
    """A trained module with the layers that may have factors.

    module    a copy of the user's: in evaluation mode, without gradients, its head replaced by what the head reads
    plan      layers and their groups
    head      name of the layer that every task replaces; None where the module has none
    features  numbers that a task's head reads; None until ``fit`` has seen samples
    """

    def __init__(self, module: nn.Module, settings: GrowthSettings, device: torch.device | str = "cpu") -> None:
        if not isinstance(module, nn.Module):
            raise NetworkError(f"a network must be an nn.Module, not {type(module).__name__}: {module!r}")
        self.settings, self.device = settings, torch.device(device)
        try:
            own = deepcopy(module)
        except Exception as error:  # a module may hold anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise NetworkError(f"{type(module).__name__} cannot be copied: {reason}") from error
        self.module = own.eval().requires_grad_(False).to(self.device)
        self.head = _head_of(module, settings.head)
        self.features: int | None = None
        self.unused: tuple[str, ...] = ()
        self._cuts: dict[str, Cut | None] = {}
        self._example: Tensor | None = None
        if self.head is not None:
            replace_parts(self.module, {self.head: nn.Identity()})
        shapes = {name: tuple(tensor.shape) for name, tensor in self.tensors.items()}
        build = getattr(module, "bocl_build", None)
        self.description = Description(type(module).__name__, self.head, shapes, build)
        self.plan = self._planned(())

    def _planned(self, unused: tuple[str, ...]) -> Plan:
        settings = self.settings
        return make_plan(self.module, groups=settings.groups, depth=settings.depth, head=self.head, unused=unused)

    draws = False  # in evaluation mode nothing is dropped out

    # As of a graph: what grows.

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of layers, whose width is the largest rank that is tried first."""
        return self.plan.groups

    @property
    def widths(self) -> Widths:
        """The largest ranks that are tried first."""
        return tuple(group.width for group in self.groups)

    @property
    def no_units(self) -> Widths:
        """Rank 0 for every group: only a head is added."""
        return (0,) * len(self.groups)

    def total(self, ranks: Any) -> Widths:
        """Add ranks up, group by group."""
        return tuple(map(sum, zip(self.no_units, *ranks, strict=True)))

    # What is frozen.

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        """Every parameter and buffer of the module, its head left out."""
        return dict(self.module.state_dict())

    @cached_property
    def norms(self) -> dict[str, Tensor]:
        """What a task's own norms start from, ``norm/NAME/…``; nothing where norms stay frozen."""
        if not self.settings.own_norms:
            return {}
        return {
            f"norm/{name}/{kind}": tensor
            for name, part in self.module.named_modules()
            if isinstance(part, NORMS)
            for kind, tensor in own_tensors(part).items()
        }

    @property
    def norms_by_name(self) -> dict[str, list[str]]:
        """The norms of which a task has its own, and what they hold: weight, bias, mean, var."""
        found: dict[str, list[str]] = {}
        for key in self.norms:
            _, name, kind = key.split("/")
            found.setdefault(name, []).append(kind)
        return found

    def parameters(self) -> int:
        """Count the parameters of the module, its head left out."""
        return sum(tensor.numel() for tensor in self.module.parameters())

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Take weights that were saved, or refuse those of another module."""
        own = self.tensors
        for name in sorted(own.keys() ^ tensors.keys()):
            where = "is missing" if name in own else "belongs to nothing in the module"
            raise NetworkError(
                f"tensor '{name}' {where}; these are weights of another module than {self.description.kind}"
            )
        for name, tensor in tensors.items():
            if tensor.shape != own[name].shape:
                needed = f"{self.description.kind} needs {tuple(own[name].shape)}"
                raise NetworkError(f"tensor '{name}' has shape {tuple(tensor.shape)}; {needed}")
            with torch.no_grad():
                own[name].copy_(tensor)

    # What only samples show.

    def fit(self, x: Tensor) -> None:
        """See how the module works on a few samples (n, *shape): what a head reads, and which layers take part.

        Every task's samples are seen, to find where the module can be cut; the rest is found with the first task's.
        """
        self._example, self._cuts = x, {}
        if self.features is not None:
            self._run(x)
            return
        with every_part_called():
            features = self._run(x)
            if features.dim() != 2 or len(features) != len(x):
                raise NetworkError(
                    f"{self.description.kind} turns {len(x)} samples of shape {tuple(x.shape[1:])} into a tensor of "
                    f"shape {tuple(features.shape)}; it must give one vector of features for each: (n, features)"
                )
            self._check_head(x)
            unused = tuple(layer.name for layer in self.plan.layers if not self._takes_part(layer, x, features))
        self.features, self.unused = features.shape[1], unused
        plan = self._planned(unused)
        if plan.groups != self.plan.groups:
            lost = sorted({group.name for group in self.groups} - {group.name for group in plan.groups})
            raise NetworkError(
                f"the layers of growth.groups.{lost[0]} do not take part in what {self.description.kind} returns, "
                f"'{unused[0]}' among them; leave them out with patterns in growth.groups"
            )
        self.plan = plan

    def run(self, x: Tensor) -> Tensor:
        """Return the features (n, features) of samples x (n, *shape), without any factors."""
        with torch.no_grad(), every_part_called():
            result: Tensor = self.module(x)
        return result

    def _run(self, x: Tensor) -> Tensor:
        try:
            result = self.run(x)
        except Exception as error:  # the module may fail in any way
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise NetworkError(
                f"{self.description.kind} cannot take samples of shape {tuple(x.shape[1:])}: {reason}"
            ) from error
        if not isinstance(result, Tensor):
            raise NetworkError(
                f"{self.description.kind} returns a {type(result).__name__}; it must return one tensor, (n, features). "
                "Wrap it in a module whose forward returns what a head should read"
            )
        return result

    def _check_head(self, x: Tensor) -> None:
        """Refuse a head whose output is not the module's, and a module that ends in a layer that looks like one."""
        results: dict[str, Tensor] = {}

        def note(name: str) -> Any:
            return lambda _part, _arguments, result: results.__setitem__(name, result)

        ends = {name: part for name, part in self.module.named_modules() if isinstance(part, nn.Linear | nn.Identity)}
        handles = [part.register_forward_hook(note(name)) for name, part in ends.items()]
        try:
            with torch.no_grad():
                last = self.module(x)
        finally:
            for handle in handles:
                handle.remove()
        if self.head is not None and results.get(self.head) is not last:
            raise NetworkError(
                f"'{self.head}' was taken for the head of {self.description.kind}, but its output is not the module's; "
                f"name the head with growth.head, or set growth.head = '{NO_HEAD}' if there is none"
            )
        linear = [name for name, result in results.items() if result is last and isinstance(ends[name], nn.Linear)]
        if self.head is None and linear and self.settings.head is None:
            raise NetworkError(
                f"{self.description.kind} ends in the linear layer '{linear[0]}'. If that is its head, set growth.head "
                f"= '{linear[0]}' and every task has its own; if it gives features, set growth.head = '{NO_HEAD}'"
            )

    def _takes_part(self, layer: FactoredLayer, x: Tensor, features: Tensor) -> bool:
        """Whether what the module returns depends on a layer."""

        def spoil(_part: nn.Module, _arguments: Any, result: Tensor) -> Tensor:
            return torch.full_like(result, torch.nan)

        handle = self.module.get_submodule(layer.name).register_forward_hook(spoil)
        try:
            with torch.no_grad():
                return not torch.equal(self.module(x), features)
        finally:
            handle.remove()

    def recall(self, features: int | None, unused: tuple[str, ...]) -> None:
        """Take back what ``fit`` found, of a module that was saved."""
        self.features, self.unused = features, unused
        self.plan = self._planned(unused)

    def cut_before(self, layers: list[FactoredLayer]) -> Cut | None:
        """Return the last place before any of these layers at which the module can be cut; None where there is none."""
        if self._example is None or not layers:
            return None
        first = min(self.plan.layers.index(layer) for layer in layers)
        name = self.plan.layers[first].name
        if name not in self._cuts:
            later = [layer.name for layer in self.plan.layers[first:]]
            self._cuts[name] = find_cut(self.module, self._example, later)
        return self._cuts[name]


def to_json(backbone: Backbone) -> dict[str, Any]:
    """Return what identifies a backbone as plain JSON values."""
    groups = [asdict(group) for group in backbone.groups]
    return {"backbone": asdict(backbone.description), "groups": groups}


def description_of(data: Mapping[str, Any]) -> Description:
    """Read back what ``to_json`` wrote of a module."""
    found: Description = parse_value(Description, data["backbone"], "graph.backbone")
    return found


def _head_of(module: nn.Module, named: str | None) -> str | None:
    """Return the name of the layer that gives the logits: as the settings say, or a last one that is named like it."""
    linear = [name for name, part in module.named_modules() if isinstance(part, nn.Linear)]
    if named == NO_HEAD:
        return None
    if named is not None:
        if named not in linear:
            hint = did_you_mean(named, linear)
            raise NetworkError(f"growth.head is '{named}', which is no linear layer of {type(module).__name__}{hint}")
        return named
    last = linear[-1] if linear else ""
    return last if _HEADS.search(last) or (last and "." not in last) else None
