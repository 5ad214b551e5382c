"""The paper's claims compared with our runs: met or missed, and by how much; and the reductions of its Table 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bocl.method_table import searches
from bocl.records.summary import RunSummary
from bocl.report.charts import Table
from bocl.report.figures import named, percent_with_sd, short_count
from bocl.report.systems import Setting, Spread, StreamResults, System, of_common_seeds, search_kind
from bocl.report.trial_curves import paired, tested, trial_curve
from bocl.wording import counted, points
from replication.claims import CLAIMS, FIXED_SIZE, GROWING, TASKS, Claim, Measure
from replication.paper_figures import attention_gains, by_the_paper, searchers

ON_PAR = 0.0025  # how far behind in accuracy a setting on par may be: a quarter of a point
RIVALS = ("pgn", "den", "rcl")

Verdict = Literal["met", "missed", "open"]
Runs = Sequence[RunSummary]


@dataclass(frozen=True)
class Finding:
    """A claim and what our runs show.

    about    what is claimed
    paper    the paper's figure
    ours     our figure; '' if no run shows it
    verdict  `open` if no run shows it
    margin   by how much it is met or missed; what is missing if it is open
    """

    claim: Claim
    about: str
    paper: str
    ours: str = ""
    verdict: Verdict = "open"
    margin: str = ""

    @classmethod
    def missing(cls, claim: Claim, about: str, paper: str, stream: StreamResults, *methods: str) -> Finding:
        """Leave a claim open because methods it is about were not run."""
        absent = [method for method in methods if stream.system(method) is None]
        return cls(claim, about, paper, margin=f"no run of {' or '.join(absent)}")


def smallest_on_par(own: System, rival: Setting) -> Setting | None:
    """Return BOCL's smallest setting that is on par with a rival on validation samples, if there is one."""
    enough = [one for one in own.settings if _ahead(one, rival, "validation") >= -ON_PAR]
    return min(enough, key=lambda setting: setting.spread("parameters").mean, default=None)


def reductions(streams: Sequence[StreamResults]) -> Table:
    """Table 1: parameters BOCL saves at matched accuracy, for every setting of its rivals.

    An asterisk marks the setting that claims are about. That one is compared with the paper's search, too.
    """
    printed = {(claim.stream, claim.rival): claim.value for claim in CLAIMS if claim.measure == "parameters"}
    rows = []
    for stream in streams:
        papers = [system for system in stream.systems if by_the_paper(system)]
        for rival in _headlines(stream, RIVALS):
            value = printed.get((stream.name, rival.name)) if stream.tasks == TASKS else None
            for setting in rival.settings:
                judged = setting is rival.headline
                beside = _sized(rival, setting) + (" *" if judged and len(rival.settings) > 1 else "")
                paper = _share(value) if judged and value is not None else ""
                for own in [*_headlines(stream, ["bocl"]), *(papers if judged else [])]:
                    found = smallest_on_par(own, setting)
                    cells = [f"{own.name}: none on par", "", ""]
                    if found is not None:
                        gap, saved = _lead(found, setting), _saved(found, setting)
                        cells = [_sized(own, found), f"{points(gap)} points", _share(saved)]
                    rows.append((stream.label, beside, *cells, paper))
    header = ("stream", "rival", "BOCL, on par", "test accuracy, compared", "parameters saved", "paper")
    return Table("table-1", header, tuple(rows))


def findings(streams: Sequence[StreamResults], figure: str | None = None) -> list[Finding]:
    """Return what our runs show about the claims on these streams, or about those of one figure."""
    by_name = {stream.name: stream for stream in streams if stream.tasks == TASKS and stream.systems}
    return [
        _JUDGES[claim.measure](claim, by_name[claim.stream])
        for claim in CLAIMS
        if claim.stream in by_name and figure in (None, claim.figure)
    ]


def _accuracy(claim: Claim, stream: StreamResults) -> Finding:
    about, paper = "networks that grow are more accurate than those of fixed size", "higher"
    growing = _headlines(stream, GROWING)
    fixed = _headlines(stream, FIXED_SIZE)
    if not growing or not fixed:
        return Finding.missing(claim, about, paper, stream, *(FIXED_SIZE if growing else GROWING))
    worst = min(growing, key=lambda system: system.headline.spread("accuracy").mean)
    best = max(fixed, key=lambda system: system.headline.spread("accuracy").mean)
    low, high = worst.headline.spread("accuracy"), best.headline.spread("accuracy")
    ours = f"at least {percent_with_sd(low)} ({worst.name}) against at most {percent_with_sd(high)} ({best.name})"
    return _judged(claim, about, paper, ours, low.mean - high.mean, 0.0, _points)


