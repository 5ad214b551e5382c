"""Another child for the last finished task: its weights are in the file of its round, so nothing is trained.

The new files are written first, in places of their own, then the record that names them. The test split scores the
picked network as it scored the one before; it has no part in the choice.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bocl.errors import FolderError, InputError
from bocl.experiment.audit import check_untouched, refuse_journal, same_data
from bocl.experiment.build import module_to_load
from bocl.experiment.proof import checked_again, make_canaries
from bocl.experiment.round_archive import read_child, reads_of_child
from bocl.experiment.scoring import ScoredSamples, mean_gates, score, score_guesses
from bocl.experiment.store import RunStore, recorded_config
from bocl.methods.bocl import BOCL
from bocl.methods.saving import load
from bocl.records.pareto import Criterion, choose
from bocl.records.record import PickRecord, ReadsKind, TaskRecord, Trial
from bocl.records.run_log import JOURNAL
from bocl.records.summary import summarise
from bocl.training.device import resolve_device
from bocl.training.surroundings import usual_surroundings
from bocl.widths import Widths


@dataclass(frozen=True)
class Picked:
    """A task before and after a pick; the same if the child picked was the one kept."""

    before: TaskRecord
    after: TaskRecord


@usual_surroundings()
def pick(
    folder: str | Path,
    wanted: Widths | Criterion,
    *,
    reads: ReadsKind | None = None,
    task: int | None = None,
    data: str | None = None,
    device: str = "auto",
    trust: bool = False,
) -> Picked:
    """Commit another trained child of the last finished task, before the next one begins.

    wanted  its widths, or what to choose it by
    reads   with widths, what it reads; needed where two children have these widths
    task    the number, from 0, that the last finished task must have
    trust   whether a stream that is code of the user's may be run
    """
    folder = Path(folder)
    refuse_journal(folder, "pick")
    config = recorded_config(summarise(folder).config, folder / JOURNAL)
    resolve_device(device)
    with RunStore.open(folder, config) as store:
        before = _last_task(store, task)
        trial = choose(before.trials, wanted) if isinstance(wanted, Criterion) else _trial_of(before, wanted, reads)
        number = before.trials.index(trial)
        if (trial.widths, reads_of_child(store, before, number)) == (before.widths, before.reads_tasks):
            return Picked(before, before)
        start = store.log.learnt_in[-1]
        carried = before.index if start.given else 0  # earlier tasks are untouched, and need not be at hand
        found = same_data(folder, start, data, first=carried, trust=trust)
        stream, why = found.stream, found.missing.get(before.index)
        if stream is None or why:
            raise InputError(f"{folder}: the picked child is scored on its task, but {why}")
        module = module_to_load(config, trust=trust)
        method: BOCL = load(folder / store.log.checkpoint, device=device, network=module)
        growth = read_child(store, method.network, before.trials, number, method.seen[-1].classes)
        method.replace_last(growth)
        again = [index for index in checked_again(before.index) if index >= carried]
        *_, picked_for = tasks = [stream[index] for index in (*again, before.index)]
        samples = ScoredSamples(method, stream, tasks)
        row = score(method, samples.test, before.row[:-1])
        check_untouched(folder, store.log, method, row)
        record = PickRecord(
            task=before.index,
            number=store.log.picks.get(before.index, 0) + 1,
            widths=trial.widths,
            validation_row=score(method, samples.validation, before.validation_row[:-1]),
            row=row,
            parameters=method.network.parameters_by_task()[-1],
            stored=sum(method.parameters().values()),
            attention=mean_gates(method, before.index, samples.validation[before.index]),
            reads=growth.reads,
            guesses=score_guesses(method, samples, last=before.index + 1 == start.tasks),
        )
        trials, base = store.log.prior_trials, start.base
        store.start(config, method, start.data, given=start.given, prior_trials=trials, base=base)
        store.commit(record, method, make_canaries(method, picked_for))
        return Picked(before, store.finished[-1])


def _last_task(store: RunStore, wanted: int | None) -> TaskRecord:
    """Return the task another child can be picked for, or refuse."""
    folder, done = store.folder, len(store.finished)
    if not done:
        raise FolderError(f"{folder} has no finished task to pick for; run it again to resume")
    if wanted is not None and wanted != done - 1:
        raise InputError(f"task {wanted + 1} of {folder} cannot be picked for; the last finished one, {done}, can")
    if store.log.rounds.get(done):
        raise InputError(f"task {done} of {folder} cannot be picked for: task {done + 1}, built on it, has begun")
    task = store.finished[-1]
    if not task.trials:
        raise InputError(f"task {done} of {folder} has no trials to pick from: it was learnt without a search")
    return task


def _trial_of(task: TaskRecord, widths: Widths, reads: ReadsKind | None) -> Trial:
    alike = [trial for trial in task.trials if trial.widths == widths]
    found = [trial for trial in alike if reads in (None, trial.reads)]
    if not found:
        which = f"widths {widths}" + (f" that reads {reads}" if alike else "")
        raise InputError(
            f"no child with {which} was trained for task {task.index + 1}; bocl show --task {task.index + 1} "
            "lists those that were"
        )
    trained = [trial for trial in found if not trial.failed]
    if not trained:
        why = "was stopped early" if found[0].stopped else "failed"
        raise InputError(f"the child with widths {widths} {why} and has no weights; pick another")
    if len(trained) > 1:
        kinds = " or ".join(f"--reads {trial.reads}" for trial in trained)
        raise InputError(f"{len(trained)} children have the widths {widths} and read different tasks; say {kinds}")
    return trained[0]
