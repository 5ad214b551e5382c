"""Which learning rate each system takes: the one with the best validation accuracy in the runs of ``tune-*.toml``.

python -m replication.pretrained.choose RECORDS    adds the scores of these runs to tuning.json, and prints for every
                                                   system there its best rate
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from bocl.records.summary import find_runs, summarise

PLACE = Path(__file__).parent / "tuning.json"


def scores(records: Path) -> dict[str, dict[str, float]]:
    """Return the mean validation accuracy of every tuning run: {preset: {SYSTEM-RATE: accuracy}}."""
    found: dict[str, dict[str, float]] = {}
    for run in find_runs(records):
        summary = summarise(run)
        row = summary.tasks[-1].validation_row
        name = run.name.removesuffix(".jsonl").rpartition("-seed-")[0]
        found.setdefault(run.parent.name, {})[name] = sum(row) / len(row)
    return found


def best(of_preset: dict[str, float]) -> dict[str, str]:
    """Return the learning rate of every system that scored best: {SYSTEM: RATE}."""
    found: dict[str, str] = {}
    for name in sorted(of_preset, key=lambda name: of_preset[name]):
        system, _, rate = name.partition("-")
        found[system] = rate
    return found


def main() -> None:
    """Choose, print and write."""
    found = scores(Path(sys.argv[1]))
    known = json.loads(PLACE.read_text(encoding="utf-8")) if PLACE.exists() else {}
    merged = known | {preset: known.get(preset, {}) | scored for preset, scored in found.items()}
    PLACE.write_text(json.dumps(merged, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    for preset in found:
        for system, rate in best(merged[preset]).items():
            print(system, rate)


if __name__ == "__main__":
    main()
