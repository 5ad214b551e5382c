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
import secrets
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from torch import Tensor

from bocl.errors import FolderError, InputError, did_you_mean
from bocl.methods.exporting.adapters import adapter_files, run_adapter
from bocl.methods.exporting.canaries import Canaries, check_logits, made_up_canaries
from bocl.methods.exporting.card import CONFIG, PROGRAM, TOKENIZER_CONFIG, Recorded, card, config, tokenizer_config
from bocl.methods.exporting.onnx_file import onnx_of_all, onnx_of_one, run_onnx
from bocl.methods.exporting.pt2_file import TOKENIZER, pt2, run_pt2
from bocl.methods.exporting.safetensors_file import IN_A_FOLDER, run_safetensors, safetensors_file
from bocl.methods.method import Learner
from bocl.methods.seen import task_number
from bocl.records.files import PARTIAL, cannot_write, sync_directory, write_whole
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
    if task is None:
        what, (files, computes) = f"all tasks as {form}", _all_tasks(learner, path.name)
    else:
        about = learner.seen[numbers[0]]
        what, (files, computes) = (
            f"task '{about.name}' as {form}",
            _one_task(learner, numbers[0], form, recorded, path.name),
        )
    with repeatable_products("float32"):
        difference = max(
            check_logits(compute, checks[number], what)
            for number in numbers
            for compute in (partial(each, number) for each in computes)
        )
    if form in _FOLDERS:
        _write_folder(path, files)
    else:
        write_whole(path, files[path.name])
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


#: The files of an export by name, and what each of those that compute gives: (number of a task, samples) → logits.
_Made = tuple[dict[str, bytes], list[Callable[[int, Tensor], Tensor]]]


def _all_tasks(learner: Learner, name: str) -> _Made:
    data = onnx_of_all([learner.module(number).cpu() for number in range(len(learner.seen))])
    compute = run_onnx(data)
    return {name: data}, [lambda number, samples: compute(samples, number)]


def _one_task(learner: Learner, number: int, form: Format, recorded: Recorded | None, name: str) -> _Made:
    match form:
        case "peft" | "merged":
            files = adapter_files(learner, number, form)
            computes = [run_adapter(learner, number, form, files)]
        case "safetensors":
            files = {name: safetensors_file(learner, number, learner.network.single_task(number))}
            computes = [run_safetensors(learner, files[name])]
        case "pt2":
            files = {name: pt2(learner.module(number).cpu())}
            computes = [run_pt2(files[name])]
        case "onnx":
            files = {name: onnx_of_one(learner.module(number).cpu())}
            computes = [run_onnx(files[name])]
        case "hub-folder":
            files = _hub_files(learner, number, recorded)
            computes = [run_safetensors(learner, files[IN_A_FOLDER]), run_pt2(files[PROGRAM])]
    return files, [partial(_whatever_the_number, compute) for compute in computes]


def _whatever_the_number(compute: Callable[[Tensor], Tensor], _number: int, samples: Tensor) -> Tensor:
    return compute(samples)


def _hub_files(learner: Learner, number: int, recorded: Recorded | None) -> dict[str, bytes]:
    network, single = learner.module(number).cpu(), learner.network.single_task(number)
    files = {IN_A_FOLDER: safetensors_file(learner, number, single), PROGRAM: pt2(network)}
    if learner.text is not None:
        files[TOKENIZER] = learner.text.tokenizer.encode()
        files[TOKENIZER_CONFIG] = tokenizer_config(learner.text).encode()
    files[CONFIG] = config(learner, number, network, single).encode()
    sizes = {name: len(content) for name, content in files.items()}
    files["README.md"] = card(learner, number, network, single, recorded, sizes).encode()
    return files


def _write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a folder whole or not at all: next to its place first."""
    partial_folder = path.with_name(f"{path.name}.{secrets.token_hex(4)}{PARTIAL}")
    try:
        for name, content in files.items():
            write_whole(partial_folder / name, content)
        if path.is_dir():
            path.rmdir()  # it is empty
        partial_folder.replace(path)
        sync_directory(path.parent)
    except BaseException as error:
        shutil.rmtree(partial_folder, ignore_errors=True)
        if isinstance(error, OSError):
            raise cannot_write(path, error) from error
        raise


def _as_exports_take_it(learner: Learner, number: int, stored: Canaries | None) -> Canaries:
    canaries = stored or made_up_canaries(learner, number)
    return canaries if learner.seen[number].padding is None else replace(canaries, samples=canaries.samples.long())


def _format(to: str) -> Format:
    if not isinstance(to, str) or to not in FORMATS:
        raise InputError(f"a task cannot be exported as {shown(to)}{did_you_mean(str(to), FORMATS)}")
    return to


def _check_place(path: Path, form: Format) -> None:
    """Refuse to write over what is there, and where nothing may be written."""
    if not path.parent.is_dir():
        raise FolderError(f"{path.parent} is not a folder; give a place in one that is there")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise FolderError(f"{path.parent} is a folder that you may not write to; give a place in another")
    if form in _FOLDERS:
        if os.path.lexists(path) and (path.is_symlink() or not path.is_dir() or any(path.iterdir())):
            raise FolderError(f"{path} is not an empty folder; give a new one")
    elif os.path.lexists(path):
        raise FolderError(f"{path} is there already; give a new file")
