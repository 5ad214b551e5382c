"""The paper's figures: which systems stand in them, trials, rewards, attention."""

from __future__ import annotations

import pytest

from bocl.report.figures import accuracy_bars, time_bars
from bocl.report.systems import arrange
from replication.paper_figures import (
    accuracy_against_trials,
    attention_ablation,
    only_main,
    pairs,
    reward_against_trials,
    times,
)
from report_examples import a_run, a_trial


def one(*runs):
    (stream,) = arrange(runs)
    return stream


def test_a_method_run_as_a_variant_alone_stands_under_its_own_name():
    stream = one(a_run(search__kind="random"), a_run(growth__attention=False, search__kind="random"), a_run("sn"))
    assert [row.label for row in accuracy_bars(only_main(stream)).rows] == ["bocl, random search", "sn"]


def test_times_of_repeats_alone_on_the_device_count_children_together_and_one_by_one():
    stream = one(
        a_run(seconds=90.0, shares_device=16),
        a_run(seconds=20.0, folder="timed"),
        a_run(seconds=30.0, seed=1, folder="timed too"),
        a_run(seconds=80.0, search__memory_gb=1e-6, folder="one by one"),
        a_run("sn", seconds=5.0),
        a_run("ewc", seconds=70.0, shares_device=16),
    )
    assert times(stream).rows == (("bocl", "25.0 s", "80 s", "1 k and 1 k", "2 and 1"), ("sn", "5.0 s", "", "1 k", "1"))
    assert [(row.label, row.value) for row in time_bars(stream).rows] == [("bocl", 25.0), ("sn", 5.0)]


def curves(plot):
    """Return the values of every series, by name."""
    return {series.name: [point.y for point in series.points] for series in plot.series}


def test_accuracy_against_trials_is_a_mean_over_tasks_and_seeds_and_stays_level_from_trial_1_on():
    short = [a_trial((0, 0), 0.1, 1), a_trial((1, 0), 0.5, 2)]
    long = [a_trial((0, 0), 0.1, 1), a_trial((1, 0), 0.3, 2), a_trial((1, 1), 0.9, 3)]
    stream = one(
        a_run(seed=0, trials=short, tasks=3),
        a_run(seed=1, trials=long, tasks=3),
        *(a_run(seed=seed, search__kind="random", trials=short, tasks=3) for seed in (0, 1)),
        a_run(growth__attention=False, trials=short, tasks=3),
        a_run("rcl", seed=0, trials=short, tasks=3),
    )
    plot = accuracy_against_trials(stream)
    assert curves(plot) == {"bocl": pytest.approx([0.4, 0.7]), "bocl, random search": [0.5], "rcl": [0.5]}
    assert [point.x for point in plot.series[0].points] == [1, 2]
    assert plot.y.label == "validation accuracy, best so far (%)"
    assert plot.y_range is None, "how a search rises is what the figure is about"
    assert accuracy_against_trials(one(a_run("sn"))).series == ()
    assert accuracy_against_trials(one(a_run(trials=short[:1], tasks=3))).series == (), "no trial but z = 0"


def test_accuracy_against_trials_is_on_test_samples_where_the_searches_for_bocl_have_scored_them():
    trials = [a_trial((0, 0), 0.5, 1), a_trial((1, 1), 0.4, 2), a_trial((2, 2), 0.8, 3)]
    scored = {"trials": trials, "bests": ((0, 0.3), (2, 0.6)), "tasks": 2}
    untold = {"trials": trials, "tasks": 2}
    plot = accuracy_against_trials(one(a_run(**scored), a_run("rcl", **scored)))
    assert plot.y.label == "test accuracy, best so far (%)"
    assert curves(plot) == {"bocl": [0.3, 0.6], "rcl": [0.3, 0.6]}
    without_rcl = accuracy_against_trials(one(a_run(**scored), a_run("rcl", **untold)))
    assert without_rcl.y.label.startswith("test")
    assert list(curves(without_rcl)) == ["bocl"], "rcl was not scored on them"
    random = {"search__kind": "random"}
    mixed = one(a_run(**scored), a_run(**random, **untold))
    assert accuracy_against_trials(mixed).y.label.startswith("validation")
    beside = one(a_run(**scored), a_run(seed=1, **untold), a_run(**random, **scored))
    assert accuracy_against_trials(beside).y.label.startswith("test"), "seed 1 is in no curve"