def _time(claim: Claim, stream: StreamResults) -> Finding:
    about = f"training time saved against {claim.rival}"
    assert claim.value is not None
    paper = _share(claim.value)
    own, other = stream.system("bocl"), stream.system(claim.rival)
    if own is None or other is None:
        return Finding.missing(claim, about, paper, stream, "bocl", claim.rival)
    mine, theirs = own.headline, other.headline
    fewer = _share_saved(mine.runs, theirs.runs, "samples")
    if not mine.timed or not theirs.timed:
        reason = f"not both had a device to themselves; samples saved: {_share(fewer)}"
        return Finding(claim, about, paper, margin=reason)
    saved = _share_saved(mine.timed, theirs.timed, "seconds")
    theirs_apart = theirs.one_by_one if searches(claim.rival) else theirs.timed
    apart = ""
    if mine.one_by_one and theirs_apart:
        apart = f"one by one: {_share(_share_saved(mine.one_by_one, theirs_apart, 'seconds'))}, "
    ours = f"{_share(saved)} ({apart}samples: {_share(fewer)})"
    return _judged(claim, about, paper, ours, saved, claim.value, _share_points)


def _front(claim: Claim, stream: StreamResults) -> Finding:
    about = f"bocl is no less accurate than {claim.rival} at no more parameters, whatever the setting"
    paper = "at every setting"
    own, other = stream.system("bocl"), stream.system(claim.rival)
    if own is None or other is None:
        return Finding.missing(claim, about, paper, stream, "bocl", claim.rival)
    total = len(other.settings)
    unbeaten = [theirs for theirs in other.settings if not any(_beats(mine, theirs) for mine in own.settings)]
    ours = f"at {total - len(unbeaten)} of {counted(total, 'setting')}"
    if not unbeaten:
        return Finding(claim, about, paper, ours, "met")
    if not all(_beyond(theirs, own.settings) for theirs in unbeaten):
        return Finding(claim, about, paper, ours, "missed")
    return Finding(claim, about, paper, margin=f"no setting of bocl is as large as {claim.rival}, nor as accurate")


def _keeps(claim: Claim, stream: StreamResults) -> Finding:
    about = f"{claim.rival} forgets nothing of task 1"
    system = stream.system(claim.rival)
    if system is None:
        return Finding.missing(claim, about, "0 points", stream, claim.rival)
    worst = max(abs(entry["first_task_forgetting"]) for entry in system.headline.figures)
    return _judged(claim, about, "0 points", f"{points(worst).lstrip('+')} points", -worst, 0.0, _points)


def _forgets(claim: Claim, stream: StreamResults) -> Finding:
    about = f"{claim.rival} forgets some of task 1"
    system = stream.system(claim.rival)
    if system is None:
        return Finding.missing(claim, about, "some", stream, claim.rival)
    lost = system.headline.spread("first_task_forgetting")
    verdict: Verdict = "met" if lost.mean > 0 else "missed"
    return Finding(claim, about, "some", f"{points(lost.mean).lstrip('+')} points", verdict)


def _trials(claim: Claim, stream: StreamResults) -> Finding:
    about = f"fewer trials than {claim.rival} search for its accuracy"
    kinds = {search_kind(system): system for system in searchers(stream)}
    own, other = kinds.get("bayesian", kinds.get("paper")), kinds.get(claim.rival)
    if own is None or other is None:
        missing = "bocl" if own is None else f"bocl with {claim.rival} search"
        return Finding(claim, about, "fewer", margin=f"no run of {missing}")
    (_, mine), (_, others) = paired([own, other])
    if not {run.seed for run in mine} & {run.seed for run in others}:
        return Finding(claim, about, "fewer", margin="no seed that both were run with")
    on_test = tested([*mine, *others])
    ours_then, theirs = (trial_curve(runs, on_test=on_test) for runs in (mine, others))
    target = theirs[-1].mean
    needed, reached = _first_at(theirs, target), _first_at(ours_then, target)
    if needed is None or reached is None:
        return Finding(claim, about, "fewer", f"{100 * target:.2f} % never reached, {needed} there", "missed")
    ours = f"{reached} for {100 * target:.2f} %, {needed} there"
    margin = f"by {counted(abs(needed - reached), 'trial')}" if needed != reached else ""
    return Finding(claim, about, "fewer", ours, "met" if reached < needed else "missed", margin)


