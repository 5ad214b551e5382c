"""The paper's claims beside ours: met, missed, by how much; and the parameter reductions of its Table 1."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from bocl.checks import counted
from bocl.records.wording import points
from bocl.report.charts import Table
from bocl.report.claims import CLAIMS, FIXED_SIZE, GROWING, TASKS, Claim, Measure
from bocl.report.figures import (
    attention_gains,
    named,
    percent_with_sd,
    search_kind,
    searchers,
    short_count,
    trial_curve,
)
from bocl.report.systems import Setting, Spread, Stream, System

ON_PAR = 0.0025  # of validation accuracy that a matched setting may be behind: a quarter of a point
RIVALS = ("pgn", "den", "rcl")

Verdict = Literal["met", "missed", "open"]


@dataclass(frozen=True)
class Finding:
    """A claim and what our runs say of it.

    about    what is claimed
    paper    its figure
    ours     our figure; '' where no run tells
    verdict  `open` where no run tells
    margin   by how much it is met or missed
    """

    claim: Claim
    about: str
    paper: str
    ours: str = ""
    verdict: Verdict = "open"
    margin: str = ""


@dataclass(frozen=True)
class Match:
    """A rival's headline setting and the smallest BOCL setting on par with it; None where there is none."""

    rival: System
    own: tuple[System, Setting] | None

    @property
    def reduction(self) -> float | None:
        """Share of the rival's parameters that BOCL saves."""
        if self.own is None:
            return None
        return 1 - self.own[1].spread("parameters").mean / self.rival.headline.spread("parameters").mean

    @property
    def gap(self) -> float:
        """Test accuracy of the BOCL setting less the rival's."""
        assert self.own is not None
        return self.own[1].spread("accuracy").mean - self.rival.headline.spread("accuracy").mean


def match(stream: Stream, rival: str) -> Match | None:
    """Find the BOCL setting to set beside a rival: the smallest of those on par on validation samples."""
    other, own = stream.system(rival), stream.system("bocl")
    if other is None or own is None:
        return None
    wanted = other.headline.spread("validation").mean - ON_PAR
    enough = [setting for setting in own.settings if setting.spread("validation").mean >= wanted]
    fewest = min(enough, key=lambda setting: setting.spread("parameters").mean, default=None)
    return Match(other, None if fewest is None else (own, fewest))


def reductions(streams: Sequence[Stream]) -> Table:
    """Table 1: parameters BOCL saves at matched accuracy."""
    printed = {(claim.stream, claim.rival): claim.value for claim in CLAIMS if claim.measure == "parameters"}
    rows = []
    for stream in streams:
        for rival in RIVALS:
            found = match(stream, rival)
            if found is None:
                continue
            value = printed.get((stream.name, rival)) if stream.tasks == TASKS else None
            theirs = found.rival.headline
            cells = ["no matched point", "", ""]
            if found.own is not None and found.reduction is not None:
                cells = [_share(found.reduction), _sized(*found.own), f"{points(found.gap)} points"]
            rows.append(
                (stream.label, rival, "" if value is None else _share(value), *cells, _sized(found.rival, theirs))
            )
    header = ("stream", "against", "paper", "ours", "BOCL's setting", "its test accuracy, compared", "rival's setting")
    return Table("table-1", header, tuple(rows))


def findings(streams: Sequence[Stream], figure: str | None = None) -> list[Finding]:
    """Return what our runs say of the claims on the streams that are here, or of those beside one figure."""
    by_name = {stream.name: stream for stream in streams if stream.tasks == TASKS and stream.systems}
    return [
        _JUDGES[claim.measure](claim, by_name[claim.stream])
        for claim in CLAIMS
        if claim.stream in by_name and figure in (None, claim.figure)
    ]


def _accuracy(claim: Claim, stream: Stream) -> Finding:
    about, paper = "networks that grow are more accurate than those of fixed size", "higher"
    growing = _headlines(stream, GROWING)
    fixed = _headlines(stream, FIXED_SIZE)
    if not growing or not fixed:
        return Finding(claim, about, paper)
    worst = min(growing, key=lambda system: system.headline.spread("accuracy").mean)
    best = max(fixed, key=lambda system: system.headline.spread("accuracy").mean)
    low, high = worst.headline.spread("accuracy"), best.headline.spread("accuracy")
    ours = f"{worst.name} {percent_with_sd(low)}, {best.name} {percent_with_sd(high)}"
    return _judged(claim, about, paper, ours, low.mean - high.mean, 0.0, _points)