def test_trials_are_compared_over_the_seeds_that_all_searches_were_run_with():
    low, high = ([a_trial((0, 0), 0.1, 1), a_trial((1, 1), accuracy, 2)] for accuracy in (0.5, 0.9))
    random = {"search__kind": "random", "tasks": 2}
    both = [a_run(seed=0, trials=low, tasks=2), a_run(seed=1, trials=high, tasks=2)]
    shared = accuracy_against_trials(one(*both, a_run(seed=0, trials=low, **random)))
    assert curves(shared) == {"bocl": [0.5], "bocl, random search": [0.5]}
    unlike = accuracy_against_trials(one(*both, a_run(seed=2, trials=low, **random)))
    assert curves(unlike) == {"bocl": pytest.approx([0.7]), "bocl, random search": [0.5]}
    of_rcl = accuracy_against_trials(one(*both, a_run("rcl", seed=0, trials=low, tasks=2)))
    assert curves(of_rcl)["bocl"] == pytest.approx([0.7]), "rcl has no say in the seeds of bocl"
    idle = accuracy_against_trials(one(a_run(seed=0, tasks=2), both[1], a_run(seed=0, trials=low, **random)))
    assert set(curves(idle)) == {"bocl", "bocl, random search"}, "a run without a search is no one's partner"


def test_reward_against_trials_is_accuracy_less_the_price_where_all_pay_the_same():
    trials = [a_trial((0, 0), 0.5, 1), a_trial((1, 1), 0.8, 2, reward=0.7)]
    scored = {"trials": trials, "bests": ((0, 0.3), (1, 0.6)), "tasks": 2}
    random = {"search__kind": "random", **scored}
    plot = reward_against_trials(one(a_run(**scored), a_run(**random), a_run("rcl", **scored)))
    assert plot.y.label == "test reward, best so far (%)"
    assert curves(plot) == {"bocl": pytest.approx([0.5]), "bocl, random search": pytest.approx([0.5])}
    assert reward_against_trials(one(a_run(**scored), a_run(reward__alpha=0.3, **random))).series == ()
    aimed = reward_against_trials(one(*(a_run(goal__target=0.9, **each) for each in (scored, random))))
    assert aimed.series == (), "with a target the reward is another"
    older = a_run(**random)
    older.config["reward"].pop("weighting", None)
    assert len(reward_against_trials(one(a_run(**scored), older)).series) == 2, (
        "what a journal lacks, it may be older than"
    )


def test_the_search_of_the_paper_stands_among_the_methods():
    stream = one(a_run(search__kind="bayesian"), a_run(), a_run(search__kind="random"), a_run("sn"))
    assert [row.label for row in accuracy_bars(only_main(stream)).rows] == ["bocl", "bocl, paper's search", "sn"]


def test_attention_is_judged_pair_by_pair():
    stream = one(
        a_run(seed=0, accuracy=0.90),
        a_run(seed=0, accuracy=0.88, growth__attention=False),
        a_run(seed=1, accuracy=0.90),
        a_run(seed=1, accuracy=0.91, growth__attention=False),
        a_run(seed=2, accuracy=0.10),
    )
    bars = attention_ablation(stream)
    assert [(row.label, row.value, row.text) for row in bars.rows] == [
        ("seed 0", pytest.approx(2.0), "+2.00"),
        ("seed 1", pytest.approx(-1.0), "-1.00"),
        ("mean", pytest.approx(0.5), "+0.50 ± 2.12"),
    ]


def test_runs_are_paired_by_all_they_have_in_common():
    runs = [a_run(seed=seed, growth__attention=on) for seed in (1, 0) for on in (True, False)]
    (stream,) = arrange(
        [*runs, a_run(seed=2), a_run(seed=3, growth__attention=False), a_run(seed=0, reward__alpha=1.0)]
    )
    found = pairs(stream, "growth.attention", True, False)
    assert [(one.seed, other.seed) for one, other in found] == [(0, 0), (1, 1)]
    assert all(one.config["growth"]["attention"] and not other.config["growth"]["attention"] for one, other in found)
