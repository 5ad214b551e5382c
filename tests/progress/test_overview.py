"""The table of runs, as it stands on a terminal."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console

from bocl.progress.overview import overview, totals
from bocl.records.outlook import outlook
from bocl.records.progress import Progress

NOW = 1_000_000.0
RUN = Progress(
    Path("out/digits/bocl/bocl-seed0"),
    NOW - 12,
    (0, 0),
    "bocl",
    stream="permuted-digits",
    alike="bocl",
    tasks=4,
    seconds=(10.0, 100.0),
    accuracy=0.91234,
    rounds=2,
    children=9,
    spent=30.0,
    node="gpu17",
    device="cuda:3",
)
RUNS = [
    RUN,
    replace(RUN, folder=Path("out/digits/bocl/bocl-seed1"), seed=1, seconds=(1.0,) * 4, rounds=0, children=0),
    replace(RUN, folder=Path("out/digits/sn/sn-seed0"), method="sn", alike="sn", seconds=(), accuracy=None),
    replace(RUN, folder=Path("out/digits/sn/sn-seed1"), method="sn", seed=1, changed=NOW - 7300),
    Progress(Path("out/digits/sn/sn-seed2"), NOW - 5, (0, 0)),
    Progress(Path("out/digits/wines"), NOW - 5, (0, 0), problem="out/digits/wines/journal.jsonl, line 3: damaged"),
]


def rows(*runs, width=80, height=None):
    """Return the lines that a terminal of this width shows."""
    written = StringIO()
    Console(file=written, width=width, color_system=None).print(overview(outlook(runs, NOW), width, height))
    return written.getvalue().splitlines()


def test_runs_stand_in_one_table_that_fits_80_columns():
    assert rows(*RUNS) == [
        "runs in out/digits",
        "                        children",
        "run              tasks  (rounds)    ACC  on            wrote        left",
        "bocl/bocl-seed0    2/4     9 (2)  91.23  gpu17 cuda:3   12 s       3 min",
        "bocl/bocl-seed1    4/4            91.23  gpu17 cuda:3   12 s    finished",
        "sn/sn-seed0        0/4     9 (2)         gpu17 cuda:3   12 s           –",
        "sn/sn-seed1        2/4     9 (2)  91.23  gpu17 cuda:3    2 h      silent",
        "sn/sn-seed2                                              5 s           –",
        "wines                                                         unreadable",
        "ACC in %; children (rounds): of the task under way; wrote: time since then",
        "out/digits/wines/journal.jsonl, line 3: damaged",
        "1 of 6 runs finished, 3 under way, 1 silent, 1 unreadable; over 3 min left",
    ]


LONG = replace(
    RUN,
    folder=Path("/scratch/somebody/studies/2026/bocl-without-attention/bocl-seed12"),
    seed=12,
    node="a-host-with-a-very-long-name",
    tasks=100,
    seconds=(99.0,) * 88,
    rounds=12,
    children=240,
    changed=NOW - 99,
)


def test_what_is_long_is_cut_where_it_says_least():
    """The end of a path tells runs apart, the beginning of a host's name says which it is."""
    other = replace(LONG, folder=LONG.folder.parents[1] / "the-one-with-the-usual-attention" / "bocl-seed0", seed=0)
    assert rows(LONG, other)[:5] == [
        "runs in /scratch/somebody/studies/2026",
        "                             children",
        "run                   tasks  (rounds)    ACC  on                   wrote    left",
        "…ention/bocl-seed12  88/100  240 (12)  91.23  a-host-with… cuda:3   99 s  18 min",
        "…tention/bocl-seed0  88/100  240 (12)  91.23  a-host-with… cuda:3   99 s  18 min",
    ]


def test_a_folder_of_another_name_is_told_with_its_method():
    assert rows(replace(RUN, folder=Path("runs/wines")))[3].startswith("wines (bocl, seed 0)  ")
    assert rows(replace(RUN, folder=Path(".")))[3].startswith(". (bocl, seed 0)  ")


def test_names_that_are_wide_or_steer_a_terminal_are_padded_and_shown():
    wide = replace(RUN, folder=Path("out/課題/bocl-seed0"), node="計算機")
    steering = replace(RUN, folder=Path("out/\x1b[2J/bocl-seed0"), node="a\nb")
    *_, first, second, _, _ = rows(wide, steering)
    assert "課題/bocl-seed0" in first
    assert "計算機 cuda:3" in first
    assert "\\x1b[2J/bocl-seed0" in second
    assert "a\\nb cuda:3" in second
    assert cell_len(first) == cell_len(second) <= 80


def test_where_not_all_fit_those_that_need_a_look_stay():
    done = [replace(RUNS[1], folder=Path(f"out/digits/done/bocl-seed{seed}"), seed=seed) for seed in range(50)]
    shown = rows(*done, *RUNS, height=12)
    assert len(shown) == 12
    names = ["bocl/bocl-seed0", "sn/sn-seed0", "sn/sn-seed1", "sn/sn-seed2", "wines"]
    assert [row.split()[0] for row in shown[3:8]] == names
    assert shown[8] == "and 51 more"
    assert shown[-1] == "51 of 56 runs finished, 3 under way, 1 silent, 1 unreadable; over 3 min left"
    assert len(rows(*done, *RUNS)) == 62, "on paper there is room for all"
    for height in range(8, 70):
        assert len(rows(*done, *RUNS, height=height)) <= height


@pytest.mark.parametrize(
    ("runs", "line"),
    [
        ([], "0 of 0 runs finished"),
        ([RUNS[1]], "1 of 1 run finished"),
        ([RUN], "0 of 1 run finished, 1 under way; 3 min left"),
        ([RUNS[2]], "0 of 1 run finished, 1 under way; time left not known"),
        ([RUNS[3]], "0 of 1 run finished, 1 silent; time left not known"),
        ([RUN] * 2000, "0 of 2,000 runs finished, 2,000 under way; 3 min left"),
    ],
)
def test_the_line_about_all(runs, line):
    assert totals(outlook(runs, NOW)) == line
    assert rows(*runs, height=24)[-1] == line
