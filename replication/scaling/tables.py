"""Make the tables of large studies from the records in ``measurements/``.

python -m replication.scaling.tables            prints the tables
python -m replication.scaling.tables --write    puts each between its marks in PAGE
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bocl.records.files import write_whole
from bocl.wording import duration
from replication.scaling import MEASUREMENTS
from replication.scaling.study import GPUS
from replication.tables import filled

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scaling.md"
SPEED = MEASUREMENTS.with_name("speed") / "engines.json"


def _read(place: Path) -> Any:
    return json.loads(place.read_text(encoding="utf-8"))


def _share(value: float) -> str:
    return f"{100 * value:.0f} %"


def overhead() -> str:
    """Return what Ray adds to runs of short and of long rounds."""
    lines = [
        "| run | rounds of | seconds, as a share of a process | CPU time | turns | others used at most |",
        "|---|---|---|---|---|---|",
    ]
    for one in _read(SPEED):
        words = one["command"].removeprefix("python -m replication.speed.engines").split(" --")
        settings = ", ".join(f"`{word.removeprefix('set ')}`" for word in words if word.startswith("set "))
        name = f"`digits`, {settings}" if settings else "`digits`"
        each = one["seconds"]["processes"] / one["rounds"]
        seconds, cpu = (
            f"{middle:.3f}" + (f" ({low:.3f} to {high:.3f})" if one["counted"] > 1 else "")
            for low, middle, high in (one["seconds_ratio"], one["cpu_ratio"])
        )
        lines.append(f"| {name} | {each:.1f} s | {seconds} | {cpu} | {one['counted']} | {one['others']:.1f} cores |")
    return "\n".join(lines)


def waiting() -> str:
    """Return what Ray adds to runs that wait in place of training."""
    found = _read(MEASUREMENTS / "waiting.json")
    lines = ["| run | rounds of | seconds, as a share of what it waits |", "|---|---|---|"]
    name = ", ".join(["`digits`", *(f"`{setting}`" for setting in found["settings"])])
    lines += [f"| {name} | {found['seconds_of_a_round']:.0f} s | {ratio:.4f} |" for ratio in found["ratios"]]
    return "\n".join(lines)


def costs() -> str:
    """Return what the simulator is told."""
    found = _read(MEASUREMENTS / "costs.json")
    ray, process = found["costs"], found["processes"]
    rows = {
        "a process of a run starts, until it works": f"{process['run']:.1f} s",
        "a Ray cluster starts on one machine": f"{ray['engine']:.1f} s",
        "a worker starts, once": f"{ray['worker']:.1f} s",
        "a worker is given its next run, until it works": f"{1000 * ray['run']:.0f} ms",
        "the driver writes a record": f"{1000 * ray['record']:.1f} ms",
        "and for every megabyte of it": f"{1e9 * ray['byte']:.1f} ms",
        "a worker finds what a record changed": f"{1000 * found['finding']['small']:.1f} ms",
        "from node to node, both on this machine": f"{found['bytes_a_second_between_nodes'] / 1e6:.0f} MB a second",
    }
    return "\n".join(["| what | takes |", "|---|---|", *(f"| {what} | {takes} |" for what, takes in rows.items())])


def study() -> str:
    """Return what a study of 10,000 runs comes to."""
    lines = [
        "| engine | GPUs | time | GPUs at work | driver at work | a record waits at most |",
        "|---|---|---|---|---|---|",
    ]
    for one in _read(MEASUREMENTS / "study.json")["outcomes"]:
        gpus = f"{one['gpus']:,}"
        if one["drivers"] > 1:
            gpus += f", {one['drivers']} commands" + (", longest runs first" if one["longest_first"] else "")
        ray = one["engine"] == "ray"
        driver, late = (_share(one["driver_share"]), duration(one["late"])) if ray else ("–", "–")
        name = "Ray" if ray else "processes"
        lines.append(
            f"| {name} | {gpus} | {duration(one['seconds'])} | {_share(one['efficiency'])} | {driver} | {late} |"
        )
    return "\n".join(lines)


def limits() -> str:
    """Return what a thousand GPUs that are all at work ask of one driver."""
    found, ray = _read(MEASUREMENTS / "study.json"), _read(MEASUREMENTS / "costs.json")["costs"]
    whole = next(one for one in found["outcomes"] if one["gpus"] == GPUS[-1] and one["drivers"] == 1)
    runs = GPUS[-1] / found["seconds_of_a_run"]
    records, size = runs * found["records_of_a_run"], runs * found["bytes_of_a_run"]
    most = 1 / (ray["record"] + ray["byte"] * size / records)
    rows = {
        "runs that end": f"{runs:.0f} a second",
        "records": f"{records:.0f} a second",
        "bytes of records": f"{size / 1e6:.0f} MB a second, {whole['bytes'] / 1e9:.0f} GB in all",
        "one driver writes at most": f"{most:.0f} such records a second",
        "so it keeps up with": f"about {round(GPUS[-1] * most / records, -1):.0f} GPUs",
        "bytes that wait for it at worst, where they were made": f"{whole['waiting'] / 1e9:.1f} GB in all",
    }
    head = [f"| on {GPUS[-1]:,} GPUs that are all at work | |", "|---|---|"]
    return "\n".join([*head, *(f"| {what} | {many} |" for what, many in rows.items())])


def check() -> str:
    """Return how long the simulator said studies would take, and how long they took."""
    lines = ["| workers | runs | predicted | measured | predicted / measured |", "|---|---|---|---|---|"]
    cases: dict[tuple[int, float | None], list[dict[str, Any]]] = {}
    for one in _read(MEASUREMENTS / "check.json")["studies"]:
        cases.setdefault((one["workers"], one["pace"]), []).append(one)
    for (workers, pace), some in cases.items():
        kind = "training" if pace is None else f"waiting {pace:g} times as long"
        ratios = [one["ratio"] for one in some]
        spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
        predicted, measured = (median(one[name] for one in some) for name in ("predicted", "measured"))
        lines.append(
            f"| {workers}, {kind} | {some[0]['runs']} | {predicted:.1f} s "
            f"| {measured:.1f} s | {median(ratios):.2f}{spread} |"
        )
    return "\n".join(lines)


TABLES: dict[str, Callable[[], str]] = {
    "ray-overhead": overhead,
    "ray-waiting": waiting,
    "scaling-costs": costs,
    "scaling-study": study,
    "scaling-check": check,
    "scaling-limits": limits,
}


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        write_whole(PAGE, filled(PAGE.read_text(encoding="utf-8"), TABLES).encode())
    else:
        print("\n\n".join(table() for table in TABLES.values()))
