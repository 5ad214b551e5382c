"""Learn the first task of a stream with every try, on the seed of the tries, and print its validation accuracy.

python -m replication.evaluation.ranges STREAM [SYSTEM...]

This was how the lists of ``spaces.toml`` were looked over before any try was made: a list whose tries cannot learn one
task says nothing of its system. No later task is learnt, so it says nothing of forgetting, and no test sample is read.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from bocl.experiment.build import build_base, build_method, build_stream
from bocl.wording import percent
from replication.evaluation.tries import System, systems, tries, tuning_seed


def first_task(system: System, settings: tuple[str, ...]) -> float:
    """Return the validation accuracy of the first of a stream's tasks, learnt with a try's settings."""
    config = system.config([*settings, *system.shorter, f"seed={tuning_seed()}"])
    config = replace(config, method=system.tried_as, stream=replace(config.stream, tasks=1))
    learnt = build_method(config, build_base(config), "cpu").learn(build_stream(config)[0])
    return learnt.validation_accuracy


def main() -> None:
    """Print a line for every try."""
    stream, *names = sys.argv[1:]
    for system in systems(stream):
        for settings in tries(system) if not names or system.name in names else ():
            print(f"{system.name:12} {percent(first_task(system, settings))}  {' '.join(settings)}", flush=True)


if __name__ == "__main__":
    main()
