"""Write the studies of the evaluation, one step after the other; `bocl study` makes their runs.

python -m replication.evaluation tries                what every system tries
python -m replication.evaluation own --tried RECORDS  the best try of each, by these records, at its own size
python -m replication.evaluation equal                the same at the size of bocl's runs in results

    studies/STEP-STREAM.toml, of the second part STEP-STREAM-2.toml; README.md has the whole sequence
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from bocl.records.files import write_whole
from bocl.records.summary import find_runs, summarise
from replication.evaluation.choice import chosen, recorded, scored, try_name
from replication.evaluation.sizes import BUDGETS, Overrides, sized, stored
from replication.evaluation.tries import HERE, PAPERS, System, numbers, preset, systems, tries, tuning_seed
from replication.records import name_of, preset_of

ALL_SAMPLES = "recipe.use_validation=true"
REFERENCE = "bocl"  # whose size the others are brought to
FIRST_SEEDS = 4  # which are run before the others
ONLY_EQUAL = "fixed"  # it has no size of its own


@dataclass(frozen=True)
class Run:
    """One entry of a study."""

    name: str
    method: str
    settings: Overrides
    headline: bool = False


def study(about: str, stream: str, seeds: Sequence[int], runs: Iterable[Run]) -> str:
    """Return the text of a study."""
    lines = [f"# {about}", f'on = ["{preset(stream)}"]', f"seeds = {list(seeds)}"]
    for run in runs:
        lines += [
            "",
            "[[run]]",
            f'name = "{run.name}"',
            f'method = "{run.method}"',
            f"set = {json.dumps(run.settings)}",
        ]
        lines += ["headline = true"] if run.headline else []
    return "\n".join(lines) + "\n"


def tries_study(of: Sequence[System], count: int | None = None) -> str:
    """Return the study of all tries on a stream."""
    runs = (
        Run(try_name(system.name, number), system.tried_as, (*system.always, *settings, *system.shorter))
        for system in of
        for number, settings in enumerate(tries(system, count))
    )
    stream = of[0].stream
    return study(f"What every system tries on {stream}, drawn from spaces.toml.", stream, [tuning_seed()], runs)


def own_study(of: Sequence[System], place: Path) -> str:
    """Return the study of the best tries on a stream, on seeds that chose nothing."""
    runs = (
        Run(
            system.name, system.method, (*system.always, *chosen(system, place)["settings"], ALL_SAMPLES), headline=True
        )
        for system in of
        if system.name != ONLY_EQUAL
    )
    stream = of[0].stream
    return study(f"The best try of every system on {stream}, at its own size.", stream, numbers(stream)["seeds"], runs)


def equal_study(of: Sequence[System], place: Path) -> str:
    """Return the study of the same at the size of bocl."""
    stream = of[0].stream
    parameters = reference_size(stream, place)
    runs = (
        Run(f"{system.name}-equal", system.method, (*at_size(system, place, parameters), ALL_SAMPLES))
        for system in of
        if system.size
    )
    about = f"The best try of every system on {stream}, at the {parameters:,.0f} parameters that bocl stores."
    return study(about, stream, numbers(stream)["seeds"], runs)


def reference_size(stream: str, place: Path) -> float:
    """Return how many parameters bocl stores on average of the first seeds."""
    runs = [run for run in map(summarise, find_runs(place / "results")) if preset_of(run) == stream]
    own = {run.seed: run.tasks[-1].stored for run in runs if name_of(run) == REFERENCE and run.finished}
    return fmean(own[seed] for seed in numbers(stream)["seeds"][:FIRST_SEEDS])


def at_size(system: System, place: Path, parameters: float) -> Overrides:
    """Return the settings of a system's best try, with those that bring it to a number of parameters."""
    best = chosen(system, place)
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
    parser.add_argument("--part", type=int, default=1, help="of the evaluation")
    parser.add_argument("--tried", type=Path, help="records of the runs of the tries; left out, what was read before")
    parser.add_argument("--failed", default="", help="tries that broke down, separated by commas")
    parser.add_argument("--place", type=Path, default=HERE, help="folder of studies, tries and results")
    parser.add_argument("--count", type=int, help="tries of every system, for a rehearsal")
    asked = parser.parse_args()
    for stream in asked.streams:
        of = systems(stream, asked.part)
        if asked.step == "tries":
            text = tries_study(of, asked.count)
        elif asked.step == "own":
            if asked.tried is not None:
                new = scored(of, asked.tried, failed=asked.failed.split(","), count=asked.count)
                found = json.dumps(recorded(asked.place, stream) | new, indent=1)
                write(asked.place / "tries" / f"{stream}.json", found + "\n")
            text = own_study(of, asked.place)
        else:
            text = equal_study(of, asked.place)
        which = "" if asked.part == 1 else f"-{asked.part}"
        write(asked.place / "studies" / f"{asked.step}-{stream}{which}.toml", text)


def write(file: Path, text: str) -> None:
    """Write a file, and its folder."""
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, text.encode())


if __name__ == "__main__":
    main()
