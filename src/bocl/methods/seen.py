"""The tasks a learner has seen: what it keeps of each, and which tasks and inputs it takes after them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bocl.errors import DataError, InputError, NetworkError, did_you_mean
from bocl.methods.failures import is_out_of_memory
from bocl.methods.shape_advice import advice_for_module, advice_for_network, advice_for_task
from bocl.networks.check import check_takes
from bocl.networks.compact import assemble
from bocl.networks.graph import Graph
from bocl.networks.growth import GrowthSpace, initialise
from bocl.networks.low_rank.backbone import Backbone
from bocl.settings import parse_value
from bocl.tasks.labels import Label, label_from_json
from bocl.tasks.samples import as_array, check_size, check_tensor
from bocl.tasks.task import Scaling, Task
from bocl.tasks.texts import TextFormat, are_texts
from bocl.training.batches import columns_for, token_lengths
from bocl.wording import counted, shown

EXAMPLES = 4  # samples that a module of any kind is watched on
TEXTS = 1000  # among which a short one is looked for
_INT32 = 2**31 - 1


@dataclass(frozen=True)
class SeenTask:
    """What is kept of a task once it is learnt: enough to check and scale later inputs."""

    name: str
    classes: int
    shape: tuple[int, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    in_bytes: bool  # its samples are uint8
    labels: tuple[Any, ...] = ()  # what people call its classes; none where they are the numbers from 0
    columns: tuple[str, ...] = ()  # what people call its features, if it was a table
    padding: int | None = None  # of samples that are token ids: the one that stands for no token

    @staticmethod
    def of(task: Task) -> SeenTask:
        """Return what is kept of this task."""
        mean, std = task.train.mean, task.train.std
        shape, in_bytes = task.input_shape, _in_bytes(task)
        padding = task.train.padding
        return SeenTask(task.name, task.classes, shape, mean, std, in_bytes, task.labels, task.columns, padding)

    @cached_property
    def _scalings(self) -> dict[torch.device, Scaling]:
        return {}

    def scaling(self, device: torch.device) -> Scaling:
        """Return what scales its samples on a device, made once: predicting one sample takes less time."""
        if device not in self._scalings:
            self._scalings[device] = Scaling(self.mean, self.std, self.shape, device)
        return self._scalings[device]

    @cached_property
    def scaled_bytes(self) -> tuple[float, float]:
        """The least and the greatest number that a byte may become once scaled."""
        ends = torch.tensor([[0.0], [1.0]]).sub(torch.tensor(self.mean)).div(torch.tensor(self.std))
        return float(ends.min()), float(ends.max())

    @property
    def class_labels(self) -> tuple[Label, ...]:
        """What its classes are called, in the order of the logits."""
        return self.labels or tuple(range(self.classes))


def seen_from(facts: Mapping[str, Any], graph: Graph | Backbone) -> list[SeenTask]:
    """Read the tasks seen from saved facts, or refuse those that this network cannot have learnt."""
    seen: tuple[SeenTask, ...] = parse_value(tuple[SeenTask, ...], facts["seen"], "facts.seen")
    seen = tuple(replace(entry, labels=tuple(map(label_from_json, entry.labels))) for entry in seen)
    for index, entry in enumerate(seen):
        if entry.labels and not len(set(entry.labels)) == len(entry.labels) == entry.classes:
            raise NetworkError(f"facts.seen[{index}] has {entry.classes} classes and other labels than one for each")
        sound = entry.classes >= 1 and entry.shape and min(entry.shape) >= 1 and entry.shape == seen[0].shape
        if not sound or not {len(entry.mean), len(entry.std)} <= {1, entry.shape[0]}:
            raise NetworkError(f"facts.seen[{index}] has classes, a shape, a mean or a std that cannot be")
        if isinstance(graph, Graph):
            check_takes(graph, entry.shape, entry.classes)
    return list(seen)


def text_from(facts: Mapping[str, Any]) -> TextFormat | None:
    """Read from saved facts how texts become samples; None where tasks are no texts."""
    found: TextFormat | None = parse_value(TextFormat | None, facts.get("text"), "facts.text")
    return found


def check_text(task: Task, before: TextFormat | None, seen: Sequence[SeenTask]) -> None:
    """Refuse a task whose texts were turned into token ids in another way than those of the tasks before."""
    if not isinstance(task, Task) or not seen or task.text == before:
        return
    same = task.text is not None and before is not None and task.text.tokenizer == before.tokenizer
    raise DataError(
        f"task '{task.name}' {'was' if same else 'comes with another tokenizer, or was'} made from texts in another "
        "way than the tasks before; give all tasks the same tokenizer, length and truncate"
    )


def check_task(graph: Graph | Backbone, task: Task, seen: Sequence[SeenTask]) -> None:
    """Refuse a task whose samples the network cannot take, before anything is trained."""
    if not isinstance(task, Task):
        several = hasattr(task, "test_split") or (isinstance(task, list | tuple) and isinstance((*task, None)[0], Task))
        one_by_one = ", one at a time (for task in stream: learner.learn(task))" if several else ""
        raise InputError(
            f"learn() takes a Task, such as stream[0] or bocl.from_arrays([(X, y)])[0]{one_by_one}; "
            f"got {'None' if task is None else type(task).__name__}"
        )
    if seen:
        _check_like_before(task, seen[0])
    if isinstance(graph, Backbone):
        _fit(graph, task)
        return
    if task.train.padding is not None:
        raise NetworkError(
            f"task '{task.name}' is made of texts, which this network cannot read; take one that reads token ids, such "
            "as text-encoder with its weights, and growth.form = 'low-rank'"
        )
    if seen:
        return
    try:
        growth = initialise(GrowthSpace.first(graph, task.classes), graph.widths, seed=0)
        logits = assemble(graph, None, growth)(torch.zeros(2, *task.input_shape))
    except (RuntimeError, ValueError) as error:
        if is_out_of_memory(error):
            raise
        reason = advice_for_network(graph, task.input_shape) or error
        raise NetworkError(f"the network cannot take samples of shape {task.input_shape}: {reason}") from error
    if logits.shape != (2, task.classes):
        raise NetworkError(
            f"the network turns a sample of shape {task.input_shape} into {tuple(logits.shape[1:])} logits; "
            f"one per class, {(task.classes,)}, is needed (is a flatten missing?)"
        )


def _fit(backbone: Backbone, task: Task) -> None:
    """Show a module a few samples."""
    few, columns = task.train.raw[:EXAMPLES], None
    advice = advice_for_module(backbone.module, task.input_shape)
    if task.train.padding is not None:
        few, columns = _few_texts(task, task.train.padding)
        advice = f"token ids up to {int(few.max())}: are the tokenizer and the length those of the network?"
    samples = task.train.scaling(backbone.device)(few.to(backbone.device))
    backbone.fit(samples, columns=columns, advice="" if advice is None else f" ({advice})")


def _few_texts(task: Task, padding: int) -> tuple[Tensor, int]:
    """Return token ids of a few texts, a short one first, and to how many columns that one is cut down alone.

    With them comes the largest id that the network may meet: the tokenizer's, or else that of the samples.
    """
    raw = task.train.raw
    first = raw[:TEXTS]
    lengths = token_lengths(first, padding).masked_fill((first == padding).all(1), raw.shape[1])
    largest = None if task.text is None else task.text.largest
    if largest is None:
        last = [part.raw[part.raw.amax(1).argmax()][None] for part in (task.train, task.validation)]
    else:
        last = [raw[:1].clone()]
        last[0][0, 0] = largest
    few = torch.cat([first[lengths.argmin()][None], raw[:EXAMPLES], *last])
    return few, columns_for(int(lengths.min()), raw.shape[1])


def _check_like_before(task: Task, before: SeenTask) -> None:
    if task.input_shape != before.shape:
        raise DataError(
            f"task '{task.name}' has samples of shape {task.input_shape}, but the tasks before have {before.shape}; "
            "bring all tasks to the same shape"
        )
    if task.columns != before.columns and sorted(task.columns) == sorted(before.columns):
        raise DataError(
            f"task '{task.name}' has the columns {', '.join(task.columns)}, but the tasks before have them in the "
            f"order {', '.join(before.columns)}; bring them to the same order, because one network reads them all"
        )
    if _in_bytes(task) != before.in_bytes:
        now, then = ("uint8", "float32") if _in_bytes(task) else ("float32", "uint8")
        raise DataError(
            f"task '{task.name}' has {now} samples, but the tasks before have {then}; bring all tasks to the "
            "same type, because bytes are scaled and floats are not"
        )


def _in_bytes(task: Task) -> bool:
    return task.train.raw.dtype == torch.uint8


def task_number(task: int | str, seen: Sequence[SeenTask]) -> int:
    """Return the number of a task that was learnt, given by number or by name."""
    if isinstance(task, str):
        names = [entry.name for entry in seen]
        if names.count(task) > 1:
            raise InputError(f"{names.count(task)} tasks are called '{task}'; give the number of one, from 0")
        if task not in names:
            raise InputError(
                f"no task '{task}' has been learnt{did_you_mean(task, names) if names else ', nor any other'}"
            )
        return names.index(task)
    if isinstance(task, bool) or not isinstance(task, Integral):
        raise InputError(f"task is {shown(task)}; give its number, an integer from 0 on, or its name")
    if not 0 <= task < len(seen):
        raise InputError(f"task {task} has not been learnt; {counted(len(seen), 'task')} so far, numbered from 0")
    return int(task)


def check_inputs(
    x: Any, task: int, seen: Sequence[SeenTask], device: torch.device, text: TextFormat | None = None
) -> Tensor:
    """Return inputs as a network sees them, scaled as the task's training samples were.

    A task of bytes takes uint8, and float32 that is already scaled, as ``Split.inputs`` gives it. A task of floats
    takes numbers of any type but uint8. A task of texts takes strings, or the token ids that ``text`` makes of them.
    """
    about = seen[task]
    where = f"x for task '{about.name}': samples"
    given = raw_samples(x, task, seen, text)
    if about.padding is not None:
        return _token_ids(given, about.padding, where, None if text is None else text.largest).to(device)
    if about.in_bytes and given.dtype not in (torch.uint8, torch.float32):
        raise DataError(
            f"{where} of type {_type_name(given)}, but the task was learnt from bytes; give uint8, or float32 scaled "
            "as Split.inputs() gives it"
        )
    if not about.in_bytes and given.dtype == torch.uint8:
        raise DataError(
            f"{where} of type uint8, but the task was learnt from floats; give float32, prepared as in training"
        )
    scaled = about.in_bytes and given.dtype == torch.float32
    inputs = given.to(device) if scaled else about.scaling(device)(given.to(device))
    if len(inputs):
        low, high = (end.item() for end in inputs.aminmax())  # NaN where any number is: quicker than isfinite of all
        if scaled:
            _check_range(inputs, low, high, about, where)
        if not (math.isfinite(low) and math.isfinite(high)):
            row = int((~torch.isfinite(inputs)).nonzero()[0, 0])
            raise DataError(f"{where} hold numbers that are not finite in float32, first in sample {row}; fill them in")
    return inputs


def raw_samples(x: Any, task: int, seen: Sequence[SeenTask], text: TextFormat | None = None) -> Tensor:
    """Return samples (n, *shape) as they came, of texts their token ids, if they have a task's shape."""
    about = seen[task]
    if text is not None and are_texts(x):
        x = text.encode(x, "x", "shorten them, because the length is that of the tasks learnt").ids
    where = f"x for task '{about.name}': samples"
    if isinstance(x, list | tuple) and not x:  # no sample, whatever their shape
        in_whole_numbers = about.in_bytes or about.padding is not None
        x = torch.zeros(0, *about.shape, dtype=torch.uint8 if in_whole_numbers else torch.float32)
    values = x if isinstance(x, Tensor) else as_array(x, where)
    if values.ndim == 0 or tuple(values.shape[1:]) != about.shape:
        wanted = ", ".join(map(str, ("n", *about.shape)))
        raise DataError(
            f"task '{about.name}' takes samples of shape {about.shape}, and x has shape {tuple(values.shape)}; "
            f"give ({wanted}){advice_for_task(about.shape, tuple(values.shape))}"
        )
    check_size(tuple(values.shape), where)
    return _as_tensor(values, where)


