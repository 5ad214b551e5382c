"""The learner of a run, from its folder, and its tasks by name or number, as commands ask for them."""

from __future__ import annotations

import os
from pathlib import Path

from bocl.errors import InputError
from bocl.experiment.build import module_to_load
from bocl.experiment.store import recorded_config
from bocl.methods.method import Learner
from bocl.methods.saving import load
from bocl.methods.seen import task_number
from bocl.records.journal import read
from bocl.records.run_log import JOURNAL, RunLog


def load_run(folder: str | Path, *, device: str = "auto", trust: bool = False) -> Learner:
    """Return the learner of a run, or of a folder that ``save`` wrote.

    trust  whether a network that is code of the run's maker may be run
    """
    path, module = Path(folder) / JOURNAL, None
    if os.path.isfile(path):
        starts = RunLog.of(read(path), path).starts
        module = module_to_load(recorded_config(starts[0].config, path), trust=trust) if starts else None
    learner: Learner = load(folder, device=device, network=module)
    return learner


def named_task(learner: Learner, task: str, run: str) -> int:
    """Return the number, from 0, of a task that a command names, or numbers from 1."""
    by_number = task.isdecimal() and task not in [about.name for about in learner.seen]  # 2024.csv is called 2024
    if by_number and not 1 <= int(task) <= len(learner.seen):
        raise InputError(f"--task {task}: {run} has learnt tasks 1 to {len(learner.seen)}")
    return int(task) - 1 if by_number else task_number(task, learner.seen)
