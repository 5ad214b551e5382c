"""Make every table of the documents from records, so that no figure is typed by hand.

python -m replication.tables            prints every table
python -m replication.tables --write    puts each between its marks, <!-- name --> and <!-- /name -->, in PAGES
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.stats import t as student

from bocl.method_table import METHODS
from bocl.records.journal import read
from bocl.records.summary import RunSummary, journal_of, summarise_all
from bocl.report.figures import percent_with_sd
from bocl.report.systems import Setting, StreamResults
from bocl.wording import counted, points
from replication.findings import Finding, findings, reductions
from replication.paper_figures import main_systems
from replication.paper_figures import times as of_time
from replication.print_check import table as print_check
from replication.records import RESULTS, name_of, preset_of
from replication.streams import arrange_replication

HERE = Path(__file__).parent
MEASUREMENTS = HERE / "measurements"
PRESETS = ("permuted-mnist", "mixed-mnist", "split-cifar100")
SEEDS = 4
SIMULATED = "simulated"  # the record of replays on simulated tasks
PAGES = [HERE.parent / "README.md", *sorted((HERE.parent / "docs").glob("*.md")), HERE / "README.md"]


def small() -> str:
    """Three tasks of real data on two CPU cores, one seed."""
    lines = [
        "| preset | units added per task | average test accuracy | BWT | parameters |",
        "|---|---|---|---|---|",
    ]
    for run in reversed(summarise_all([MEASUREMENTS / "small"])):
        final = run.tasks[-1].row
        drift = sum(now - task.row[-1] for now, task in zip(final, run.tasks, strict=True))
        grown = "; ".join(str(task.widths) for task in run.tasks[1:])
        accuracy = f"{100 * sum(final) / len(final):.2f} %"
        lines.append(f"| `{run.folder.stem}` | {grown} | {accuracy} | {drift:g} | {run.tasks[-1].stored:,} |")
    return "\n".join(lines)


_MODES = {
    "plain": "plain loop",
    "eager": "eager loop",
    "compiled": "an ordinary network of a child's size, compiled",
    "ours": "{}",
    "bf16": "{} in bf16",
}


def speed() -> str:
    """Children per second on a GPU, against a plain loop and an eager one, measured in one run."""
    record = json.loads((MEASUREMENTS / "speed" / "h200.json").read_text())
    rows = record["rows"]
    command = _command_now(record["command"])
    lines = [
        f"One {record['device']}, {record['date']}, torch {record['versions']['torch']}, `{command}`:",
        "",
        "| network | children at once | ms per child and epoch | x plain loop | x eager loop on the device |",
        "|---|---|---|---|---|",
    ]
    for network in dict.fromkeys(row["network"] for row in rows):
        own = [row for row in rows if row["network"] == network]
        eager = next(row for row in own if row["mode"] == "eager")["seconds_per_child_epoch"]
        for row in own:
            each = row["seconds_per_child_epoch"]
            name = _MODES[row["mode"]].format(row["children"])
            lines.append(
                f"| {network} | {name} | {1e3 * each:.1f} | {row['speedup_over_plain']:.1f} | {eager / each:.1f} |"
            )
    lines += [
        "",
        "| whole run, ten tasks | wall time | to the first record | of the rest training | trials "
        "| average test accuracy | BWT |",
        "|---|---|---|---|---|---|---|",
    ]
    for run in record["runs"]:
        running = run["wall_seconds"] - run["seconds_to_first_record"]
        lines.append(
            f"| `{run['command'].split(' --')[0]}`, {run['search']}, {run['date']} "
            f"| {run['wall_seconds']:.0f} s "
            f"| {run['seconds_to_first_record']:.1f} s | {100 * run['training_seconds'] / running:.0f} % "
            f"| {run['trials']} | {100 * run['average_test_accuracy']:.2f} % | {run['backward_transfer']:g} |"
        )
    lines += ["", _on_cpu()]
    return "\n".join(lines)


def in_jax() -> str:
    """Children of a plain MLP as masked networks in JAX, and ours, on one GPU."""
    record = json.loads((MEASUREMENTS / "speed" / "h200-jax.json").read_text())
    took = {(row["side"], row["children"]): row["ms_per_child_epoch"] for row in record["rows"]}
    lines = ["| children at once | ms per child and epoch | in JAX | ours, as a share of JAX's |", "|---|---|---|---|"]
    for count in dict.fromkeys(row["children"] for row in record["rows"]):
        ours, theirs = took["ours", count], took["JAX", count]
        lines.append(f"| {count} | {ours:.1f} | {theirs:.1f} | {ours / theirs:.2f} |")
    return "\n".join(lines)


def seeds_side_by_side() -> str:
    """What processes of a seed each reach on one GPU, and what one stack of all seeds could."""
    record = json.loads((MEASUREMENTS / "speed" / "h200-seeds.json").read_text())
    lines = [
        "| network | seeds of 8 children | child epochs a second, in processes | in a stack, at most | gain, at most |",
        "|---|---|---|---|---|",
    ]
    for row in record["rows"]:
        gain = row["together"] / row["apart"]
        cells = [row["network"], row["seeds"], f"{row['apart']:.0f}", f"{row['together']:.0f}", f"{gain:.2f}"]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _command_now(command: str) -> str:
    """Return what a recorded command is called now: what `bocl bench` no longer measures, `replication.speed` does."""
    moved = {"--growth", "--agreement", "--run"} & set(command.split())
    return command.replace("bocl bench", "python -m replication.speed", 1) if moved else command


def _on_cpu() -> str:
    """Say in one line what stacking gives on a CPU, as ratios within one run."""
    record = json.loads((MEASUREMENTS / "speed" / "cpu.json").read_text())
    ratios = {(row["network"], row["mode"], row["children"]): row["speedup_over_plain"] for row in record["rows"]}
    said = [
        f"{name} {ratios[network, 'ours', 1]:.1f} and {ratios[network, 'ours', 8]:.1f}"
        for network, name in (("mlp", "MLP"), ("lenet", "LeNet"), ("resnet", "ResNet"))
    ]
    return (
        f"On {record['device']}, 1 and 8 children, times faster per child than the plain loop: {'; '.join(said)} "
        f"(`{_command_now(record['command'])}`, {record['date']}, torch {record['versions']['torch']})."
    )


def evaluation() -> str:
    """Ten tasks: every system with every setting it was run with, on the same data, network and recipe."""
    lines = []
    for stream in paper():
        lines += [
            f"`{stream.name}`:",
            "",
            "| system | seeds | average test accuracy | BWT | forgot of task 1 | parameters | memory "
            "| trials, rounds a task | training samples |",
            "|---|---|---|---|---|---|---|---|---|",
        ]
        for system in stream.systems:
            for setting in system.settings:
                accuracy = setting.spread("accuracy")
                trials, rounds = (fmean(_searched(run)[part] for run in setting.runs) for part in (0, 1))
                name = system.name + (f", {setting.label}" if setting.label else "")
                lines.append(
                    f"| {f'**{name}**' if system.name == 'bocl' else name} | {accuracy.count} "
                    f"| {percent_with_sd(accuracy)} | {points(setting.spread('backward_transfer').mean)} "
                    f"| {points(setting.spread('first_task_forgetting').mean)} "
                    f"| {setting.spread('parameters').mean:,.0f} | {setting.spread('extra_numbers').mean:,.0f} "
                    f"| {f'{trials:.1f}, {rounds:.1f}' if trials else ''} "
                    f"| {setting.spread('samples').mean / 1e6:.1f} M |"
                )
        lines.append("")
    return "\n".join(lines).rstrip()


@cache
def all_runs() -> list[RunSummary]:
    """Return all runs of the paper's studies."""
    return summarise_all([RESULTS])


