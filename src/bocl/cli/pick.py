"""``bocl pick``: another trained child for the last finished task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, get_args

import typer

from bocl.cli.options import Alpha, Budget, Data, Device, Run, Target, Tolerance, Trust

if TYPE_CHECKING:
    from bocl.records.record import ReadsKind


def pick_command(
    run: Run,
    widths: Annotated[str | None, typer.Option(help="The units it added, separated by commas.")] = None,
    reads: Annotated[
        str | None,
        typer.Option(help="With --widths: what it reads, as in bocl show --task: first, near, all, own, base."),
    ] = None,
    alpha: Alpha = None,
    budget: Budget = None,
    target: Target = None,
    tolerance: Tolerance = None,
    task: Annotated[int | None, typer.Option(help="The task, from 1; it must be the last finished one.")] = None,
    data: Data = None,
    device: Device = "auto",
    trust: Trust = False,
) -> None:
    """Commit another trained child of the last finished task, before the next one begins; nothing is trained."""
    from bocl.cli.printing import say
    from bocl.errors import InputError
    from bocl.experiment.pick import pick
    from bocl.records.pareto import Criterion
    from bocl.records.summary import find_run
    from bocl.records.words import kept_words
    from bocl.wording import percent

    criterion = Criterion(alpha, budget, target, tolerance)
    if (widths is None) == (criterion == Criterion()):
        raise InputError("give --widths, or what to choose by: --alpha, --budget, --target or --tolerance")
    if widths is None and reads is not None:
        raise InputError(f"--reads {reads} tells apart children of the same widths: give --widths too")
    wanted = criterion if widths is None else _widths(widths)
    number = None if task is None else task - 1
    found = pick(find_run(run), wanted, reads=_reads(reads), task=number, data=data, device=device, trust=trust)
    before, after = found.before, found.after
    where = f"task {after.index + 1}, {after.name}"
    if before == after:
        say(f"{where}: {kept_words(after)} is what it has; nothing was changed")
        return
    say(f"{where}: {kept_words(after)} in place of {kept_words(before)}")
    for when, record in {"now": after, "before": before}.items():  # no test accuracies: nobody may pick by them
        added = f"+{sum(record.parameters.values()):,} parameters"
        say(f"  {when:<6}  validation {percent(record.validation_row[-1])}  {added}")


def _reads(word: str | None) -> ReadsKind | None:
    from bocl.errors import InputError, did_you_mean
    from bocl.records.record import ReadsKind

    kinds: tuple[ReadsKind, ...] = get_args(ReadsKind)
    found = [kind for kind in kinds if kind == word]
    if word is not None and not found:
        raise InputError(f"--reads {word}: no child reads so{did_you_mean(word, kinds)}")
    return found[0] if found else None


def _widths(text: str) -> tuple[int, ...]:
    from bocl.errors import InputError

    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(f"--widths {text}: give whole numbers separated by commas, as in --widths 4,8,10,0")
    return tuple(map(int, words))
