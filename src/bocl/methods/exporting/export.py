"""Tasks of a learner, written in a form that another system reads.

pt2          a program of PyTorch, which needs none of our code
onnx         one ONNX file for one task; for all tasks, with the task as an input
safetensors  one task's tensors and all that is needed to run them with ``bocl.load_module``
hub-folder   a folder in the convention of the Hugging Face Hub: a model card, safetensors and pt2
peft         an adapter that PEFT loads, of a task of low-rank growth
merged       a module's weights with those of low-rank growth added in
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

from torch import Tensor

from bocl.errors import FolderError, InputError, did_you_mean
from bocl.methods.exporting.adapters import adapter_files, run_adapter
from bocl.methods.exporting.canaries import Canaries, largest_difference, made_up_canaries
from bocl.methods.exporting.card import CONFIG, PROGRAM, TENSORS, Recorded, card, config
from bocl.methods.exporting.onnx_file import onnx_of_all, onnx_of_one, run_onnx
from bocl.methods.exporting.program import pt2, run_pt2
from bocl.methods.exporting.single_file import run_single, single_file
from bocl.methods.method import Learner
from bocl.methods.seen import task_number
from bocl.methods.task_network import TaskNetwork
from bocl.records.files import make_folder, write_whole
from bocl.training.precision import repeatable_products
from bocl.training.surroundings import usual_surroundings
from bocl.wording import shown

Format = Literal["pt2", "onnx", "safetensors", "hub-folder", "peft", "merged"]
FORMATS: tuple[Format, ...] = get_args(Format)
_FOLDERS = ("hub-folder", "peft", "merged")


@dataclass(frozen=True)
class Exported:
    """What was written, and the check that it passed.

    path        the file or folder
    tasks       names of the tasks in it
    files       names of the files of a folder; of a file, its own
    bytes       of all files
    samples     how many went through it
    stored      whether their logits were stored when the tasks were learnt; otherwise the learner gave them now
    difference  the largest from these logits, as a share of the largest of them
    """

    path: Path
    to: Format
    tasks: tuple[str, ...]
    files: tuple[str, ...]
    bytes: int
    samples: int
    stored: bool
    difference: float


@usual_surroundings()
def export(
    learner: Learner,
    task: int | str | None,
    path: str | Path,
    to: str,
    *,
    canaries: Mapping[int, Canaries] | None = None,
    recorded: Recorded | None = None,
) -> Exported:
    """Write one task to a new file or folder, or all tasks to one file; nothing is left where its check fails.

    task      number or name; None is all of them
    canaries  of tasks by number: samples that the export is checked with; made up where there are none
    recorded  what the run of the learner says of the task, for a card
    """
    form = _format(to)
    if task is None and form != "onnx":
        raise InputError(f"all tasks in one file are exported as onnx, not as {form}; name one task, or use onnx")
    if not learner.seen:
        raise InputError("no task has been learnt, so there is none to export")
    numbers = list(range(len(learner.seen))) if task is None else [task_number(task, learner.seen)]
    path = Path(path)
    _check_place(path, form)
    checks = {number: _as_exports_take_it(learner, number, (canaries or {}).get(number)) for number in numbers}
    what = f"task '{learner.seen[numbers[0]].name}' as {form}" if task is not None else f"all tasks as {form}"
    files, computes = _made(learner, numbers, form, recorded, path, whole=task is None)
    with repeatable_products("float32"):
        difference = max(
            largest_difference(compute, checks[number], what) for number in numbers for compute in computes(number)
        )
    if form in _FOLDERS:
        make_folder(path)
    for name, content in files.items():
        write_whole(path / name if form in _FOLDERS else path, content)
    return Exported(
        path,
        form,
        tuple(learner.seen[number].name for number in numbers),
        tuple(sorted(files)),
        sum(map(len, files.values())),
        sum(len(check.samples) for check in checks.values()),
        all(check.stored for check in checks.values()),
        difference,
    )


Computes = Callable[[int], list[Callable[[Tensor], Tensor]]]  # the number of a task → what each file computes for it


def _made(
    learner: Learner, numbers: list[int], form: Format, recorded: Recorded | None, path: Path, *, whole: bool
) -> tuple[dict[str, bytes], Computes]:
    """Return the files of an export by name, and what they compute."""
    number, name = numbers[0], path.name
    match form:
        case "peft" | "merged":
            files = adapter_files(learner, number, form)
            return files, lambda number: [run_adapter(learner, number, form, files)]
        case "safetensors":
            data = single_file(learner, number)
            return {name: data}, lambda _: [run_single(learner, data)]
        case "pt2":
            data = pt2(_on_cpu(learner, number))
            return {name: data}, lambda _: [run_pt2(data)]
        case "onnx" if whole:
            data = onnx_of_all([_on_cpu(learner, number) for number in numbers])
            return {name: data}, lambda number: [run_onnx(data, number)]
        case "onnx":
            data = onnx_of_one(_on_cpu(learner, number))
            return {name: data}, lambda _: [run_onnx(data)]
        case "hub-folder":
            files = {TENSORS: single_file(learner, number), PROGRAM: pt2(_on_cpu(learner, number))}
            if learner.text is not None:
                files["tokenizer.json"] = learner.text.tokenizer.encode()
            files[CONFIG] = config(learner, number).encode()
            sizes = {name: len(content) for name, content in files.items()}
            files["README.md"] = card(learner, number, recorded, sizes).encode()
            return files, lambda _: [run_single(learner, files[TENSORS]), run_pt2(files[PROGRAM])]


def _as_exports_take_it(learner: Learner, number: int, stored: Canaries | None) -> Canaries:
    canaries = stored or made_up_canaries(learner, number)
    return canaries if learner.seen[number].padding is None else replace(canaries, samples=canaries.samples.long())


def _on_cpu(learner: Learner, number: int) -> TaskNetwork:
    return learner.module(number).cpu()


def _format(to: str) -> Format:
    if to not in FORMATS:
        raise InputError(f"to is {shown(to)}{did_you_mean(to, FORMATS)}; a task is exported as {', '.join(FORMATS)}")
    return to


def _check_place(path: Path, form: Format) -> None:
    """Refuse to write over what is there."""
    if form in _FOLDERS:
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise FolderError(f"{path} is not an empty folder; give a new one")
        return
    if os.path.lexists(path):
        raise FolderError(f"{path} is there already; give a new file")
    if not path.parent.is_dir():
        raise FolderError(f"{path.parent} is not a folder; give a file in one that is there")
