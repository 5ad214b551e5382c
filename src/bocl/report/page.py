"""The page: one HTML file that needs nothing else. Hovering shows numbers by SVG's own titles; there is no script."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from importlib import resources

from bocl.records.summary import RunSummary
from bocl.report.charts import Chart, Series
from bocl.report.drawing import Drawing
from bocl.report.figures import named
from bocl.report.findings import Finding
from bocl.report.inside import task_rows
from bocl.report.layout import draw, sample
from bocl.report.sections import Portrait, Section, portraits, sections
from bocl.report.style import COLOURS
from bocl.report.svg import inline
from bocl.report.systems import Stream, arrange, shared
from bocl.wording import counted, duration, one_line, percent, points

OPENING = "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=generator content=bocl>"
_VERDICTS = {"met": "✓ met", "missed": "✗ missed", "open": "open:"}
_TASK_HEADER = ("task", "", "units added", "learnt", "now", "parameters", "trials", "difficulty (points)")


def page(runs: Sequence[RunSummary]) -> str:
    """Return the report of some runs; the same runs give the same bytes."""
    streams = arrange(runs)
    compared = sections(streams)
    shown = [section for section in compared if section.filled]
    links = [(section.key, section.title.partition(":")[0]) for section in shown]
    links += [("inside", "Inside the networks"), ("runs", "Runs")]
    body = [
        "<header>",
        "<h1>Networks that grow, task after task</h1>",
        f"<p class=facts>{_facts(runs, streams)}</p>",
        "</header>",
        "<nav>" + "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title in links) + "</nav>",
        "<main>",
        _scoreboard(compared),
        *map(_section, shown),
        "<section id=inside><h2>Inside the networks</h2>",
        "<p class=caption>Of every system, the first seed of the setting that stands for it in Figure 2; other runs "
        "are folded below it. Grey bars are units known before a task, coloured ones what it added; they may begin "
        "above zero. A heat map’s colours run from its least value to its greatest, over ten points at least. A ring "
        "marks the child that was kept, the grey line the front: no child is both smaller and more accurate than those "
        "on it.</p>",
        *map(_inside, streams),
        "</section>",
        _runs(streams),
        "</main>",
    ]
    return (
        OPENING + '<meta name=viewport content="width=device-width, initial-scale=1"><title>bocl report</title>'
        f"<style>{_style()}</style></head>\n<body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def escape(text: str) -> str:
    """Return text as HTML, on one line, with what cannot be printed escaped."""
    return html.escape(one_line(text))


def _style() -> str:
    light, dark = ("".join(f"--{role}:{pair[side]};" for role, pair in COLOURS.items()) for side in (0, 1))
    on_screen = f"@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}"
    rules = resources.files("bocl.report").joinpath("page.css").read_text(encoding="utf-8")
    return f":root{{color-scheme:light dark;{light}}}{on_screen}\n{rules}"


def _facts(runs: Sequence[RunSummary], streams: Sequence[Stream]) -> str:
    sessions = [session for run in runs for session in run.sessions]
    days = sorted(session.time[:10] for session in sessions)
    devices = sorted({str(session.machine.get("name", "unknown device")) for session in sessions})
    versions = sorted({f"bocl {s.versions.get('bocl', '?')}, torch {s.versions.get('torch', '?')}" for s in sessions})
    when = days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}"
    said = [
        f"{counted(len(runs), 'run')} on {', '.join(stream.label for stream in streams)}",
        when,
        "; ".join(devices),
        "; ".join(versions),
    ]
    return escape(" · ".join(said))


def _scoreboard(compared: Sequence[Section]) -> str:
    """Say how many of the paper's claims these runs meet, figure by figure."""
    judged = [(section, section.findings) for section in compared if section.findings]
    if not judged:
        return (
            "<section id=claims><p class=caption>None of these runs is of one of the paper’s streams of ten tasks, so "
            "its claims are not set beside them.</p></section>"
        )
    entries = []
    for section, found in judged:
        met, missed = (sum(finding.verdict == verdict for finding in found) for verdict in ("met", "missed"))
        rest = len(found) - met - missed
        score = f"<b class=met>{met}</b> met, <b class=missed>{missed}</b> missed" + (f", {rest} open" if rest else "")
        title = escape(section.title.partition(":")[0])
        entries.append(f"<li>{f'<a href=#{section.key}>{title}</a>' if section.filled else title} {score}</li>")
    return (
        "<section id=claims><h2>The paper’s claims</h2><p class=caption>Met where our mean is at least what the paper "
        "says, noise not weighed; BOCL has its own search and prices unless the paper’s are named.</p>"
        f"<ul class=score>{''.join(entries)}</ul></section>"
    )


