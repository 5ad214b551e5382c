"""Make the README's tables from the records beside this file, so that no figure is typed by hand.

python results/tables.py            prints every table
python results/tables.py --write    puts them into README.md, between their marks
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
README = HERE.parent / "README.md"


def tasks_of(journal: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the start record and the task records of a run."""
    records = [json.loads(line)["record"] for line in journal.read_text().splitlines()]
    return records[0], [record for record in records if record["kind"] == "task"]


def small() -> str:
    """Three tasks of real data on two CPU cores, one seed."""
    lines = [
        "| preset | units added per task | average test accuracy | BWT | parameters |",
        "|---|---|---|---|---|",
    ]
    for journal in sorted((HERE / "small").glob("*.jsonl"), reverse=True):
        _, tasks = tasks_of(journal)
        final = tasks[-1]["row"]
        drift = sum(now - task["row"][-1] for now, task in zip(final, tasks, strict=True))
        grown = "; ".join(str(tuple(task["widths"])) for task in tasks[1:])
        accuracy = f"{100 * sum(final) / len(final):.2f} %"
        lines.append(f"| `{journal.stem}` | {grown} | {accuracy} | {drift:g} | {tasks[-1]['stored']:,} |")
    return "\n".join(lines)


def speed() -> str:
    """Children per second on a GPU, against a plain loop and an eager one, measured in one run."""
    record = json.loads((HERE / "speed" / "h200.json").read_text())
    rows = record["rows"]
    lines = [
        f"One {record['device']}, {record['date']}, torch {record['versions']['torch']}, `{record['command']}`:",
        "",
        "| network | children at once | ms per child and epoch | x plain loop | x eager loop on the device |",
        "|---|---|---|---|---|",
    ]
    for network in ("mlp", "lenet"):
        own = [row for row in rows if row["network"] == network]
        eager = next(row for row in own if row["mode"] == "eager")["seconds_per_child_epoch"]
        for row in own:
            each = row["seconds_per_child_epoch"]
            name = (
                str(row["children"])
                if row["mode"] == "ours"
                else {"plain": "plain loop", "eager": "eager loop"}[row["mode"]]
            )
            lines.append(
                f"| {network} | {name} | {1e3 * each:.1f} | {row['speedup_over_plain']:.1f} | {eager / each:.1f} |"
            )
    lines += [
        "",
        "| whole run, ten tasks | wall time | of it training | trials | average test accuracy | BWT |",
        "|---|---|---|---|---|---|",
    ]
    for run in record["runs"]:
        lines.append(
            f"| `{run['command'].split(' --')[0]}`, random search, rounds of 8 | {run['wall_seconds']:.0f} s "
            f"| {100 * run['training_seconds'] / run['wall_seconds']:.0f} % | {run['trials']} "
            f"| {100 * run['average_test_accuracy']:.2f} % | {run['backward_transfer']:g} |"
        )
    lines += ["", _on_cpu()]
    return "\n".join(lines)


def _on_cpu() -> str:
    """Say in one line what stacking gives on a CPU, as ratios within one run."""
    record = json.loads((HERE / "speed" / "cpu.json").read_text())
    ratios = {(row["network"], row["mode"], row["children"]): row["speedup_over_plain"] for row in record["rows"]}
    said = [
        f"{name} {ratios[network, 'ours', 1]:.1f} and {ratios[network, 'ours', 8]:.1f}"
        for network, name in (("mlp", "MLP"), ("lenet", "LeNet"))
    ]
    return (
        f"On {record['device']}, 1 and 8 children, times faster per child than the plain loop: {'; '.join(said)} "
        f"(`{record['command']}`, {record['date']}, torch {record['versions']['torch']})."
    )


TABLES = {"small": small, "speed": speed}


def filled(text: str) -> str:
    """Return a text with every table between its marks made anew."""
    for name, table in TABLES.items():
        before, begin, rest = text.partition(f"<!-- {name} -->")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        if begin and end:
            text = f"{before}{begin}\n{table()}\n{end}{after}"
    return text


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        README.write_text(filled(README.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print("\n\n".join(table() for table in TABLES.values()))
