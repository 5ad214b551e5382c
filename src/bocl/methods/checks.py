"""Every check a method makes: on what it is made of, the tasks it learns, the inputs it predicts, its searcher's
answers, and on how a training ended.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from bocl.errors import DataError, InputError, NetworkError, WorkError
from bocl.networks.compact import assemble
from bocl.networks.graph import Graph
from bocl.networks.growth import GrowthSettings, initialise
from bocl.networks.trace import trace
from bocl.records.record import Widths
from bocl.search.problem import Problem
from bocl.tasks.samples import as_array, check_size, check_tensor
from bocl.tasks.task import Split, Task
from bocl.wording import counted, shown

NOT_FINITE = "the loss was not finite"


@dataclass(frozen=True)
class Seen:
    """What is kept of a task once it is learnt: enough to check and scale later inputs."""

    name: str
    classes: int
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    in_bytes: bool  # its samples are uint8, which mean and std scale

    @staticmethod
    def of(task: Task) -> Seen:
        """Return what is kept of this task."""
        return Seen(task.name, task.classes, task.input_shape, task.train.mean, task.train.std, _in_bytes(task))


def seen_from(facts: Mapping[str, Any]) -> list[Seen]:
    """Read the tasks seen from saved facts."""
    return [
        Seen(
            entry["name"],
            entry["classes"],
            tuple(entry["shape"]),
            tuple(entry["mean"]),
            tuple(entry["std"]),
            entry["in_bytes"],
        )
        for entry in facts["seen"]
    ]


def as_graph(network: nn.Module | Graph) -> Graph:
    """Trace a module; a graph is taken as it is."""
    return network if isinstance(network, Graph) else trace(network)


def check_task(graph: Graph, task: Task, seen: list[Seen]) -> None:
    """Refuse a task whose samples the network cannot take, before anything is trained."""
    if not isinstance(task, Task):
        raise InputError(
            "learn() takes a Task, such as stream[0] or bocl.from_arrays([(X, y)])[0]; "
            f"got {'None' if task is None else type(task).__name__}"
        )
    if seen:
        _check_like_before(task, seen[0])
        return
    try:
        growth = initialise(graph, [], graph.widths, task.classes, GrowthSettings(), seed=0)
        logits = assemble(graph, None, growth)(torch.zeros(2, *task.input_shape))
    except (RuntimeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        raise NetworkError(f"the network cannot take samples of shape {task.input_shape}: {error}") from error
    if logits.shape != (2, task.classes):
        raise NetworkError(
            f"the network turns a sample of shape {task.input_shape} into {tuple(logits.shape[1:])} logits; "
            f"one per class, {(task.classes,)}, is needed (is a flatten missing?)"
        )


def _check_like_before(task: Task, before: Seen) -> None:
    if task.input_shape != before.shape:
        raise DataError(
            f"task '{task.name}' has samples of shape {task.input_shape}, but the tasks before have {before.shape}; "
            "bring all tasks to the same shape"
        )
    if _in_bytes(task) != before.in_bytes:
        now, then = ("uint8", "float32") if _in_bytes(task) else ("float32", "uint8")
        raise DataError(
            f"task '{task.name}' has {now} samples, but the tasks before have {then}; bring all tasks to the "
            "same type, because bytes are scaled and floats are not"
        )


def _in_bytes(task: Task) -> bool:
    return task.train.raw.dtype == torch.uint8


def check_inputs(x: Any, task: int, seen: list[Seen], device: torch.device) -> Tensor:
    """Return inputs as a network sees them.

    A task of bytes takes uint8, scaled here as its training samples were, and float32, which is taken as
    already scaled, as ``Split.inputs`` gives it. A task of floats takes numbers of any type but uint8.
    """
    if isinstance(task, bool) or not isinstance(task, Integral):
        raise InputError(f"task is {shown(task)}; give its number, an integer from 0 on")
    if not 0 <= task < len(seen):
        raise InputError(f"task {task} has not been learnt; {counted(len(seen), 'task')} so far, numbered from 0")
    about, where = seen[int(task)], f"x for task {task}: samples"
    values = x if isinstance(x, Tensor) else as_array(x, where)
    if values.ndim == 0 or tuple(values.shape[1:]) != about.shape:
        wanted = ", ".join(map(str, ("n", *about.shape)))
        raise DataError(
            f"task {task} takes samples of shape {about.shape}, and x has shape {tuple(values.shape)}; give ({wanted})"
        )
    check_size(tuple(values.shape), where)
    given = _as_tensor(values, where)
    if about.in_bytes and given.dtype not in (torch.uint8, torch.float32):
        raise DataError(
            f"{where} of type {_type_name(given)}, but the task was learnt from bytes; give uint8, or float32 scaled "
            "as Split.inputs() gives it"
        )
    if not about.in_bytes and given.dtype == torch.uint8:
        raise DataError(
            f"{where} of type uint8, but the task was learnt from floats; give float32, prepared as in training"
        )
    split = Split(given, torch.zeros(len(given), dtype=torch.int64), about.mean, about.std)
    inputs = split.inputs(device)
    if not bool(torch.isfinite(inputs).all()):
        row = int((~torch.isfinite(inputs)).nonzero()[0, 0])
        raise DataError(f"{where} hold numbers that are not finite in float32, first in sample {row}; fill them in")
    return inputs


def _as_tensor(values: Tensor | NDArray[Any], where: str) -> Tensor:
    """Return real numbers as a tensor; a tensor stays on its device."""
    if isinstance(values, Tensor):
        check_tensor(values, where)
        if values.is_complex():
            raise DataError(f"{where} of type {_type_name(values)} are not real numbers; convert them to float32")
        return values
    array = values
    if array.dtype.kind not in "fiub":
        raise DataError(f"{where} of type {array.dtype} are not numbers; convert them to float32 or uint8")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # torch has no such type
        array = array.astype(np.float64)
    # A copy in native byte order: torch takes no negative strides, and warns of arrays that cannot be written.
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def _type_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def check_trained(accuracy: float, task: str, failure: str = NOT_FINITE) -> None:
    """Refuse to keep a network whose training failed; ``accuracy`` is that of its Fit."""
    if math.isnan(accuracy):
        way_out = "; try a smaller recipe.learning_rate" if NOT_FINITE in failure else ""
        raise WorkError(f"task '{task}': {failure}{way_out}")


@contextmanager
def memory_told(way_out: str) -> Iterator[None]:
    """Turn running out of memory into a WorkError that names the settings to make smaller."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        first_line = str(error).partition("\n")[0]
        raise WorkError(f"there is not enough memory to learn the task ({first_line}); try {way_out}") from error


