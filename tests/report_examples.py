"""Runs made by hand, with figures that are easy to check."""

from __future__ import annotations

import math
from pathlib import Path

from bocl.method_table import METHODS
from bocl.records.earlier import upgrade_config
from bocl.records.record import Diagnostics, TaskRecord, Trial
from bocl.records.run_log import Start
from bocl.records.summary import RunSummary


def a_config(method="bocl", seed=0, stream="permuted-mnist", tasks=10, **changes):
    """Return settings as a journal holds them; ``changes`` are dotted names with __ for the dot."""
    config = {
        "method": method,
        "seed": seed,
        "stream": {"name": stream, "tasks": tasks},
        "network": {"build": "mlp", "arguments": {"inputs": 4, "hidden": [6, 5]}},
        "recipe": {"epochs": 3},
        "growth": {"attention": True, "wiring": "full"},
        "search": {"kind": "paper", "bounds": 9, "round_size": 8, "memory_gb": 16.0, "warm_points": 3},
        "reward": {"alpha": 0.005, "weighting": "unit"},
        "goal": {"budget": None, "target": None, "total_budget": None},
        "rcl": {"controller": "tuned", "trials": 50},
        "fixed": {"widths": 4, "budget": None},
        "den": {"l1": 1e-5},
        "pgn": {"width": 1.0},
        "ewc": {"strength": 100.0},
    }
    for name, value in changes.items():
        section, _, key = name.partition("__")
        config[section] = {**config[section], key: value}
    return upgrade_config(config)


def a_run(
    method="bocl",
    seed=0,
    *,
    accuracy=0.9,
    loss=0.0,
    parameters=1000,
    seconds=10.0,
    done=None,
    trials=(),
    shares_device=1,
    attention=None,
    groups=("fc1", "fc2"),
    name="task",
    folder=None,
    validation=None,
    bests=(),
    diagnostics=None,
    **settings,
):
    """Return a run whose every task has one accuracy when learnt and loses ``loss`` with each task after it.

    parameters  stored at the end, the same number added by each task
    seconds     of all tasks together
    done        how many tasks are finished; all of them unless it is given
    trials      of every task but the first, as are bests and diagnostics
    """
    config = a_config(method, seed, **settings)
    wanted = config["stream"]["tasks"]
    records = []
    for index in range(wanted if done is None else done):
        row = tuple(accuracy - loss * (index - task) for task in range(index + 1))
        added = parameters // wanted
        records.append(
            TaskRecord(
                index=index,
                name=f"{name} {index + 1}",
                widths=tuple(6 if index == 0 else 2 for _ in groups),
                validation_row=tuple([accuracy if validation is None else validation] * (index + 1)),
                row=row,
                parameters={"shared": added - 1, "attention": 1},
                stored=(index + 1) * added,
                trials=tuple(trials) if index else (),
                difficulty=math.nan if index == 0 else 0.1,
                samples=100,
                seconds=seconds / wanted,
                training_seconds=seconds / wanted,
                bests=bests if index else (),
                diagnostics=diagnostics if index else None,
                attention={} if index == 0 or attention is None else {"head": (attention,) * (index + 1)},
            )
        )
    start = Start(
        2,
        config,
        "digest",
        tuple(groups),
        {"bocl": "0.1.0", "torch": "2.13"},
        "data",
        {"device": "cpu", "name": "a machine"},
        shares_device,
        "2026-11-15T10:00:00+00:00",
    )
    where = Path(folder or f"runs/{config['stream']['name']}/{method}-seed{seed}")
    return RunSummary(where, config, tuple(groups), tuple(records), (start,), "ab" * 32, 7)


def a_trial(widths, accuracy, parameters, reward=None):
    """Return a trial whose reward is its accuracy unless given."""
    return Trial(tuple(widths), accuracy, parameters, accuracy if reward is None else reward)


def some_diagnostics(count=20):
    """Return what a search of that many trials, of two groups with up to 9 units, may say of itself."""
    gains = tuple(math.nan if step % 2 == 0 else 0.05 / step for step in range(count))
    errors = tuple(0.3 * (step % 7 - 3) for step in range(count))
    return Diagnostics(errors, 0.5, 0.875, 0.002, ((0.1,) * 10, (0.5, 0.0, 0.5) + (0.0,) * 7), gains)


def a_search(count=20, best=0.97):
    """Return trials that get better and larger."""
    return [
        a_trial(
            (step % 9, step % 7), best - 0.15 / (1 + step) + 0.004 * (step % 3), 40 + 13 * (step % 9) + 5 * (step % 7)
        )
        for step in range(count)
    ]


def an_evaluation(tasks=10, seeds=4):
    """Return a whole evaluation: every method, sweeps and ablations, on the paper's three streams."""
    runs = []
    for place, stream in enumerate(("permuted-mnist", "mixed-mnist", "split-cifar100")):
        groups = ("fc1", "fc2") if place < 2 else ("conv1", "conv2", "fc1", "fc2")
        height = 0.97 - 0.17 * (place == 2)
        for seed in range(seeds):
            common = {"seed": seed, "stream": stream, "tasks": tasks, "groups": groups}
            jitter = 0.002 * ((seed * 7) % 5 - 2)
            search = [
                trial
                for trial in a_search(23, height)
                for trial in [a_trial((*trial.widths, *trial.widths)[: len(groups)], trial.accuracy, trial.parameters)]
            ]
            for index, method in enumerate(METHODS):
                runs.append(
                    a_run(
                        method,
                        accuracy=height - 0.006 * index + jitter,
                        loss=0.0
                        if method in ("bocl", "rcl", "pgn", "fixed", "frozen", "independent")
                        else 0.004 * index,
                        parameters=100_000 + 31_000 * index,
                        seconds=60.0 + 20 * index + seed,
                        trials=search if method in ("bocl", "rcl") else (),
                        attention=0.8 if method == "bocl" else None,
                        diagnostics=some_diagnostics(23) if method == "bocl" else None,
                        **common,
                    )
                )
            for change, value, worth in (
                ("growth__attention", False, -0.012),
                ("search__kind", "random", -0.004),
                ("search__kind", "reinforce", -0.006),
                ("reward__weighting", "uniform", -0.003),
                *(
                    ("reward__alpha", alpha, 0.002 * step - 0.006)
                    for step, alpha in enumerate((3e-2, 1e-2, 1e-3, 1e-4))
                ),
            ):
                accuracy = height + worth + jitter
                size = 100_000 + (20_000 + 9e6 * (0.006 + worth) if change == "reward__alpha" else 0)
                runs.append(
                    a_run(
                        "bocl",
                        accuracy=accuracy,
                        parameters=int(size),
                        trials=search,
                        attention=0.8,
                        **common,
                        **{change: value},
                    )
                )
            for method, change, values in (
                ("rcl", "reward__alpha", (3e-2, 1e-2, 1e-3, 1e-4)),
                ("den", "den__l1", (1e-6, 1e-4, 1e-3)),
                ("pgn", "pgn__width", (0.5, 0.7, 1.4)),
                ("ewc", "ewc__strength", (1.0, 10.0, 1000.0)),
            ):
                for step, value in enumerate(values):
                    runs.append(
                        a_run(
                            method,
                            accuracy=height - 0.03 + 0.005 * step + jitter,
                            parameters=90_000 + 50_000 * step,
                            trials=search if method == "rcl" else (),
                            **common,
                            **{change: value},
                        )
                    )
    return runs
