"""A trained module that stays as it is: the frozen base of every task that grows by low-rank factors.

The module may be any code. It must take one tensor with samples first, and return one: (n, features), or logits of a
head that every task replaces by its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import copy, deepcopy
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin

from bocl.errors import NetworkError, did_you_mean
from bocl.networks.compact import contiguous_copy
from bocl.networks.graph import Group
from bocl.networks.growth import GrowthSettings
from bocl.networks.low_rank.cut import Cut, find_cut
from bocl.networks.low_rank.modules import NORMS, every_part_called, own_tensors, replace_parts
from bocl.networks.low_rank.plan import FactoredLayer, Plan, make_plan
from bocl.networks.low_rank.trial_run import (
    check_copies_train,
    check_factors_train,
    check_head,
    check_padding,
    check_rows,
    check_together,
    check_training,
    features_of,
    run_module,
    takes_part,
)
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
    plan      layers and their groups; one group without layers where no layer gets factors
    head      name of the layer that every task replaces; None where the module has none
    features  numbers that a task's head reads; None until ``fit`` has seen samples
    """

    def __init__(self, module: nn.Module, settings: GrowthSettings | None, device: torch.device | str = "cpu") -> None:
        """Take a copy of a module; without settings none of its layers gets factors, and its head is found by name."""
        check_kind(module)
        self._has_factors = settings is not None
        self.settings, self.device = settings or GrowthSettings(form="low-rank"), torch.device(device)
        try:
            own = deepcopy(module)
        except Exception as error:  # a module may hold anything
            reason = " ".join(f"{type(error).__name__}: {error}".split())
            raise NetworkError(f"{type(module).__name__} cannot be copied: {reason}") from error
        for tensor in (*own.parameters(), *own.buffers()):
            tensor.data = contiguous_copy(tensor)  # as from a file: kernels differ by strides, and bits by kernels
        self.module = own.eval().requires_grad_(False).to(self.device)
        self.head = head_of(module, self.settings.head)
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
        self._check_changed_parts()

    def _planned(self, unused: tuple[str, ...]) -> Plan:
        if not self._has_factors:
            return Plan((), (Group("module", 1),))  # records have a number for one group at least
        settings = self.settings
        return make_plan(self.module, groups=settings.groups, depth=settings.depth, head=self.head, unused=unused)

    def without_factors(self) -> Backbone:
        """Return the same module, as it is where none of its layers gets factors."""
        made = copy(self)
        made._has_factors, made.norms = False, {}
        made.recall(None, ())
        return made

    def _check_changed_parts(self) -> None:
        """Refuse layers and norms that cannot have tensors of each task next to them."""
        for name in (*(layer.name for layer in self.plan.layers), *self.norms_by_name):
            part: Any = self.module.get_submodule(name)
            weight = getattr(part, "weight", None)
            if weight is not None and weight.dtype != torch.float32:
                raise NetworkError(
                    f"'{name}' of {self.description.kind} is {weight.dtype}, and tasks learn in torch.float32; convert "
                    "the module with .float()"
                )
            if getattr(part, "track_running_stats", False) and part.momentum is None:
                raise NetworkError(
                    f"'{name}' has momentum=None, which no task's own norm can have; give it a momentum, or set "
                    "growth.norms = 'frozen'"
                )

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
            if type(part) in NORMS  # a subclass may do more
            for kind, tensor in own_tensors(part).items()
        }

    @property
    def norms_by_name(self) -> dict[str, list[str]]:
        """The norms of which a task has its own, and what they hold: weight, bias, mean, var."""
        found: dict[str, list[str]] = {}
        for key in self.norms:
            name, _, kind = key.removeprefix("norm/").rpartition("/")
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

    def fit(self, x: Tensor, *, columns: int | None = None, advice: str = "") -> None:
        """See how the module works on a few samples (n, *shape): what a head reads, and which layers take part.

        columns  of token ids: so many hold all tokens of the first text
        advice   what ends the message where the module fails on samples of their shape

        Every task's samples are seen, to find where the module can be cut; the rest is found with the first task's.
        """
        before = self._example
        if self.features is not None and (before is None or before.shape[1:] == x.shape[1:]):
            run_module(self.module, x.clone(), self.description.kind, advice)
            self._example, self._cuts = x, {}
            return
        self.recall(None, ())
        try:
            self._fit_first(x, columns, advice)
        except BaseException:
            self.recall(None, ())
            raise

    def _fit_first(self, x: Tensor, columns: int | None, advice: str) -> None:
        """Find all that samples show, and refuse a module that cannot be used, before any task is learnt."""
        kind, settings, trial = self.description.kind, self.settings, deepcopy(self.module)
        features = features_of(trial, x, kind, self.tensors, advice)
        if columns is not None:
            check_padding(trial, x, kind, features, columns)
        named = settings.head is not None
        check_head(trial, x, kind, self.head, has_setting=self._has_factors, named=named)
        groups = self.groups
        used = [layer.name for layer in self.plan.layers if takes_part(trial, layer.name, x, features)]
        unused = tuple(layer.name for layer in self.plan.layers if layer.name not in used)
        self.recall(features.shape[1], unused)
        lost = [group.name for group in groups if group not in self.groups]
        if lost:
            raise NetworkError(
                f"no layer of the group '{lost[0]}' takes part in what {kind} returns; leave it out with patterns in "
                "growth.groups"
            )
        self._example, self._cuts = x, {}
        if not self._has_factors:
            check_training(trial, x, kind, features)
            check_copies_train(trial, x, kind)
        else:
            check_rows(trial, x, kind, [*used, *self.norms_by_name])
            check_together(self, x)
            check_factors_train(self, trial, x, features)

    def run(self, x: Tensor) -> Tensor:
        """Return the features (n, features) of samples x (n, *shape), without any factors."""
        with torch.no_grad(), every_part_called():
            result: Tensor = self.module(x)
        return result

    def recall(self, features: int | None, unused: tuple[str, ...]) -> None:
        """Take back what ``fit`` found, of a module that was saved."""
        self.features, self.unused = features, unused
        self.plan = self._planned(unused)
        self._example, self._cuts = None, {}

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


def check_kind(module: nn.Module) -> None:
    """Refuse what is no module with weights that can be copied, trained around and saved by name."""
    if not isinstance(module, nn.Module):
        raise NetworkError(f"a network must be an nn.Module, not {type(module).__name__}: {module!r}")
    kind = type(module).__name__
    for name, part in module.named_modules():
        called = f"'{name}' of {kind}" if name else kind
        if isinstance(part, torch.jit.ScriptModule) or hasattr(part, "_orig_mod"):
            raise NetworkError(f"{called} is compiled ({type(part).__name__}); give the nn.Module it was made from")
        if isinstance(part, LazyModuleMixin) and part.has_uninitialized_params():  # type: ignore[misc]
            raise NetworkError(f"{called} is lazy and has no weights yet; call the module once on samples first")
        if ".quantized" in type(part).__module__:
            raise NetworkError(f"{called} is quantised, which cannot be trained; give the module as it was before")
    for name, tensor in module.state_dict().items():
        if not isinstance(tensor, Tensor):
            raise NetworkError(
                f"{kind} keeps '{name}' in its state, which is no tensor and would not be saved; make it a buffer, or "
                "leave out get_extra_state()"
            )
        if tensor.is_meta:
            raise NetworkError(f"'{name}' of {kind} is on the meta device and has no values; load its weights first")


def head_of(module: nn.Module, named: str | None) -> str | None:
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