def is_out_of_memory(error: Exception) -> bool:
    """Whether an error says that memory ran out, on whatever device."""
    # The CPU's allocator raises a plain RuntimeError, so its words are all there is to go by.
    words = (
        "not enough memory",
        "can't allocate memory",
        "out of memory",
        "Storage size calculation overflowed",
        "CUBLAS_STATUS_ALLOC_FAILED",
    )
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return type(error) is RuntimeError and any(word in str(error) for word in words)


def check_searcher(searcher: Any) -> None:
    """Refuse an object that cannot be asked, told and done with."""
    missing = [name for name in ("ask", "tell", "best") if not callable(getattr(searcher, name, None))]
    if missing:
        raise InputError(
            f"the searcher, of type {type(searcher).__name__}, has no {', '.join(missing)}; it needs ask(count), "
            "tell(trials) and best()"
        )


def asked_widths(answer: Any, problem: Problem, trained: Collection[Widths]) -> list[Widths]:
    """Return a searcher's answer to ask() as new widths within bounds and budget; empty when it is done."""
    if answer is None or isinstance(answer, str | Mapping) or not hasattr(answer, "__iter__"):
        raise InputError(f"the searcher's ask() returned {answer!r}; it must return a list of widths, or [] to stop")
    asked: list[Widths] = []
    for entry in answer:
        z = as_widths(entry, problem.bounds, "ask()")
        if z in trained or z in asked:
            raise InputError(f"the searcher's ask() gave {z}, which is trained or asked for already; ask for new ones")
        asked.append(z)
    row = np.array(asked, dtype=np.int64).reshape(-1, len(problem.bounds))
    for z, allowed, added in zip(asked, problem.allowed(row), problem.parameters(row), strict=True):
        if not allowed:
            raise InputError(
                f"the searcher's ask() gave {z}, which adds {added:,} parameters; the budget is {problem.budget:,}: "
                "ask only for what Problem.allowed() allows"
            )
    return asked


def as_widths(answer: Any, bounds: Widths, call: str) -> Widths:
    """Return one entry of a searcher's answer as a tuple of integers; ``call`` names where it came from."""
    entries = answer.tolist() if isinstance(answer, np.ndarray | Tensor) else answer
    right = isinstance(entries, list | tuple) and len(entries) == len(bounds)
    right = right and all(isinstance(units, Integral) and not isinstance(units, bool) for units in entries)
    if not right or not all(0 <= units <= bound for units, bound in zip(entries, bounds, strict=True)):
        shown = " ".join(repr(answer).split())
        raise InputError(
            f"the searcher's {call} gave the widths {shown}; widths are {counted(len(bounds), 'integer')} from 0 to "
            f"the bounds {bounds}"
        )
    return tuple(int(units) for units in entries)
