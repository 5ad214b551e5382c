"""The page: one HTML file that needs nothing else. SVG titles show numbers when hovered over; there is no script."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from importlib import resources

from bocl.records.summary import RunSummary
from bocl.report.charts import Chart, Series
from bocl.report.drawing import Drawing
from bocl.report.inside import task_rows
from bocl.report.layout import draw, draw_sample
from bocl.report.sections import Group, Portrait, Report, Section, portraits
from bocl.report.style import colours
from bocl.report.systems import StreamResults, shared
from bocl.wording import counted, duration, one_line, percent, points

OPENING = "<!doctype html>\n<html lang=en><head><meta charset=utf-8><meta name=generator content=bocl>"
_TASK_HEADER = ("task", "", "units added", "learnt", "now", "parameters", "trials", "difficulty (points)", "growth")


def page(report: Report) -> str:
    """Return a report as HTML; the same report gives the same bytes."""
    shown = [section for section in report.sections if section.filled]
    links = [(section.key, section.title.partition(":")[0]) for section in shown]
    links += [("inside", "Inside the networks"), ("runs", "Runs")]
    body = [
        f"<header><h1>{escape(report.title)}</h1><p class=facts>{_facts(report.streams)}</p></header>",
        "<nav>" + "".join(f'<a href="#{key}">{escape(title)}</a>' for key, title in links) + "</nav>",
        "<main>",
        *map(_section, shown),
        "<section id=inside><h2>Inside the networks</h2>",
        "<p class=caption>For every system, the first seed of the setting shown above; its other runs are folded "
        "below it. Grey bars are units known before a task, coloured bars the units it added; bars may begin above "
        "zero. The colours of a heat map run from its least value to its greatest, over at least ten points. A ring "
        "marks the child that was kept, the grey line the front: no child is both smaller and more accurate than those "
        "on it.</p>",
        *map(_inside, report.streams),
        "</section>",
        _runs(report.streams),
        "</main>",
    ]
    style = f"{_style()}{report.css}"
    head = '<meta name=viewport content="width=device-width, initial-scale=1"><title>bocl report</title>'
    return (
        f"{OPENING}{_policy(style)}{head}<style>{style}</style></head>\n<body>\n"
        + "\n".join(body)
        + "\n</body></html>\n"
    )


def escape(text: str) -> str:
    """Return text as HTML on one line, with unprintable characters escaped."""
    return html.escape(one_line(text))


def table(header: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> str:
    """Return a table; its cells are HTML already."""
    head = "".join(f"<th>{escape(column)}</th>" for column in header)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    named = f" {kind}" if kind else ""
    return f'<div class="scroll{named}"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _policy(style: str) -> str:
    """Let a browser apply this style and nothing else: no script, and nothing from elsewhere."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    allowed = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    return f'<meta http-equiv=Content-Security-Policy content="{allowed}">'


def _style() -> str:
    light, dark = ("".join(f"--{role}:{pair[side]};" for role, pair in colours().items()) for side in (0, 1))
    on_screen = f"@media screen and (prefers-color-scheme: dark){{:root{{{dark}}}}}"
    rules = resources.files("bocl.report").joinpath("page.css").read_text(encoding="utf-8")
    return f":root{{color-scheme:light dark;{light}}}{on_screen}\n{rules}"


def _facts(streams: Sequence[StreamResults]) -> str:
    runs = [run for stream in streams for run in (*stream.runs(), *stream.unfinished, *stream.repeats)]
    sessions = [session for run in runs for session in run.sessions]
    days = sorted(session.time[:10] for session in sessions)
    devices = sorted({str(session.machine.get("name", "unknown device")) for session in sessions})
    versions = sorted({f"bocl {s.versions.get('bocl', '?')}, torch {s.versions.get('torch', '?')}" for s in sessions})
    said = [
        f"{counted(len(runs), 'run')} on {', '.join(stream.label for stream in streams)}",
        days[0] if days[0] == days[-1] else f"{days[0]} to {days[-1]}",
        "; ".join(devices),
        "; ".join(versions),
    ]
    return escape(" · ".join(said))


