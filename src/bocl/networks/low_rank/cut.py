"""Where a module can be cut in two: what comes before is the same for all children of a task, and is computed once.

A module is any code, so the cut is found by watching it run. The parts that end before the first layer with factors
begins are candidates. The last of them is the cut if the rest of the module needs nothing else: with all parts before
replaced by ones that return NaN, and the cut by one that returns what it returned, the result is the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from bocl.networks.low_rank.modules import Instead, copied, every_part_called, replace_parts

MOST_TRIED = 8  # candidates: a block has a few parts, and before it ends another


@dataclass(frozen=True)
class Cut:
    """A place between the parts of a module.

    part     whose output is all that the rest of the module needs, next to the input
    before   parts that the rest does without, the largest ones only; ``part`` is one of them
    shapes   of what each of these returns for one sample, where that is a tensor with samples first
    wrapped  whether ``part`` returns it in a tuple of one
    """

    part: str
    before: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...] | None]
    wrapped: bool


@dataclass
class _Call:
    """A part that was called: when it began and ended, by a clock of calls, and what it returned."""

    name: str
    begin: int
    end: int = -1
    result: Any = None


def first_part(module: nn.Module, cut: Cut, x: Tensor) -> Tensor:
    """Return what the cut's part returns for samples x (n, *shape): (n, …)."""

    class Found(Exception):  # noqa: N818 - not an error
        pass

    def stop(_part: nn.Module, _arguments: Any, result: Any) -> None:
        raise Found(_unwrapped(result))

    handle = module.get_submodule(cut.part).register_forward_hook(stop)
    try:
        with every_part_called():
            module(x)
    except Found as found:
        result: Tensor = found.args[0]
        return result
    finally:
        handle.remove()
    raise RuntimeError(f"'{cut.part}' was not called")  # it was when the cut was found


def without_first_part(module: nn.Module, cut: Cut) -> dict[str, Instead]:
    """Replace all that comes before a cut in a copy of the module; what is given to ``cut.part`` takes its place."""
    stand_ins = {name: Instead(wrapped=cut.wrapped and name == cut.part) for name in cut.before}
    replace_parts(module, stand_ins)
    return stand_ins


def give(stand_ins: Mapping[str, Instead], cut: Cut, value: Tensor) -> None:
    """Let the parts before a cut return ``value`` (n, …), or something of the shape that they would return.

    Where ``value`` is of shorter texts than the cut was found with, so is what the others return.
    """
    full = cut.shapes[cut.part]
    assert full is not None
    shorter = {full[0]: value.shape[1]}
    for name, part in stand_ins.items():
        shape = cut.shapes[name]
        if name == cut.part:
            part.value = value
        elif shape is not None:
            here = (shorter.get(shape[0], shape[0]), *shape[1:])
            part.value = value.new_full((1,), torch.nan).expand(len(value), *here)


def find_cut(module: nn.Module, x: Tensor, factored: Iterable[str]) -> Cut | None:
    """Return the last place before any of some layers begins at which a module can be cut; None where there is none.

    The module is watched twice, with one sample more: what has as many rows as there are samples each time has samples
    first.

    x  a few samples (n, *shape)
    """
    with torch.no_grad(), every_part_called():
        calls, whole = _watched(module, x)
        more = torch.cat([x, x[:1]])
        again, _ = _watched(module, more)
        if [call.name for call in calls] != [call.name for call in again]:
            return None  # what is called depends on the samples
        shapes_again = {call.name: _shape(call.result, more) for call in again}
        by_sample = {call.name: _shape(call.result, x) for call in calls}
        by_sample = {name: shape if shape == shapes_again[name] else None for name, shape in by_sample.items()}
        begins = [call.begin for call in calls if call.name in set(factored)]
        first = min(begins) if begins else len(calls) * 2
        ended = [call for call in calls if call.end < first]
        often = {call.name for call in calls if sum(other.name == call.name for other in calls) > 1}
        largest = [
            call
            for call in ended
            if not any(call.name.startswith(f"{other.name}.") for other in ended if other != call)
        ]
        if any(call.name in often for call in largest):
            return None  # a part that is called again has more than one result
        candidates = [call for call in largest if by_sample[call.name] is not None]
        for call in sorted(candidates, key=lambda call: -call.end)[:MOST_TRIED]:
            before = [other.name for other in largest if other.end <= call.end]
            shapes = {name: by_sample[name] for name in before}
            cut = Cut(call.name, tuple(before), shapes, isinstance(call.result, tuple))
            if _is_enough(module, cut, _unwrapped(call.result), x, whole):
                return cut
    return None


def _is_enough(module: nn.Module, cut: Cut, value: Tensor, x: Tensor, whole: Tensor) -> bool:
    """Whether a module that is cut here returns for x what the whole one does."""
    rest = copied(module)
    stand_ins = without_first_part(rest, cut)
    give(stand_ins, cut, value)
    try:
        found = rest(x)
    except (RuntimeError, TypeError, AttributeError, ValueError, IndexError):
        return False
    same = found.shape == whole.shape and torch.allclose(found, whole, rtol=1e-4, atol=1e-5)
    return bool(same)


def _watched(module: nn.Module, x: Tensor) -> tuple[list[_Call], Tensor]:
    """Run a module and return its parts as they were called, and its result."""
    calls: list[_Call] = []
    clock = iter(range(10**9))
    open_calls: list[_Call] = []

    def begin(name: str) -> Any:
        def note(_part: nn.Module, _arguments: Any) -> None:
            call = _Call(name, next(clock))
            calls.append(call)
            open_calls.append(call)

        return note

    def end(_part: nn.Module, _arguments: Any, result: Any) -> None:
        call = open_calls.pop()
        call.end, call.result = next(clock), result

    with _hooked({name: part for name, part in module.named_modules() if name}, begin, end):
        whole = module(x)
    return calls, whole


@contextmanager
def _hooked(parts: Mapping[str, nn.Module], begin: Any, end: Any) -> Iterator[None]:
    handles = [part.register_forward_pre_hook(begin(name)) for name, part in parts.items()]
    handles += [part.register_forward_hook(end) for part in parts.values()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _unwrapped(result: Any) -> Any:
    return result[0] if isinstance(result, tuple) and len(result) == 1 else result


def _shape(result: Any, x: Tensor) -> tuple[int, ...] | None:
    """Return the shape of what a part returned for one of the samples x, None where it is no tensor of samples."""
    result = _unwrapped(result)
    samples = isinstance(result, Tensor) and result.dim() > 1 and len(result) == len(x) and result.is_floating_point()
    return tuple(result.shape[1:]) if samples else None
