"""The page of the replication: the paper's figures and tables from our records, and its claims next to ours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bocl.records.summary import RunSummary
from bocl.report.charts import Chart, Table
from bocl.report.page import escape, table
from bocl.report.sections import Report, Rows, Section, sections, side_by_side
from bocl.report.systems import StreamResults
from bocl.report.trial_curves import all_tested
from replication.findings import ON_PAR, Finding, findings, reductions
from replication.paper_figures import (
    accuracy_against_trials,
    attention_ablation,
    compared_searches,
    only_main,
    reward_against_trials,
    searchers,
    times,
)
from replication.streams import arrange_replication

_VERDICTS = {"met": "✓ met", "missed": "✗ missed", "open": "open:"}
_WHO = {
    "bocl": "searches in our way",
    "bocl, paper's search": "as the paper does",
    "fixed": "adds the same units for every task",
    "frozen": "adds no units, only attention and heads",
    "independent": "trains a network for each task",
    "joint": "learns all tasks so far at once",
}
#: Prefix of a chart's name in the library → prefix in the paper, and the letter before its title.
_PLACES = {
    "accuracy-": ("figure-2a-", "(a) "),
    "parameters-": ("figure-2b-", "(b) "),
    "time-": ("figure-2c-", "(c) "),
    "samples-": ("figure-2c-", "(c) "),
    "size-": ("figure-3-", ""),
    "first-task-": ("figure-4-", ""),
}


def replicate(runs: Sequence[RunSummary]) -> Report:
    """Return the report of the replication's runs."""
    streams = arrange_replication(runs)
    css = Path(__file__).with_name("page.css").read_text(encoding="utf-8")
    return Report(
        tuple(streams), tuple(paper_sections(streams)), "BOCL replicated: the paper’s claims and our runs", css
    )


def paper_sections(streams: Sequence[StreamResults]) -> list[Section]:
    """Return the paper's figures and tables, each with its claims and what our runs show."""
    compared = [stream for stream in streams if stream.systems]
    judged = findings(compared)
    everything, *_ = sections(compared)
    _, bars, size, first_task, trials = sections([only_main(stream) for stream in compared])
    bars = replace(
        bars,
        caption=bars.caption + _of_claims_on_time(compared),
        tables=tuple((f"Time, {stream.label}", told) for stream in compared if (told := times(stream)).rows),
    )
    figures = [
        _as_figure(bars, "figure-2", "Figure 2"),
        _as_figure(size, "figure-3", "Figure 3"),
        _as_figure(first_task, "figure-4", "Figure 4"),
        Section(
            "figure-5",
            "Figure 5: accuracy and reward against trials",
            f"{trials.caption} {_of_samples(compared)}",
            (
                *side_by_side(compared, accuracy_against_trials, "Accuracy, as in the paper"),
                *side_by_side(compared, reward_against_trials, "Reward: accuracy less the price of units"),
            ),
        ),
        Section(
            "table-1",
            "Table 1: parameters saved at matched accuracy",
            "Every setting of a rival (an asterisk marks the one in Figure 2, for which claims are judged) is compared "
            "with the BOCL setting that has the fewest parameters and a validation accuracy no more than "
            f"{100 * ON_PAR:g} points lower; the test split is not used to match them. A search picks its children by "
            "validation accuracy, which flatters them: a claim is met only if test accuracy, too, is no more than that "
            "lower. Only settings among these runs are used; nothing is interpolated.",
            tables=(("", reductions(compared)),),
        ),
        Section(
            "attention",
            "Attention, with and without",
            "Runs that differ only in attention, paired by seed: average test accuracy with it less that without.",
            side_by_side(compared, attention_ablation),
        ),
    ]
    return [
        _scoreboard(figures, judged),
        replace(everything, caption=everything.caption + _who(compared)),
        *(_judged(section, [one for one in judged if one.claim.figure == section.key]) for section in figures),
    ]


def _as_figure(section: Section, key: str, number: str) -> Section:
    """Return a section of the library's report as a figure of the paper, with charts named by their place there."""
    rows: Rows = tuple((heading, tuple(map(_in_its_place, charts))) for heading, charts in section.rows)
    return replace(section, key=key, title=f"{number}: {section.title[0].lower()}{section.title[1:]}", rows=rows)