def _section(section: Section) -> str:
    parts = [f"<section id={section.key}><h2>{escape(section.title)}</h2>"]
    if section.caption:
        parts.append(f"<p class=caption>{escape(section.caption)}</p>")
    if section.legend:
        parts.append(_legend(section.legend))
    for heading, charts in section.rows:
        if charts:
            parts.append(f"<h3>{escape(heading)}</h3>" if heading else "")
            parts.append(f"<div class=panels>{_figures(charts)}</div>")
    for heading, each in section.tables:
        if each.rows:
            parts.append(f"<h3>{escape(heading)}</h3>" if heading else "")
            parts.append(table(each.header, _cells(each.rows), section.key))
        if each.others:
            folded = table(each.header, _cells(each.others), section.key)
            parts.append(f"<details><summary>{counted(len(each.others), 'other setting')}</summary>{folded}</details>")
    return "".join([*parts, section.html, "</section>"])


def _figures(charts: Iterable[Chart]) -> str:
    return "".join(f"<figure>{draw(chart).inline()}</figure>" for chart in charts)


def _legend(series: Iterable[Series]) -> str:
    keys = []
    for each in series:
        key = Drawing(20, 12, each.name)
        draw_sample(key, each, (1, 6))
        keys.append(f"<li>{key.inline()}{escape(each.name)}</li>")
    return f"<ul class=legend>{''.join(keys)}</ul>"


def _inside(stream: StreamResults) -> str:
    shown = "".join(map(_portrait, portraits(stream)))
    return f"<h3>{escape(stream.label)}</h3>{shown}" if shown else ""


def _portrait(portrait: Portrait) -> str:
    run = portrait.run
    parts = [
        f"<article><h4>{escape(portrait.title)}</h4><p class=facts>{_outcome(run)}</p>",
        *map(_group, portrait.groups),
        f"<details><summary>Task by task</summary>{_tasks(run)}</details>",
        f"<details><summary>Settings and machine</summary>{_circumstances(run)}</details></article>",
    ]
    for title, other in portrait.others:
        told = f"{escape(title)}: {_outcome(other)}"
        parts.append(f"<details class=run><summary>{told}</summary>{_tasks(other)}</details>")
    return "".join(parts)


def _group(group: Group) -> str:
    heading = f"<h5>{escape(group.heading)}</h5>" if group.heading else ""
    caption = f"<p class=caption>{escape(group.caption)}</p>" if group.caption else ""
    return f"{heading}{caption}<div class={'small' if group.small else 'drawn'}>{_figures(group.charts)}</div>"


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
    rows = task_rows(run)
    return table(_TASK_HEADER[: max(map(len, rows), default=-1)], _cells(rows))


def _circumstances(run: RunSummary) -> str:
    sessions = [
        {"time": one.time, "machine": one.machine, "versions": one.versions, "runs on the device": one.shares_device}
        for one in run.sessions
    ]
    text = json.dumps({"settings": run.config, "sessions": sessions}, indent=1)
    return f"<pre>{html.escape(text)}</pre>"


def _runs(streams: Sequence[StreamResults]) -> str:
    """List every run with the hash that its records can be checked against."""
    rows = []
    for stream in streams:
        groups = (
            (stream.runs(), ""),
            (stream.unfinished, "not finished"),
            (stream.repeats, "a repeat: only its time may count"),
        )
        for runs, remark in groups:
            for run in runs:
                done = f"{len(run.tasks)} of {run.wanted}"
                cells = (str(run.folder), stream.name, run.method, str(run.seed), done, str(run.lines), remark)
                rows.append([*map(escape, cells), f"<code title={run.head}>{run.head[:16]}</code>"])
    header = ("run", "stream", "method", "seed", "tasks", "records", "", "journal head")
    return (
        "<section id=runs><h2>Runs</h2><p class=caption>When this page was made, each record of every run listed here "
        "held the hash of the one before it; the journal head is the hash of the last, which depends on all. "
        "<code>bocl audit RUN</code> checks files, tensors, logits and accuracies against the records.</p>"
        + table(header, rows)
        + "</section>"
    )


def _cells(rows: Iterable[Iterable[object]]) -> list[list[str]]:
    return [["" if cell is None else escape(str(cell)) for cell in row] for row in rows]
