"""Make the README's tables from the records beside this file, so that no figure is typed by hand.

python results/tables.py            prints every table
python results/tables.py --write    puts them into README.md and benchmarks/README.md, between their marks
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from bocl.methods.registry import METHODS
from bocl.records.summary import summarise

HERE = Path(__file__).parent
READMES = [HERE.parent / "README.md", HERE.parent / "benchmarks" / "README.md"]


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


def evaluation() -> str:
    """Ten tasks, four seeds: every method on the same data, network and recipe, its settings tuned on validation."""
    lines = []
    for preset in ("permuted-mnist", "split-cifar100"):
        lines += [
            f"`{preset}`:",
            "",
            "| method | average test accuracy | BWT | forgot of task 1 | parameters | memory | trials, rounds a task "
            "| training samples |",
            "|---|---|---|---|---|---|---|---|",
        ]
        by_name: dict[str, list[dict[str, Any]]] = {}
        for journal in sorted((HERE / "evaluation" / preset).glob("*.jsonl")):
            run = {**summarise(journal).figures(), **_searched(journal)}
            by_name.setdefault(journal.stem.rsplit("-seed-", 1)[0], []).append(run)
        for name in sorted(by_name, key=lambda name: (list(METHODS).index(name.split("-")[0]), name)):
            figures = by_name[name]

            def mean(key: str, runs: list[dict[str, Any]] = figures) -> float:
                return fmean(run[key] for run in runs)

            spread = stdev(run["accuracy"] for run in figures)
            lines.append(
                f"| {NAMES.get(name, f'`{name}`')} | {100 * mean('accuracy'):.2f} ± {100 * spread:.2f} % "
                f"| {_points(mean('backward_transfer'))} | {_points(mean('first_task_forgetting'))} "
                f"| {mean('parameters'):,.0f} | {mean('memory'):,.0f} "
                f"| {_trials_and_rounds(mean('trials'), mean('rounds'))} "
                f"| {mean('samples') / 1e6:.1f} M |"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


def _searched(journal: Path) -> dict[str, float]:
    """Return trials and rounds of a run's searches, per task; z = 0 is trained before a search begins."""
    records = [json.loads(line)["record"] for line in journal.read_text().splitlines()]
    searched = [record for record in records if record["kind"] == "task" and record["trials"]]
    trials = sum(len(record["trials"]) - 1 for record in searched)
    rounds = sum(record["kind"] == "round" and record["purpose"] == "search" for record in records)
    return {"trials": trials / max(len(searched), 1), "rounds": rounds / max(len(searched), 1)}


NAMES = {"bocl": "**`bocl`**", "bocl-paper": "`bocl` with the paper's search"}


def _trials_and_rounds(trials: float, rounds: float) -> str:
    return f"{trials:.1f}, {rounds:.1f}" if trials else ""


def _points(value: float) -> str:
    return f"{100 * value:+.2f}" if value else "0"


def search() -> str:
    """Trials, and rounds of them, that a search needs for widths as good as the best, by replay of real trials."""
    lines = [
        "| table | α | search | trials | rounds | regret after 5 | after 10 | after 30 |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for file in sorted((HERE / "search").glob("*.json")):
        if "-rounds-of-" in file.stem:
            continue
        for one in json.loads(file.read_text())["standings"]:
            after = " | ".join(f"{100 * one['regret'][at]:.2f} ± {100 * one['spread'][at]:.2f}" for at in (5, 10, 30))
            reached = " | ".join("more than 30" if value == math.inf else f"{value:g}" for value in (one["trials"],))
            rounds = "" if one["rounds"] == math.inf else f"{one['rounds']:g}"
            name = f"**{one['searcher']}**" if one["searcher"] == "ours" else one["searcher"]
            lines.append(f"| `{file.stem}` | {one['alpha']:g} | {name} | {reached} | {rounds} | {after} |")
    return "\n".join(lines)


def rounds() -> str:
    """Children per round: what our search needs with 4, 8 and 16 of them."""
    rows = []
    for file in (HERE / "search").glob("*.json"):
        record, table = json.loads(file.read_text()), file.stem.split("-rounds-of-")[0]
        for one in record["standings"]:
            if one["searcher"] == "ours":
                after = " | ".join(f"{100 * one['regret'][at]:.2f} ± {100 * one['spread'][at]:.2f}" for at in (16, 30))
                reached = "more than 30 | " if one["trials"] == math.inf else f"{one['trials']:g} | {one['rounds']:g}"
                rows.append((table, one["alpha"], record["round_size"], f"{reached} | {after}"))
    return "\n".join(
        [
            "| table | α | children in a round | trials | rounds | regret after 16 | after 30 |",
            "|---|---|---|---|---|---|---|",
            *(f"| `{table}` | {alpha:g} | {children} | {rest} |" for table, alpha, children, rest in sorted(rows)),
        ]
    )


TABLES = {"small": small, "speed": speed, "evaluation": evaluation, "search": search, "rounds": rounds}


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
        for readme in READMES:
            readme.write_text(filled(readme.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print("\n\n".join(table() for table in TABLES.values()))
