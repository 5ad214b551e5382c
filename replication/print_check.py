"""A check against print: ten permutations of MNIST with the network and recipe that others printed figures for.

python -m replication.print_check --out runs/print-check [--methods wsn,packnet] [--seeds 0] [--tune] [--device cuda]

The network is 784-100-100 without biases and a head per task, trained for 5 epochs in batches of 10, without weight
decay: with Adam at 1e-3, or for sn and ewc, whose recipe is not printed, with SGD at 0.01 (ewc: at a rate of its grid).
Nor is it printed whether sn and ewc had a head per task, so they are run with one for all, too. The figures are those
of the comparison in Kang et al., "Forget-free Continual Learning with Winning Subnetworks". What else is not printed is
chosen on validation samples of a seed that is not evaluated (``--tune``), or is our default where the record has no
tuning.
Runs go on where they stopped, and what they come to is written to measurements/print-check.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import nn

from bocl.experiment.build import build_base, build_method, build_stream
from bocl.experiment.config import Config, config_with
from bocl.experiment.run import run
from bocl.methods.method import Learner
from bocl.methods.saving import load
from bocl.methods.subnetworks import try_densities
from bocl.networks.masked import MaskedNetwork
from bocl.records.record import TaskRecord
from bocl.records.summary import summarise
from bocl.report.figures import percent_with_sd
from bocl.report.systems import Spread
from bocl.wording import points

RECORD = Path(__file__).parent / "measurements" / "print-check.json"
PRINTED = {"wsn": 96.4, "packnet": 96.4, "supsup": 96.3, "ewc": 92.0, "sn": 78.2}  # test accuracy, %
RECIPE = ("recipe.epochs=5", "recipe.batch_size=10", "recipe.weight_decay=0")
ADAM = ("recipe.optimiser=adam", "recipe.learning_rate=1e-3")
SGD = ("recipe.optimiser=sgd", "recipe.learning_rate=0.01", "recipe.momentum=0")
FISHER = "ewc.fisher_samples=5000"
SETTINGS: dict[str, tuple[str, ...]] = {  # WSN's density is printed
    "wsn": (*ADAM, "wsn.density=0.3"),
    "packnet": (*ADAM, "packnet.retrain=0.4"),
    # One epoch of the first task on the tuning seed: 92.4 % of the validation samples, 95.3 % with this schedule.
    "supsup": (*ADAM, "recipe.schedule=cosine", "supsup.density=0.5"),
    "ewc": (*SGD, FISHER, "ewc.strength=100"),
    "ewc-one-head": (*SGD, FISHER, "ewc.shared_head=true", "ewc.strength=100"),
    "sn": SGD,
    "sn-one-head": (*SGD, "sn.shared_head=true"),
}
GRIDS: dict[str, tuple[int, dict[str, tuple[str, ...]]]] = {  # tasks, values of every setting
    "packnet": (3, {"packnet.retrain": ("0.2", "0.4", "1.0")}),
    "supsup": (1, {"supsup.density": ("0.1", "0.3", "0.5", "0.7")}),  # its tasks know nothing of one another
    # All ten tasks: by five the best strength is too small for ten. The record has both grids.
    "ewc": (10, {"recipe.learning_rate": ("0.003", "0.01", "0.03"), "ewc.strength": ("3", "10", "30", "100")}),
    "ewc-one-head": (10, {"ewc.strength": ("3", "10", "30", "100", "300")}),
}
TUNING_SEED = 100


def printed_network() -> nn.Module:
    """Return the network of the printed figures."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 100, bias=False),
        nn.ReLU(),
        nn.Linear(100, 100, bias=False),
        nn.ReLU(),
        nn.Linear(100, 10, bias=False),
    )


def configured(method: str, settings: Sequence[str], tasks: int, seed: int) -> Config:
    """Return the config of a run."""
    return config_with(
        [
            f"method={method.removesuffix('-one-head')}",
            f"seed={seed}",
            "stream.name=permuted-mnist",
            f"stream.tasks={tasks}",
            "network.build=replication.print_check:printed_network",
            *RECIPE,
            *settings,
        ]
    )


def settings_of(method: str) -> tuple[str, ...]:
    """Return the settings of a method's runs: those above, and the best value of its grid where the record has one."""
    tasks, grid = GRIDS.get(method, (0, {}))
    of_grid = [entry for entry in recorded()["tuning"] if (entry["method"], entry["tasks"]) == (method, tasks)]
    tried = [entry for entry in of_grid if entry.keys() >= grid.keys()]  # an older grid had fewer settings
    if not tried:
        return SETTINGS[method]
    best = max(tried, key=lambda entry: entry["validation"])
    return (*SETTINGS[method], *(f"{name}={best[name]:g}" for name in grid))


def finished_run(
    method: str, settings: Sequence[str], tasks: int, seed: int, folder: Path, device: str
) -> list[TaskRecord]:
    """Run a method, or go on where its run stopped, and return the records of its tasks."""
    return run(configured(method, settings, tasks, seed), folder, device=device)


