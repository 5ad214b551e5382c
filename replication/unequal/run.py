"""Make the runs of studies one after another in this process: small runs would take most of their time to start one.

python -m replication.unequal.run STUDY.toml … --out RUNS --records RECORDS [--data DATA] [--only NAMES]
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bocl.cli.comma_lists import parse_words
from bocl.engines.orders import RunOrder, carry_out
from bocl.engines.studies import run_jobs
from bocl.errors import BoclError
from bocl.experiment.provenance import machine
from bocl.experiment.study import jobs, load_study
from bocl.training.device import resolve_device


class ThisProcess:
    """An engine that makes runs here, on the CPU."""

    workers: int | None = 1
    shares_device = most_parts = 1

    def machine(self) -> dict[str, Any]:
        """Describe the CPU."""
        return machine(resolve_device("cpu"))

    def __call__(self, orders: Sequence[RunOrder], ended: Callable[[RunOrder, str], None]) -> None:
        """Make runs, one after another."""
        for order in orders:
            failure = ""
            try:
                carry_out(order, "cpu")
            except BoclError as error:
                failure = str(error)
            ended(order, failure)


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--records", type=Path, required=True)
    parser.add_argument("--data")
    parser.add_argument("--only")
    asked = parser.parse_args()
    names = None if asked.only is None else parse_words("--only", asked.only)
    wanted = jobs(list(map(load_study, asked.studies)), names=names, data=asked.data)
    failed = run_jobs(
        wanted,
        asked.out,
        ThisProcess(),
        records=asked.records,
        data=asked.data,
        command=shlex.join(["python", "-m", "replication.unequal.run", *sys.argv[1:]]),
        tell=lambda line: print(line, flush=True),
    )
    if failed:
        raise SystemExit(f"{failed} runs failed")


if __name__ == "__main__":
    main()