@cache
def paper() -> list[StreamResults]:
    """Return them told apart."""
    return arrange_replication(all_runs())


def systems() -> str:
    """The headline of every system that figures show: the setting that stands for it."""
    streams = paper()
    methods = {system.name: system.method for stream in streams for system in main_systems(stream)}
    names = sorted(methods, key=lambda name: list(METHODS).index(methods[name]))  # those of one method stay in order
    lines = [f"| | {' | '.join(f'`{stream.name}`' for stream in streams)} |", "|---|" + "---|" * len(streams)]
    for name in names:
        found = [next((system for system in stream.systems if system.name == name), None) for stream in streams]
        cells = ["" if system is None else _headline(system.headline) for system in found]
        lines.append(f"| {f'**{name}**' if name == 'bocl' else name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def headline() -> str:
    """The README's few rows, systems that store all they learn and one that forgets, and when they were measured."""
    names = ("bocl", "rcl", "pgn", "independent", "sn")
    streams = [stream for stream in paper() if stream.name.endswith("-mnist")]
    settings = {
        (stream.name, system.name): system.headline
        for stream in streams
        for system in main_systems(stream)
        if system.name in names
    }
    days = {run.sessions[-1].time[:10] for setting in settings.values() for run in setting.runs}
    lines = [
        "Ten tasks of MNIST with the paper's network, on one H200: average test accuracy at the end and all parameters "
        "stored,",
        f"mean ± sd over four seeds, measured {' to '.join(sorted({min(days), max(days)}))}.",
        "",
        f"| method | {' | '.join(f'`{stream.name}`' for stream in streams)} |",
        "|---|" + "---|" * len(streams),
    ]
    lines += [
        f"| `{name}` | {' | '.join(_headline(settings[stream.name, name]) for stream in streams)} |" for name in names
    ]
    return "\n".join(lines)


def claims() -> str:
    """What the paper claims, and what our runs say."""
    found = findings(paper())
    streams = dict.fromkeys(finding.claim.stream for finding in found)
    lines = [f"| the paper's claim | {' | '.join(f'`{name}`' for name in streams)} |", "|---|" + "---|" * len(streams)]
    for about in dict.fromkeys(finding.about for finding in found):
        by_stream = {finding.claim.stream: finding for finding in found if finding.about == about}
        lines.append(f"| {about} | {' | '.join(_told(by_stream[name]) for name in streams)} |")
    return "\n".join(lines)


def _told(finding: Finding) -> str:
    if finding.verdict == "open":
        return f"open; paper {finding.paper}"
    return f"**{finding.verdict}**: {finding.ours}; paper {finding.paper}"


def _size(runs: Sequence[RunSummary], *, with_sd: bool = False) -> str:
    sizes = [run.figures()["parameters"] for run in runs]
    unit, letter, digits = (1e6, "M", 2) if fmean(sizes) >= 1e6 else (1e3, "k", 0)
    spread = f" ± {stdev(sizes) / unit:.{digits}f}" if with_sd and len(set(sizes)) > 1 else ""
    return f"{fmean(sizes) / unit:.{digits}f}{spread} {letter}"


def _headline(setting: Setting) -> str:
    fewer = "" if len(setting.runs) == SEEDS else f" ({counted(len(setting.runs), 'seed')})"
    return f"{percent_with_sd(setting.spread('accuracy'))}, {_size(setting.runs, with_sd=True)}{fewer}"


def paired() -> str:
    """Differences between runs of the same seed: what attention, the search and its freedom are worth."""
    lines = [
        "| compared, pair by pair of seeds | measured | permuted-mnist | mixed-mnist | split-cifar100 |",
        "|---|---|---|---|---|",
    ]
    for about, own, other, measure in (
        ("attention less none", "bocl", "bocl-no-attention", _accuracy),
        ("our search less the paper's", "bocl", "bocl-paper", _reward),
        ("the same in rounds of 4", "bocl-rounds-of-4", "bocl-paper", _reward),
        ("our search less random", "bocl", "bocl-random", _reward),
        ("our search less reinforce", "bocl", "bocl-reinforce", _reward),
        ("with earlier tasks' trials less without", "bocl", "bocl-cold", _reward),
        ("the paper's search with warm start less without", "bocl-paper", "bocl-paper-cold", _reward),
        ("units priced by cost less all alike", "bocl", "bocl-uniform-price", _accuracy),
        ("search less fixed growth of its size, all layers alike", "bocl", "fixed-*-equal", _accuracy),
        ("…, shaped as the base network", "bocl", "fixed-*-base", _accuracy),
        ("…, shaped as the search's bounds", "bocl", "fixed-*-bounds", _accuracy),
        ("…, shaped as what the search adds on average", "bocl", "fixed-*-search", _accuracy),
        (
            "…, the best of as many children, in the best of the first three shapes",
            "bocl",
            "fixed-*-best-of-*",
            _accuracy,
        ),
    ):
        cells = [_difference(preset, own, other, measure) for preset in PRESETS]
        if any(cells):
            what = "test accuracy" if measure is _accuracy else "reward on test samples"
            lines.append(f"| {about} | {what} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _difference(preset: str, mine: str, other: str, measure: Callable[[RunSummary], float]) -> str:
    """Return one run less another of the same seed, in points: mean ± sd, how often it is more, sizes and trials.

    Bold where the 95 % interval of the mean, by Student's t, leaves out 0.
    """
    there = [run for run in all_runs() if preset_of(run) == preset]
    own = {run.seed: run for run in there if name_of(run) == mine}
    pairs = [(own[run.seed], run) for run in there if fnmatch(name_of(run), other) and run.seed in own]
    gains = [100 * (measure(one) - measure(run)) for one, run in pairs]
    if len(gains) < 2:
        return ""
    more = sum(gain > 0 for gain in gains)
    ours, theirs = (_cost(side) for side in zip(*pairs, strict=True))
    mean, sd, count = fmean(gains), stdev(gains), len(gains)
    told = f"{mean:+.2f} ± {sd:.2f}"
    if abs(mean) > float(student.ppf(0.975, count - 1)) * sd / math.sqrt(count):
        told = f"**{told}**"
    return f"{told}, more in {more} of {count} ({ours} against {theirs})"


def _cost(runs: Sequence[RunSummary]) -> str:
    trials = fmean(_searched(run)[0] for run in runs)
    return _size(runs) + (f", {trials:.1f} trials" if trials else "")


def _accuracy(run: RunSummary) -> float:
    return float(run.figures()["accuracy"])


def _reward(run: RunSummary) -> float:
    """Return test accuracy less the price of the units, over the tasks that were searched for."""
    searched = [task for task in run.tasks if task.trials]
    kept = [next(trial for trial in task.trials if trial.widths == task.widths) for task in searched]
    return fmean(task.row[-1] - (trial.accuracy - trial.reward) for task, trial in zip(searched, kept, strict=True))


def savings() -> str:
    """Table 1: parameters that bocl saves beside every setting of its rivals."""
    table = reductions(paper())
    rows = (table.header, ("---",) * len(table.header), *table.rows)
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def times() -> str:
    """What learning ten tasks took, of runs alone on the device."""
    lines: list[str] = []
    for stream in paper():
        table = of_time(stream)
        if not lines:
            lines += [f"| stream | {' | '.join(table.header)} |", "|---" * (len(table.header) + 1) + "|"]
        lines += [f"| `{stream.name}` | {' | '.join(map(str, row))} |" for row in table.rows]
    return "\n".join(lines)


def parts() -> str:
    """What the runs took, part by part."""
    done = [json.loads(line) for line in (RESULTS / "parts.ndjson").read_text().splitlines()]
    lines = ["| part | date | on | processes at once | runs finished | time |", "|---|---|---|---|---|---|"]
    for part in done:
        words = re.sub(r" --(out|records|device|data) \S+", "", part["command"])
        lines.append(
            f"| `{words}` | {part['date']} | {part['name']} | {part['workers']} | {part['finished']} "
            f"| {part['seconds']:.0f} s |"
        )
    for name in dict.fromkeys(part["name"] for part in done):
        there = [part for part in done if part["name"] == name]
        seconds, runs = (sum(part[figure] for part in there) for figure in ("seconds", "finished"))
        lines.append(f"| all | | {name} | | {runs} | {seconds:.0f} s |")
    return "\n".join(lines)


def _searched(run: RunSummary) -> tuple[float, float]:
    """Return trials and rounds of a run's searches, per task; z = 0 is asked for by none."""
    searched = [task for task in run.tasks if task.trials]
    rounds = sum(entry["kind"] == "round" and entry["purpose"] == "search" for entry in read(journal_of(run.folder)))
    return sum(task.searched for task in searched) / max(len(searched), 1), rounds / max(len(searched), 1)


def search() -> str:
    """Trials and rounds that a search needs for widths as good as the best, by replay of real trials."""
    real = [(stem, one) for stem, one in _replayed() if stem != SIMULATED]
    cells = {(one["searcher"], stem, one["alpha"]): _reached(one) for stem, one in real}
    columns = list(dict.fromkeys((stem, alpha) for _, stem, alpha in cells))
    lines = [
        f"| | {' | '.join(f'`{stem}`, α {alpha:g}' for stem, alpha in columns)} |",
        "|---|" + "---|" * len(columns),
    ]
    lines += [
        f"| {_name(name)} | {' | '.join(cells.get((name, *column), '') for column in columns)} |"
        for name in dict.fromkeys(searcher for searcher, _, _ in cells)
    ]
    return "\n".join(lines)


def _reached(one: dict[str, Any]) -> str:
    return "more than 30" if one["trials"] == math.inf else f"{one['trials']:g} in {one['rounds']:g}"


def replays() -> str:
    """All that replays tell of searches."""
    lines = [
        "| table | α | search | trials | rounds | regret after 5 | after 10 | after 30 "
        "| as in a run: trials, rounds | kept child |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for stem, one in _replayed():
        after = " | ".join(f"{100 * one['regret'][at]:.2f} ± {100 * one['spread'][at]:.2f}" for at in (5, 10, 30))
        reached = "more than 30 | " if one["trials"] == math.inf else f"{one['trials']:g} | {one['rounds']:g}"
        lines.append(
            f"| `{stem}` | {one['alpha']:g} | {_name(one['searcher'])} | {reached} | {after} | {_ended(one)} |"
        )
    return "\n".join(lines)


def _replayed() -> list[tuple[str, dict[str, Any]]]:
    """Return (table, standing) of all searchers, in rounds of 8."""
    return [(stem, one) for stem, record in _searches() if "-rounds-of-" not in stem for one in record["standings"]]


def _searches() -> list[tuple[str, dict[str, Any]]]:
    """Return the records of `python -m replication.search replay`, by name."""
    records = [(file.stem, json.loads(file.read_text())) for file in sorted((MEASUREMENTS / "search").glob("*.json"))]
    return [(stem, record) for stem, record in records if "standings" in record]


def _name(searcher: str) -> str:
    return f"**{searcher}**" if searcher == "ours" else searcher


def _ended(one: dict[str, Any]) -> str:
    end = one["ended"]
    return f"{end['trials']:.1f}, {end['rounds']:.1f} | {100 * end['regret']:.2f} ± {100 * end['error']:.2f}"


def rounds() -> str:
    """Children per round: what our search needs with 4, 8 and 16 of them."""
    rows = []
    for stem, record in _searches():
        table = stem.split("-rounds-of-")[0]
        if table == SIMULATED:
            continue
        for one in record["standings"]:
            if one["searcher"] == "ours":
                after = " | ".join(f"{100 * one['regret'][at]:.2f} ± {100 * one['spread'][at]:.2f}" for at in (16, 30))
                reached = "more than 30 | " if one["trials"] == math.inf else f"{one['trials']:g} | {one['rounds']:g}"
                rows.append((table, one["alpha"], record["round_size"], f"{reached} | {after} | {_ended(one)}"))
    return "\n".join(
        [
            "| table | α | children in a round | trials | rounds | regret after 16 | after 30 "
            "| as in a run: trials, rounds | kept child |",
            "|---|---|---|---|---|---|---|---|---|",
            *(f"| `{table}` | {alpha:g} | {children} | {rest} |" for table, alpha, children, rest in sorted(rows)),
        ]
    )


def replicas() -> str:
    """A round filled with twice as many widths, or with each trained twice."""
    lines = ["| table | α | a round | children, rounds | regret of the kept child |", "|---|---|---|---|---|"]
    lines += [
        f"| `{row['table']}` | {row['alpha']:g} | {row['round']} | {row['children']:.1f}, {row['rounds']:.1f} "
        f"| {100 * row['regret']:.2f} ± {100 * row['error']:.2f} |"
        for row in json.loads((MEASUREMENTS / "search" / "replicas.json").read_text())["rows"]
    ]
    return "\n".join(lines)


def unlike() -> str:
    """What earlier tasks cost our search where they are unlike the one that is searched."""
    record = json.loads((MEASUREMENTS / "search" / "unlike-tasks.json").read_text())
    after = list(record["rows"][0]["after"])
    lines = [
        f"| turned round | α | after {after[0]} trials | {' | '.join(f'after {at}' for at in after[1:])} "
        "| kept child | its regret without | trials, rounds | without |",
        "|---|---|" + "---|" * (len(after) + 4),
    ]
    for row in record["rows"]:
        cells = [
            *(f"{points(mean)} ± {100 * error:.2f}" for mean, error in (*row["after"].values(), row["kept"])),
            "{:.2f} ± {:.2f}".format(*(100 * value for value in row["alone"])),
            *(f"{trials:.1f}, {rounds:.1f}" for trials, rounds in zip(row["trials"], row["rounds"], strict=True)),
        ]
        lines.append(f"| {row['turned']} | {row['alpha']:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


TABLES = {
    "small": small,
    "speed": speed,
    "headline": headline,
    "systems": systems,
    "evaluation": evaluation,
    "paired": paired,
    "claims": claims,
    "savings": savings,
    "times": times,
    "parts": parts,
    "print-check": print_check,
    "in-jax": in_jax,
    "seeds-side-by-side": seeds_side_by_side,
    "search": search,
    "replays": replays,
    "rounds": rounds,
    "replicas": replicas,
    "unlike": unlike,
}


def filled(text: str, tables: Mapping[str, Callable[[], str]] = TABLES) -> str:
    """Return a text with every table between its marks made anew."""
    for name, table in tables.items():
        before, begin, rest = text.partition(f"<!-- {name} -->")
        _, end, after = rest.partition(f"<!-- /{name} -->")
        if begin and end:
            text = f"{before}{begin}\n{table()}\n{end}{after}"
    return text


if __name__ == "__main__":
    if "--write" in sys.argv[1:]:
        for path in PAGES:
            path.write_text(filled(path.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print("\n\n".join(table() for table in TABLES.values()))