def _section(section: Section) -> str:
    parts = [f"<section id={section.key}><h2>{escape(section.title)}</h2>"]
    parts.append(f"<p class=caption>{escape(section.caption)}</p>")
    if section.legend:
        parts.append(_legend(section.legend))
    for heading, charts in section.rows:
        if charts:
            parts.append(f"<h3>{escape(heading)}</h3>" if heading else "")
            parts.append(f"<div class=panels>{''.join(map(_figure, charts))}</div>")
    for heading, table in section.tables:
        if table.rows:
            parts.append(f"<h3>{escape(heading)}</h3>" if heading else "")
            parts.append(_table(table.header, _cells(table.rows), section.key))
        if table.others:
            folded = _table(table.header, _cells(table.others), section.key)
            parts.append(f"<details><summary>{counted(len(table.others), 'other setting')}</summary>{folded}</details>")
    if section.findings:
        parts.append(_findings(section.findings))
    return "".join([*parts, "</section>"])


def _figure(chart: Chart) -> str:
    return f"<figure>{inline(draw(chart))}</figure>"


def _legend(series: Iterable[Series]) -> str:
    keys = [
        f"<li>{inline(Drawing(20, 12, each.name, [*sample(each, (1, 6))]))}{escape(each.name)}</li>" for each in series
    ]
    return f"<ul class=legend>{''.join(keys)}</ul>"


def _findings(found: Sequence[Finding]) -> str:
    """One row for each claim, one column for each stream."""
    streams = list(dict.fromkeys(finding.claim.stream for finding in found))
    rows: dict[str, dict[str, Finding]] = {}
    for finding in found:
        rows.setdefault(finding.about, {})[finding.claim.stream] = finding
    cells = []
    for about, by_stream in rows.items():
        where = next(iter(by_stream.values())).claim.where
        judged = [_verdict(by_stream[stream]) if stream in by_stream else "" for stream in streams]
        cells.append([f"{escape(about)}<small>{escape(where)}</small>", *judged])
    return "<h3>The paper’s claims beside ours</h3>" + _table(("claim", *streams), cells, "claims")


def _verdict(finding: Finding) -> str:
    said = f'<span class="verdict {finding.verdict}">{_VERDICTS[finding.verdict]}</span> {escape(finding.margin)}'
    ours = f", ours {finding.ours}" if finding.ours else ""
    return f"{said}<small>{escape(f'paper {finding.paper}{ours}')}</small>"


def _inside(stream: Stream) -> str:
    shown = portraits(stream)
    if not shown:
        return ""
    first = {id(portrait.run) for portrait in shown}
    parts = [f"<h3>{escape(stream.label)}</h3>"]
    for portrait in shown:
        parts.append(_portrait(portrait))
        others = [
            (f"{named(system, setting)}, seed {run.seed}", run)
            for system in stream.systems
            if any(id(run) == id(portrait.run) for setting in system.settings for run in setting.runs)
            for setting in system.settings
            for run in setting.runs
            if id(run) not in first
        ]
        parts.extend(_folded(title, run) for title, run in others)
    return "".join(parts)