def usual_strides(x: Tensor) -> Tensor:
    """Return samples in memory one after the other: kernels differ by strides, and bits by kernels."""
    return x.reshape(-1).view(x.shape)  # of one channel, channels_last counts as contiguous, but keeps its kernels


def _token_ids(given: Tensor, padding: int, where: str, largest: int | None) -> Tensor:
    """Return token ids (n, length), cut down to the longest text; none is beyond the tokenizer's largest."""
    if given.is_floating_point() or given.dtype == torch.bool or (given < 0).any():
        raise DataError(
            f"{where} of type {_type_name(given)}, but the task was learnt from texts; give strings, or their ids"
        )
    most = _INT32 if largest is None else max(largest, padding)
    if len(given) and (found := int(given.max())) > most:
        raise DataError(f"{where} with token ids up to {found}, but no id is above {most}; give strings, or their ids")
    lengths = token_lengths(given, padding)
    return given.int()[:, : columns_for(int(lengths.amax()) if len(given) else 1, given.shape[1])]


def _check_range(inputs: Tensor, low: float, high: float, about: SeenTask, where: str) -> None:
    """Refuse floats that no bytes can have been scaled to, and bytes that were only divided by 255."""
    lowest, highest = about.scaled_bytes
    if low < lowest - 0.01 or high > highest + 0.01:
        way_out = ": x.astype('uint8')" if low >= 0 and 1 < high <= 255 else ""
        raise DataError(
            f"{where} from {low:.3g} to {high:.3g}, but the task was learnt from bytes, "
            f"which are {lowest:.3g} to {highest:.3g} once scaled; give uint8, and they are scaled here{way_out}"
        )
    # Scaling moves numbers off the 256 levels, unless there is one number only, or nothing to scale.
    if 0 <= low < high <= 1 and (lowest, highest) != (0, 1):
        levels = inputs * 255
        if bool((levels - levels.round()).abs().max() < 1e-3):
            raise DataError(
                f"{where} from {low:.3g} to {high:.3g} are bytes divided by 255, but the task scales its bytes to "
                f"{lowest:.3g} to {highest:.3g}; give uint8, and they are scaled here: "
                "(255 * x).round().astype('uint8')"
            )


def _as_tensor(values: Tensor | NDArray[Any], where: str) -> Tensor:
    """Return real numbers as a tensor; a tensor stays on its device."""
    if isinstance(values, Tensor):
        check_tensor(values, where)
        if values.is_complex():
            raise DataError(f"{where} of type {_type_name(values)} are not real numbers; convert them to float32")
        return usual_strides(values)
    array = values
    if array.dtype.kind not in "fiub":
        raise DataError(f"{where} of type {array.dtype} are not numbers; convert them to float32 or uint8")
    if array.dtype.kind == "f" and array.dtype.itemsize > 8:  # torch has no such type
        array = array.astype(np.float64)
    # A copy in native byte order: torch takes no negative strides, and warns of arrays that cannot be written.
    return torch.from_numpy(np.array(array, dtype=array.dtype.newbyteorder("="), order="C"))


def _type_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