def _in_its_place(chart: Chart) -> Chart:
    for own, (place, letter) in _PLACES.items():
        if chart.name.startswith(own):
            return replace(chart, name=place + chart.name.removeprefix(own), title=letter + chart.title)
    return chart


def _judged(section: Section, found: Sequence[Finding]) -> Section:
    """Return a section with its claims; one that shows nothing has them only as a file."""
    if not found:
        return section
    header = ("claim", "stream", "where", "paper", "ours", "verdict", "margin")
    rows = [(f.about, f.claim.stream, f.claim.where, f.paper, f.ours, f.verdict, f.margin) for f in found]
    files = (Table(f"claims-{section.key}", header, tuple(rows)),)
    return replace(section, html=_claims(found) if section.filled else "", files=files)


def _scoreboard(figures: Sequence[Section], found: Sequence[Finding]) -> Section:
    """Return how many of the paper's claims these runs meet, figure by figure."""
    title = "The paper’s claims"
    if not found:
        none = "None of these runs is on one of the paper’s streams of ten tasks, so its claims are not judged."
        return Section("claims", title, "", html=f"<p class=caption>{none}</p>")
    entries = []
    for section in figures:
        verdicts = [one.verdict for one in found if one.claim.figure == section.key]
        met, missed, rest = (verdicts.count(verdict) for verdict in ("met", "missed", "open"))
        score = f"<b class=met>{met}</b> met, <b class=missed>{missed}</b> missed" + (f", {rest} open" if rest else "")
        name = escape(section.title.partition(":")[0])
        entries.append(f"<li>{f'<a href=#{section.key}>{name}</a>' if section.filled else name} {score}</li>")
    caption = (
        "A claim is met if our mean is at least what the paper says; noise is not considered. BOCL has its own search "
        "and prices unless the paper’s are named."
    )
    return Section("claims", title, caption, html=f"<ul class=score>{''.join(entries)}</ul>")


def _claims(found: Sequence[Finding]) -> str:
    """Return a table with a row for each claim and a column for each stream."""
    streams = list(dict.fromkeys(finding.claim.stream for finding in found))
    rows: dict[str, dict[str, Finding]] = {}
    for finding in found:
        rows.setdefault(finding.about, {})[finding.claim.stream] = finding
    cells = []
    for about, by_stream in rows.items():
        where = next(iter(by_stream.values())).claim.where
        verdicts = [_verdict(by_stream[stream]) if stream in by_stream else "" for stream in streams]
        cells.append([f"{escape(about)}<small>{escape(where)}</small>", *verdicts])
    return "<h3>The paper’s claims next to ours</h3>" + table(("claim", *streams), cells, "claims")


def _verdict(finding: Finding) -> str:
    said = f'<span class="verdict {finding.verdict}">{_VERDICTS[finding.verdict]}</span> {escape(finding.margin)}'
    ours = f", ours {finding.ours}" if finding.ours else ""
    return f"{said}<small>{escape(f'paper {finding.paper}{ours}')}</small>"


def _who(streams: Sequence[StreamResults]) -> str:
    """Describe the systems that the paper does not have, and BOCL's search if there are two."""
    names = {system.name for stream in streams for system in stream.systems}
    told = [name for name in _WHO if name in names and (name != "bocl" or "bocl, paper's search" in names)]
    return " Systems: " + "; ".join(f"“{name}” {_WHO[name]}" for name in told) + "." if told else ""


def _of_claims_on_time(streams: Sequence[StreamResults]) -> str:
    timed = any(system.headline.time for stream in streams for system in stream.systems)
    return "" if timed else " No claim about time is judged."


def _of_samples(streams: Sequence[StreamResults]) -> str:
    """Return which samples Figure 5 scores on, and how RCL takes part."""
    compared = [compared_searches(stream) for stream in streams]
    said = "If a run did not score test samples (test_curve), validation samples are used."
    if all(map(all_tested, compared)):
        said = "Test samples are scored after a task is learnt; nothing is chosen by them."
    if any(system.method == "rcl" for one in compared for system, _ in one):
        return (
            said + " rcl grows a network of its own, without attention; the claims are about other searches for bocl."
        )
    left_out = any(searchers(stream, "rcl") for stream in streams)
    return said + (" rcl is left out, as its runs did not score them." if left_out else "")
