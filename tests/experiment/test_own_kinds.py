"""One run over data of every kind, from the command line: learnt, audited, predicted for."""

from __future__ import annotations

import numpy as np
import pytest

from bocl.__main__ import main


def command(monkeypatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["bocl", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code or 0


@pytest.mark.extras("pyarrow", "datasets")
def test_a_run_learns_every_kind_of_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    import datasets
    import pyarrow
    import pyarrow.parquet

    datasets.disable_progress_bars()
    monkeypatch.chdir(tmp_path)
    values = np.random.default_rng(0).normal(size=(40, 2)).round(3)
    table = {"a": values[:, 0].tolist(), "b": values[:, 1].tolist(), "label": ["no", "yes"] * 20}
    pyarrow.parquet.write_table(pyarrow.table(table), "first.parquet")
    datasets.Dataset.from_dict(table).save_to_disk("second")
    datasets.Dataset.from_dict({name: table[name] for name in ("b", "label", "a")}).save_to_disk("swapped")
    with open("third.csv", "w") as csv:
        csv.writelines(",".join(map(str, row)) + "\n" for row in [table, *zip(*table.values(), strict=True)])
    settings = ("--set", "recipe.epochs=1", "--set", "method=frozen", "--standardise", "--device", "cpu")
    assert command(monkeypatch, "learn", "run", "first.parquet", *settings) == 0
    for task in ("second", "third.csv"):
        assert command(monkeypatch, "learn", "run", task, "--device", "cpu") == 0
    assert command(monkeypatch, "audit", "run", "--device", "cpu") == 0
    capsys.readouterr()
    predicted = []
    for place in (
        "second",
        "swapped",
        "third.csv",
        "first.parquet",
    ):  # the same samples, also in another order of columns
        assert command(monkeypatch, "predict", "run", place, "--task", "second", "-o", f"{place}.out.csv") == 0
        predicted.append((tmp_path / f"{place}.out.csv").read_text())
    assert predicted[0].startswith("sample,label,p(no),p(yes)\n0,")
    assert len({*predicted}) == 1
