"""``bocl pick``: another trained child for the last finished task."""

from __future__ import annotations

from typing import Annotated

import typer

from bocl.cli.options import Alpha, Budget, Data, Device, Run, Target, Trust


def pick_command(
    run: Run,
    widths: Annotated[str | None, typer.Option(help="The units it added, separated by commas.")] = None,
    alpha: Alpha = None,
    budget: Budget = None,
    target: Target = None,
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
    from bocl.wording import percent, widths_text

    criterion = Criterion(alpha, budget, target)
    if (widths is None) == (criterion == Criterion()):
        raise InputError("give --widths, or what to choose by: --alpha, --budget or --target")
    wanted = criterion if widths is None else _widths(widths)
    number = None if task is None else task - 1
    found = pick(find_run(run), wanted, task=number, data=data, device=device, trust=trust)
    before, after = found.before, found.after
    where = f"task {after.index + 1}, {after.name}"
    if before == after:
        say(f"{where}: ({widths_text(after.widths)}) is what it has; nothing was changed")
        return
    say(f"{where}: ({widths_text(after.widths)}) in place of ({widths_text(before.widths)})")
    for when, record in {"now": after, "before": before}.items():  # no test accuracies: nobody may pick by them
        added = f"+{sum(record.parameters.values()):,} parameters"
        say(f"  {when:<6}  validation {percent(record.validation_row[-1])}  {added}")


def _widths(text: str) -> tuple[int, ...]:
    from bocl.errors import InputError

    words = [word.strip() for word in text.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise InputError(f"--widths {text}: give whole numbers separated by commas, as in --widths 4,8,10,0")
    return tuple(map(int, words))
