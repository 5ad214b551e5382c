"""Run every system of the study on every stream, several processes at once; the same command again resumes.

python -m replication.untuned.run DATA --out RUNS --records RECORDS [--streams letters,news] [--seeds 0,1] [--only bocl]
                                  [--workers N] [--device cpu] [--set a.b=c …]

    DATA     the folder that replication.untuned.make has filled
    RUNS     work folder of the runs
    RECORDS  folder of the journals of finished runs; one that is there, of the same settings, is not made again
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from contextlib import chdir
from pathlib import Path

from bocl.cli.comma_lists import parse_seeds, parse_words
from bocl.engines.run_process import RunProcesses
from bocl.engines.studies import run_jobs
from bocl.errors import BoclError
from bocl.experiment.study import jobs, load_study
from bocl.records.interrupts import stopping_on_terminate

HERE = Path(__file__).parent
STUDY, READING, PRESETS = HERE / "study.toml", HERE / "reading.toml", HERE / "presets"


def run_study(
    data: Path,
    out: Path,
    records: Path,
    *,
    streams: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    overrides: Sequence[str] = (),
    workers: int = 1,
    device: str = "auto",
    command: str = "",
    tell: Callable[[str], None] = print,
) -> int:
    """Make the runs that the records lack, each on one CPU thread; return how many failed.

    Runs are made in the folder of the data, so that journals name ``letters/1-A-E.npz`` wherever that folder is.
    """
    study = load_study(str(STUDY))
    out, records = out.resolve(), records.resolve()
    os.environ["OMP_NUM_THREADS"] = "1"
    if paths := os.environ.get("PYTHONPATH"):
        os.environ["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in paths.split(os.pathsep))
    with chdir(data):
        wanted = jobs(
            [study],
            on=[str(PRESETS / f"{name}.toml") for name in streams or study.on],
            names=names,
            seeds=seeds,
            overrides=overrides,
        )
        engine = RunProcesses([device] * workers)
        return run_jobs(wanted, out, engine, records=records, data=None, command=command, tell=tell)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m replication.untuned.run", description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--streams")
    parser.add_argument("--only")
    parser.add_argument("--seeds")
    parser.add_argument("--set", action="append", default=[], dest="overrides")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--device", default="auto")
    asked = parser.parse_args()
    try:
        with stopping_on_terminate():
            failed = run_study(
                asked.data,
                asked.out,
                asked.records,
                streams=None if asked.streams is None else parse_words("--streams", asked.streams),
                names=None if asked.only is None else parse_words("--only", asked.only),
                seeds=parse_seeds(asked.seeds),
                overrides=asked.overrides,
                workers=asked.workers,
                device=asked.device,
                command=shlex.join(["python", "-m", "replication.untuned.run", *sys.argv[1:]]),
                tell=lambda line: print(line, flush=True),
            )
    except BoclError as error:
        raise SystemExit(str(error)) from error
    except KeyboardInterrupt:
        raise SystemExit("stopped; run the same command again to resume") from None
    if failed:
        raise SystemExit(f"{failed} runs failed")


if __name__ == "__main__":
    main()