def _parameters(claim: Claim, stream: StreamResults) -> Finding:
    about = f"parameters saved against {claim.rival} at matched accuracy"
    assert claim.value is not None
    paper = _share(claim.value)
    own, rival = stream.system("bocl"), stream.system(claim.rival)
    if own is None or rival is None:
        return Finding.missing(claim, about, paper, stream, "bocl", claim.rival)
    found = smallest_on_par(own, rival.headline)
    mine = own.headline if found is None else found
    gap, saved = _lead(mine, rival.headline), _saved(mine, rival.headline)
    setting = f"{mine.label}; " if mine.label else ""
    ours = f"{_share(saved)} ({setting}test accuracy {points(gap)} points)"
    if found is None:
        return Finding(claim, about, paper, ours, "missed", "not on par")
    if gap < -ON_PAR:
        return Finding(claim, about, paper, ours, "missed", "on par on validation samples, not on test samples")
    return _judged(claim, about, paper, ours, saved, claim.value, _share_points)


def _attention(claim: Claim, stream: StreamResults) -> Finding:
    about = "test accuracy gained by attention"
    assert claim.value is not None
    paper = f"{points(claim.value)} points"
    gains = [gain for _, gain in attention_gains(stream)]
    if not gains:
        return Finding(claim, about, paper, margin="no runs of bocl that differ only in attention")
    over = Spread.of(gains)
    sd = "" if over.sd is None else f" ± {100 * over.sd:.2f}"
    ours = f"{points(over.mean)}{sd} points, {over.count} pairs"
    return _judged(claim, about, paper, ours, over.mean, claim.value, _points)


_JUDGES: dict[Measure, Callable[[Claim, StreamResults], Finding]] = {
    "accuracy": _accuracy,
    "time": _time,
    "front": _front,
    "keeps": _keeps,
    "forgets": _forgets,
    "trials": _trials,
    "parameters": _parameters,
    "attention": _attention,
}


def _judged(
    claim: Claim, about: str, paper: str, ours: str, value: float, wanted: float, say: Callable[[float], str]
) -> Finding:
    """Judge a claim that is met by a value of at least ``wanted``."""
    off = say(abs(value - wanted))
    margin = f"by {off}" if any(digit in off.partition(" ")[0] for digit in "123456789") else ""
    return Finding(claim, about, paper, ours, "met" if value >= wanted else "missed", margin)


def _headlines(stream: StreamResults, methods: Sequence[str]) -> list[System]:
    return [system for method in methods if (system := stream.system(method)) is not None]


def _beats(one: Setting, other: Setting) -> bool:
    """Whether a setting is at least as accurate with no more parameters."""
    return _lead(one, other) >= 0 and _saved(one, other) >= 0


def _beyond(one: Setting, others: Sequence[Setting]) -> bool:
    """Whether a setting is larger and more accurate than all others, so that none compares with it."""
    return all(_lead(one, other) > 0 and _saved(other, one) > 0 for other in others)


def _lead(one: Setting, other: Setting) -> float:
    return _ahead(one, other, "accuracy")


def _ahead(one: Setting, other: Setting, figure: str) -> float:
    mine, theirs = _means(one.runs, other.runs, figure)
    return mine - theirs


def _saved(one: Setting, other: Setting) -> float:
    """Return the share of the other setting's parameters that the first one saves."""
    return _share_saved(one.runs, other.runs, "parameters")


def _share_saved(one: Runs, other: Runs, figure: str) -> float:
    mine, theirs = _means(one, other, figure)
    return 1 - mine / theirs


def _means(one: Runs, other: Runs, figure: str) -> tuple[float, float]:
    """Return the means of a figure for both, over the seeds that both were run with if there are any."""
    mine, theirs = (Setting("", tuple(runs)).spread(figure).mean for runs in of_common_seeds([one, other]))
    return mine, theirs


def _first_at(curve: Sequence[Spread], target: float) -> int | None:
    return next((trial for trial, spread in enumerate(curve) if spread.mean >= target), None)


def _sized(system: System, setting: Setting) -> str:
    size = short_count(setting.spread("parameters").mean)
    return f"{named(system, setting)}: {size}, {percent_with_sd(setting.spread('accuracy'))}"


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def _points(value: float) -> str:
    return f"{100 * value:.2f} points"


def _share_points(value: float) -> str:
    return f"{100 * value:.0f} points"