def check(method: str, tasks: int, seed: int, folder: Path) -> dict[str, Any]:
    """Say what came of a run so far, beside what is printed for ten tasks."""
    settings, summary = settings_of(method), summarise(folder)
    last, learner = summary.tasks[-1], load(folder, device="cpu")
    found = {
        "method": method,
        "tasks": tasks,
        "seed": seed,
        "settings": [*RECIPE, *settings],
        "learnt": len(summary.tasks),
        "accuracy": round(100 * mean(last.row), 2),
        "printed": PRINTED[method.removesuffix("-one-head")],
        "row": [round(100 * accuracy, 2) for accuracy in last.row],
        "validation": round(100 * mean(last.validation_row), 2),
        "parameters": learner.parameters(),
        "extra_numbers": last.extra_numbers,
        "date": datetime.now(UTC).date().isoformat(),
        "versions": summary.sessions[0].versions,
    }
    return found | sizes_of_masks(learner)


def sizes_of_masks(learner: Learner) -> dict[str, Any]:
    """Return the share of the weights that some task uses, and what coded masks would count."""
    if not isinstance(learner.network, MaskedNetwork):
        return {}
    used = [mask.float().flatten() for mask in learner.network.used.values()]
    return {"used": round(float(torch.cat(used).mean()), 4), "coded_masks": learner.network.coded_masks()}


def tune(method: str, out: Path, device: str) -> list[dict[str, Any]]:
    """Return the mean validation accuracy after the last task for every value of a grid."""
    tasks, grid = GRIDS[method]
    points_of_grid = [dict(zip(grid, values, strict=True)) for values in itertools.product(*grid.values())]
    if method == "supsup":  # all densities at once
        (values,) = grid.values()
        config = configured(method, SETTINGS[method], tasks, TUNING_SEED)
        learner = build_method(config, build_base(config), device)
        scores = try_densities(learner, build_stream(config)[0], list(map(float, values)))
    else:
        scores = []
        for tried in points_of_grid:
            words = [f"{name}={value}" for name, value in tried.items()]
            settings = [*SETTINGS[method], *words, *(["packnet.keep=0.1"] if method == "packnet" else [])]
            place = out / "-".join(["tune", method, str(tasks), *tried.values()])
            records = finished_run(method, settings, tasks, TUNING_SEED, place, device)
            scores.append(mean(records[-1].validation_row))
            print(f"{method}, {' '.join(words)}: {100 * scores[-1]:.2f} % on validation samples", flush=True)
    about = {"method": method, "tasks": tasks, "seed": TUNING_SEED}
    return [
        {**about, **{name: float(value) for name, value in tried.items()}, "validation": round(100 * score, 2)}
        for tried, score in zip(points_of_grid, scores, strict=True)
    ]


def recorded() -> dict[str, list[dict[str, Any]]]:
    """Return what is on record."""
    record: dict[str, list[dict[str, Any]]] = (
        json.loads(RECORD.read_text()) if RECORD.exists() else {"tuning": [], "runs": []}
    )
    return record


def write(part: str, entries: Sequence[dict[str, Any]]) -> None:
    """Put entries into the record, in place of those about the same."""
    record = recorded()
    about = [(entry["method"], entry["tasks"], entry["seed"]) for entry in entries]
    others = [entry for entry in record[part] if (entry["method"], entry["tasks"], entry["seed"]) not in about]
    record[part] = sorted([*others, *entries], key=lambda entry: (entry["method"], entry["tasks"], entry["seed"]))
    RECORD.write_text(json.dumps(record, indent=1) + "\n")


def table() -> str:
    """Return the accuracies on record beside those that are printed."""
    lines = ["| system | seeds | accuracy | printed | more or less | what was chosen |", "|---|---|---|---|---|---|"]
    for method in SETTINGS:
        runs = [run for run in recorded()["runs"] if run["method"] == method and run["learnt"] == run["tasks"]]
        if runs:
            found = Spread.of([run["accuracy"] / 100 for run in runs])
            gap = points(found.mean - runs[0]["printed"] / 100)
            taken = [dict(setting.split("=", 1) for setting in run["settings"]) for run in runs]  # the last of a name
            _, grid = GRIDS.get(method, (0, {}))
            chosen = ", ".join(sorted({f"{name}={settings[name]}" for settings in taken for name in grid}))
            cells = [f"`{method}`", str(len(runs)), percent_with_sd(found), f"{runs[0]['printed']} %", gap, chosen]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) if len(lines) > 2 else "- **open**: there is no run yet"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the runs")
    parser.add_argument("--methods", default=",".join(SETTINGS), help="separated by commas")
    parser.add_argument("--tasks", type=int, default=10)
    parser.add_argument("--seeds", default="0", help="separated by commas")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--tune", action="store_true", help="run the grids instead")
    parser.add_argument("--score", action="store_true", help="run nothing: write what the runs have come to so far")
    options = parser.parse_args()
    for method in options.methods.split(","):
        if options.tune:
            write("tuning", tune(method, options.out, options.device) if method in GRIDS else [])
            continue
        for seed in map(int, options.seeds.split(",")):
            folder = options.out / f"{method}-{options.tasks}-seed-{seed}"
            if not options.score:
                finished_run(method, settings_of(method), options.tasks, seed, folder, options.device)
            found = check(method, options.tasks, seed, folder)
            write("runs", [found])
            accuracy = f"{found['accuracy']:.2f} % after {found['learnt']} of {options.tasks} tasks"
            print(f"{method}, seed {seed}: {accuracy}, printed {found['printed']} %", flush=True)


if __name__ == "__main__":
    main()