def _portrait(portrait: Portrait) -> str:
    run = portrait.run
    parts = [f"<article><h4>{escape(portrait.title)}</h4><p class=facts>{_outcome(run)}</p>"]
    parts.append(f"<div class=drawn>{''.join(map(_figure, (*portrait.charts, *portrait.reuse)))}</div>")
    if portrait.searches:
        parts.append(f"<h5>The search of each task</h5>{_small(portrait.searches)}")
    if portrait.gains:
        parts.append(
            "<h5>Expected gain in reward, when a trial was asked for</h5><p class=caption>Other trials were spread "
            "evenly over the widths, to open the search or to doubt what earlier tasks suggest. After a few trials, "
            f"the search ends when no widths promise as much as the dotted line.</p>{_small(portrait.gains)}"
        )
    if portrait.beliefs:
        parts.append(
            "<h5>What the search believed in the end</h5><p class=caption>Bars: the probability that the best widths, "
            "of those tried and some hundreds of others, have so many units in a layer; the dot is what was kept. "
            "Calibration: each trial’s accuracy less what the process predicts from all others, in its own standard "
            "deviations, and the share of trials inside its 50 % (hollow) and 90 % intervals, which the dotted and the "
            f"dashed lines show.</p><div class=drawn>{''.join(map(_figure, portrait.beliefs))}</div>"
        )
    parts.append(f"<details><summary>Task by task</summary>{_tasks(run)}</details>")
    parts.append(f"<details><summary>Settings and machine</summary>{_circumstances(run)}</details></article>")
    return "".join(parts)


def _small(charts: Sequence[Chart]) -> str:
    return f"<div class=small>{''.join(map(_figure, charts))}</div>"


def _folded(title: str, run: RunSummary) -> str:
    return f"<details class=run><summary>{escape(title)}: {_outcome(run)}</summary>{_tasks(run)}</details>"


def _outcome(run: RunSummary) -> str:
    figures = run.figures()
    said = [
        f"{percent(figures['accuracy'])} over {counted(len(run.tasks), 'task')}",
        f"BWT {points(figures['backward_transfer'])}",
        f"{figures['parameters']:,} parameters",
        duration(figures["seconds"]) + (" on a shared device" if shared(run) else ""),
    ]
    return escape(", ".join(said))


def _tasks(run: RunSummary) -> str:
    return _table(_TASK_HEADER, [[escape(cell) for cell in row] for row in task_rows(run)])


def _circumstances(run: RunSummary) -> str:
    sessions = [
        {
            "time": session.time,
            "machine": session.machine,
            "versions": session.versions,
            "runs at once": session.at_once,
        }
        for session in run.sessions
    ]
    text = json.dumps({"settings": run.config, "sessions": sessions}, indent=1)
    return f"<pre>{html.escape(text)}</pre>"


def _runs(streams: Sequence[Stream]) -> str:
    """List every run with the stamp that says what its records are worth."""
    rows = []
    for stream in streams:
        groups = (
            (stream.runs(), ""),
            (stream.unfinished, "not finished"),
            (stream.repeats, "a repeat: at most its time counts"),
        )
        for runs, remark in groups:
            for run in runs:
                done = f"{len(run.tasks)} of {run.wanted}"
                cells = (str(run.folder), stream.name, run.method, str(run.seed), done, str(run.lines), remark)
                rows.append([*map(escape, cells), f"<code title={run.head}>{run.head[:16]}</code>"])
    header = ("run", "stream", "method", "seed", "tasks", "records", "", "journal head")
    return (
        "<section id=runs><h2>Runs</h2><p class=caption>The records of every run listed here were found to follow one "
        "another, hash by hash, when this page was made; the journal head, the hash of the last, speaks for all. "
        "<code>bocl audit RUN</code> checks the rest against them: files, tensors, logits and accuracies.</p>"
        + _table(header, rows)
        + "</section>"
    )


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """Return a table of cells that are HTML already."""
    head = "".join(f"<th>{escape(column)}</th>" for column in header)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    named = f" {kind}" if kind else ""
    return f'<div class="scroll{named}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cells(rows: Iterable[Iterable[object]]) -> list[list[str]]:
    return [["" if cell is None else escape(str(cell)) for cell in row] for row in rows]