def _time(claim: Claim, stream: Stream) -> Finding:
    about = f"training time saved against {claim.rival}"
    assert claim.value is not None
    paper = _share(claim.value)
    own, other = stream.system("bocl"), stream.system(claim.rival)
    if own is None or other is None or not (own.headline.alone and other.headline.alone):
        return Finding(claim, about, paper)
    saved = 1 - own.headline.spread("seconds").mean / other.headline.spread("seconds").mean
    fewer = 1 - own.headline.spread("samples").mean / other.headline.spread("samples").mean
    return _judged(
        claim, about, paper, f"{_share(saved)} (samples: {_share(fewer)})", saved, claim.value, _share_points
    )


def _front(claim: Claim, stream: Stream) -> Finding:
    about, paper = f"each setting of {claim.rival} has one of bocl no larger and no less accurate", "each"
    own, other = stream.system("bocl"), stream.system(claim.rival)
    if own is None or other is None:
        return Finding(claim, about, paper)
    beaten = sum(any(_beats(mine, theirs) for mine in own.settings) for theirs in other.settings)
    total = len(other.settings)
    ours = f"{beaten} of {total}"
    return _judged(claim, about, paper, ours, beaten, total, lambda value: f"{value:.0f} of {total}")


def _keeps(claim: Claim, stream: Stream) -> Finding:
    about = f"{claim.rival} forgets nothing of task 1"
    system = stream.system(claim.rival)
    if system is None:
        return Finding(claim, about, "0 points")
    worst = max(abs(entry["first_task_forgetting"]) for entry in system.headline.figures)
    return _judged(claim, about, "0 points", f"{points(worst).lstrip('+')} points", -worst, 0.0, _points)


def _forgets(claim: Claim, stream: Stream) -> Finding:
    about = f"{claim.rival} forgets some of task 1"
    system = stream.system(claim.rival)
    if system is None:
        return Finding(claim, about, "some")
    lost = system.headline.spread("first_task_forgetting")
    verdict: Verdict = "met" if lost.mean > 0 else "missed"
    return Finding(claim, about, "some", f"{points(lost.mean).lstrip('+')} points", verdict)


def _trials(claim: Claim, stream: Stream) -> Finding:
    about = f"fewer trials than {claim.rival} search for its accuracy"
    kinds = {search_kind(system): system for system in searchers(stream)}
    own, other = kinds.get("bayesian", kinds.get("paper")), kinds.get(claim.rival)
    if own is None or other is None:
        return Finding(claim, about, "fewer")
    theirs = trial_curve(other)
    target = theirs[-1].mean
    needed, reached = _first_at(theirs, target), _first_at(trial_curve(own), target)
    if needed is None or reached is None:
        return Finding(claim, about, "fewer", f"{100 * target:.2f} % never reached, {needed} there", "missed")
    ours = f"{reached} for {100 * target:.2f} %, {needed} there"
    margin = f"by {counted(abs(needed - reached), 'trial')}" if needed != reached else ""
    return Finding(claim, about, "fewer", ours, "met" if reached < needed else "missed", margin)


def _parameters(claim: Claim, stream: Stream) -> Finding:
    about = f"parameters saved against {claim.rival} at matched accuracy"
    assert claim.value is not None
    paper = _share(claim.value)
    found = match(stream, claim.rival)
    if found is None:
        return Finding(claim, about, paper)
    if found.reduction is None:
        return Finding(claim, about, paper, "no matched point", "missed")
    ours = f"{_share(found.reduction)} (test accuracy {points(found.gap)} points)"
    return _judged(claim, about, paper, ours, found.reduction, claim.value, _share_points)


def _attention(claim: Claim, stream: Stream) -> Finding:
    about = "test accuracy gained by attention"
    assert claim.value is not None
    paper = f"{points(claim.value)} points"
    gains = [gain for _, gain in attention_gains(stream)]
    if not gains:
        return Finding(claim, about, paper)
    over = Spread.of(gains)
    sd = "" if over.sd is None else f" ± {100 * over.sd:.2f}"
    ours = f"{points(over.mean)}{sd} points, {over.count} pairs"
    return _judged(claim, about, paper, ours, over.mean, claim.value, _points)


_JUDGES: dict[Measure, Callable[[Claim, Stream], Finding]] = {
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
    """Meet a claim with a value that is wanted to be at least so high."""
    off = say(abs(value - wanted))
    margin = f"by {off}" if any(digit in off.partition(" ")[0] for digit in "123456789") else ""
    return Finding(claim, about, paper, ours, "met" if value >= wanted else "missed", margin)


def _headlines(stream: Stream, methods: Sequence[str]) -> list[System]:
    return [system for method in methods if (system := stream.system(method)) is not None]


def _beats(one: Setting, other: Setting) -> bool:
    """Whether a setting is at least as accurate with no more parameters."""
    more_accurate = one.spread("accuracy").mean >= other.spread("accuracy").mean
    return more_accurate and one.spread("parameters").mean <= other.spread("parameters").mean


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
