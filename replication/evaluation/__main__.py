"""Write the studies of the evaluation, one step after the other; `bocl study` makes their runs.

python -m replication.evaluation tries    what every system tries
python -m replication.evaluation own      the best try of each, by the records in tried, at its own size
python -m replication.evaluation equal    the same at the size of bocl's runs in results

    studies/STEP-STREAM.toml; README.md has the whole sequence
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import fmean

from bocl.experiment.study import Job
from bocl.records.files import write_whole
from bocl.records.summary import find_runs, summarise
from replication.evaluation.choice import Tried, chosen, results_of_tries, scored, tries_of
from replication.evaluation.sizes import BUDGETS, Overrides, sized, stored
from replication.evaluation.tries import HERE, PAPERS, System, first_seeds, numbers, preset, systems, tuning_seed
from replication.records import name_of, preset_of

ALL_SAMPLES = "recipe.use_validation=true"
REFERENCE = "bocl"  # whose size the others are brought to
ONLY_EQUAL = "fixed"  # it has no size of its own


def study(about: str, stream: str, seeds: Sequence[int], runs: Iterable[Job]) -> str:
    """Return the text of a study; the seeds of its runs are left out."""
    lines = [f"# {about}", f'on = ["{preset(stream)}"]', f"seeds = {list(seeds)}"]
    for run in runs:
        lines += [
            "",
            "[[run]]",
            f'name = "{run.name}"',
            f'method = "{run.method}"',
            f"set = {json.dumps(run.overrides)}",
        ]
        lines += ["headline = true"] if run.headline else []
    return "\n".join(lines) + "\n"


def tries_study(of: Sequence[System], count: int | None = None) -> str:
    """Return the study of all tries on a stream."""
    runs = (job for system in of for _, job in tries_of(system, count))
    stream = of[0].stream
    return study(f"What every system tries on {stream}, drawn from spaces.toml.", stream, [tuning_seed()], runs)


def own_study(of: Sequence[System], place: Path) -> str:
    """Return the study of the best tries on a stream, on seeds that chose nothing."""
    stream = of[0].stream
    runs = (
        Job(
            preset(stream),
            system.name,
            system.method,
            0,
            (*system.always, *best["settings"], ALL_SAMPLES),
            headline=True,
        )
        for system in of
        if system.name != ONLY_EQUAL and (best := chosen(system, place))
    )
    return study(f"The best try of every system on {stream}, at its own size.", stream, numbers(stream)["seeds"], runs)


def equal_study(of: Sequence[System], place: Path) -> str:
    """Return the study of the same at the size of bocl."""
    stream = of[0].stream
    parameters = reference_size(stream, place)
    runs = (
        Job(
            preset(stream),
            f"{system.name}-equal",
            system.method,
            0,
            (*at_size(system, best, parameters), ALL_SAMPLES),
        )
        for system in of
        if system.size and (best := chosen(system, place))
    )
    about = f"The best try of every system on {stream}, at the {parameters:,.0f} parameters that bocl stores."
    return study(about, stream, numbers(stream)["seeds"], runs)


def reference_size(stream: str, place: Path) -> float:
    """Return how many parameters bocl stores on average of the first seeds."""
    results = place / "results"
    runs = [run for run in map(summarise, find_runs(results) if results.is_dir() else []) if preset_of(run) == stream]
    own = {run.seed: run.tasks[-1].stored for run in runs if name_of(run) == REFERENCE and run.finished}
    if lacking := [str(seed) for seed in first_seeds(stream) if seed not in own]:
        raise SystemExit(f"{stream}: {REFERENCE} has no finished run of seed {', '.join(lacking)} in {results}")
    return fmean(own[seed] for seed in first_seeds(stream))


def at_size(system: System, best: Tried, parameters: float) -> Overrides:
    """Return the settings of a system's best try, with those that bring it to a number of parameters."""
    config, seen = system.config(best["settings"]), 1.0
    if system.size not in BUDGETS:
        seen = best["parameters"] / stored(system.config([*best["settings"], *system.shorter]))
    found = (*system.always, *best["settings"], *sized(config, system.size, parameters, seen=seen))
    return tuple({override.partition("=")[0]: override for override in found}.values())  # the last one of a name


def main() -> None:
    """Write what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=("tries", "own", "equal"))
    parser.add_argument("streams", nargs="*", default=PAPERS)
    parser.add_argument("--place", type=Path, default=HERE, help="folder of studies, tried, tries and results")
    parser.add_argument("--count", type=int, help="tries of every system, for a rehearsal")
    asked = parser.parse_args()
    for stream in asked.streams:
        of = systems(stream)
        if asked.step == "tries":
            text = tries_study(of, asked.count)
        elif asked.step == "own":
            found = results_of_tries(asked.place, stream) | scored(of, asked.place / "tried", asked.count)
            write(asked.place / "tries" / f"{stream}.json", json.dumps(found, indent=1) + "\n")
            text = own_study(of, asked.place)
        else:
            text = equal_study(of, asked.place)
        write(asked.place / "studies" / f"{asked.step}-{stream}.toml", text)


def write(file: Path, text: str) -> None:
    """Write a file, and its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.encode())


if __name__ == "__main__":
    main()
