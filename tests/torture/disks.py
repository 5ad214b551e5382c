"""Let the disk be full, or read-only, from the n-th call on, for every n, and see that nothing is lost.

A run, a pick, a save or a report that meets such a disk ends with exit code 1 or 2 and one line. What was there before
is there still: the journal's lines, the old model, the old page. Once there is space again, the same command ends in
the same bits.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from cases import Case, Group, check
from commands import call, from_python, run_words, told
from forks import Mishap, Work, in_a_fork
from kills import SETTINGS, ready_to_pick
from states import all_it_learnt, outcome, snapshot

from bocl.method_table import METHODS
from bocl.methods.saving import load, save
from bocl.records.journal import read_with_tail
from bocl.records.run_log import JOURNAL, RunLog
from bocl.records.summary import summarise


def groups() -> list[Group]:
    """Return all of it."""
    others = [name for name in METHODS if name != "bocl"]
    return [
        Group("run of bocl", partial(of_runs, "bocl", None), few=4),
        *(Group(f"run of {name}", partial(of_runs, name, 20)) for name in others),
        Group("pick", of_picks, few=2),
        *(Group(f"save of {name}", partial(of_saves, name), few=3 * (name == "bocl")) for name in METHODS),
        Group("report", of_reports, few=3),
    ]


def every_failure(calls: list[str]) -> Iterator[Mishap]:
    """Yield a disk that is full, or read-only, from each call on; a full one may take part of a write."""
    for at, name in enumerate(calls, start=1):
        yield Mishap("read-only", at)
        yield Mishap("full", at)
        if name == "write":
            yield Mishap("partly full", at)


def meets(work: Work, mishap: Mishap, whole: Callable[[], None]) -> dict[str, int]:
    """Let some work meet a disk that fails; ``whole`` checks that nothing is lost. Return what is counted."""
    ended = in_a_fork(work, mishap)
    if ended.code == 0:  # what failed was tidying up, which can wait
        check(not ended.said.startswith("bocl: "), f"exit code 0, and {ended.said!r}")
    else:
        lines = ended.said.splitlines()
        check(ended.code in (1, 2), f"exit code {ended.code}: {ended.said!r}")
        check(len(lines) == 1 and lines[0].startswith("bocl: "), f"not one line: {ended.said!r}")
    whole()
    return {f"{mishap.kind} disks": 1, "done all the same" if ended.code == 0 else "told in one line": 1}


def of_runs(method: str, most: int | None, place: Path) -> Iterator[Case]:
    """Let a run meet a disk that fails; then let it end."""
    words, folder = run_words(method, SETTINGS, place / "case"), place / "case" / f"{method}-seed0"
    check(call(*run_words(method, SETTINGS, place / "warm-up"))[0] == 0, "the run fails")
    calls = in_a_fork(partial(told, *words)).calls
    wanted = outcome([folder])

    def journal_is_whole() -> None:
        if (folder / JOURNAL).exists():
            lines, torn = read_with_tail(folder / JOURNAL)
            RunLog.of([line.record for line in lines], folder / JOURNAL)
            check(not torn, "half of a line is left, though the process lived to take it away")

    def do(mishap: Mishap) -> Mapping[str, int]:
        shutil.rmtree(place / "case")
        whole = journal_is_whole if mishap.kind != "read-only" else lambda: None  # which cannot take it away
        figures = meets(partial(told, *words), mishap, whole)
        again = in_a_fork(partial(told, *words))
        check(again.code == 0, f"with space again, it ended with {again.code}: {again.said}")
        check(outcome([folder]) == wanted, "it came to something else")
        return figures

    every = list(every_failure(calls))
    for mishap in every if most is None else random.Random(method).sample(every, most):
        yield Case(f"a run of {method}, {mishap}", partial(do, mishap))


def of_picks(place: Path) -> Iterator[Case]:
    """Let a pick meet a disk that fails: the old child stays, or the new one is there; then pick again."""
    folder, widths, pick, begin_again = ready_to_pick(place)
    kept = summarise(folder).tasks[-1].widths

    def audited() -> None:
        check(summarise(folder).tasks[-1].widths in (kept, widths), "another child was picked")
        code, _, said = call("audit", str(folder), "--device", "cpu")
        check(code == 0, f"its audit says {said!r}")

    def do(mishap: Mishap) -> Mapping[str, int]:
        begin_again()
        figures = meets(pick, mishap, audited)
        again = in_a_fork(pick)
        check(again.code == 0, f"with space again, it ended with {again.code}: {again.said}")
        check(summarise(folder).tasks[-1].widths == widths, "the pick is lost")
        check(_checkpoint(folder) == wanted, "it came to something else")
        return figures

    calls = in_a_fork(pick).calls
    wanted = _checkpoint(folder)
    for mishap in every_failure(calls):
        yield Case(f"a pick, {mishap}", partial(do, mishap))


def _checkpoint(folder: Path) -> str:
    return all_it_learnt(load(folder, device="cpu"))


def of_saves(method: str, place: Path) -> Iterator[Case]:
    """Let a save over an older model meet a disk that fails: one of the two models is there; then save again."""
    folder = place / "model"
    code, _, said = call(*run_words(method, ("stream.tasks=2", *SETTINGS[1:]), place / "runs", "0,1"))
    check(code == 0, said)
    old, new = (load(place / "runs" / f"{method}-seed{seed}", device="cpu") for seed in (0, 1))
    saves = partial(from_python, partial(save, new, folder))
    allowed = {all_it_learnt(old), all_it_learnt(new)}

    def begin_again() -> None:
        shutil.rmtree(folder, ignore_errors=True)
        save(old, folder)

    def do(mishap: Mishap) -> Mapping[str, int]:
        begin_again()
        figures = meets(saves, mishap, lambda: check(_checkpoint(folder) in allowed, "neither model can be loaded"))
        check(saves() == (0, ""), "with space again, it cannot be saved")
        check(_checkpoint(folder) == all_it_learnt(new), "it was saved, and something else loads")
        return figures

    begin_again()
    calls = in_a_fork(saves).calls
    for mishap in every_failure(calls):
        yield Case(f"a save of {method}, {mishap}", partial(do, mishap))


def of_reports(place: Path) -> Iterator[Case]:
    """Let a report and its figures meet a disk that fails: the old page stays whole, and so does the run."""
    run, page, assets = place / "runs" / "bocl-seed0", place / "pages" / "report.html", place / "pages" / "assets"
    check(call(*run_words("bocl", SETTINGS, run.parent))[0] == 0, "the run fails")
    make = partial(told, "report", str(run), "-o", str(page), "--assets", str(assets))
    page.parent.mkdir()
    calls = in_a_fork(make).calls
    wanted, before = page.read_bytes(), snapshot(run)

    def whole() -> None:
        check(page.read_bytes() == wanted, "the old page is not there any more")
        check(snapshot(run) == before, "the run was changed")

    def do(mishap: Mishap) -> Mapping[str, int]:
        figures = meets(make, mishap, whole)
        again = in_a_fork(make)
        check(again.code == 0, f"with space again, it ended with {again.code}: {again.said}")
        whole()
        return figures

    every = list(every_failure(calls))
    for mishap in [*random.Random("report").sample(every, 60), *every[-12:]]:  # most calls are of one figure or another
        yield Case(f"a report, {mishap}", partial(do, mishap))
