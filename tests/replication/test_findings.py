"""Claims judged: met, missed, by how much, or open where no run tells."""

from __future__ import annotations

import pytest

from bocl.report.systems import arrange
from replication.claims import CLAIMS
from replication.findings import ON_PAR, findings, reductions, smallest_on_par
from report_examples import a_run, a_trial


def judged(measure, rival, *runs):
    """Return our finding on one claim."""
    found = [f for f in findings(arrange(runs)) if (f.claim.measure, f.claim.rival) == (measure, rival)]
    assert len(found) == 1
    return found[0]


def test_every_claim_has_a_place_and_a_stream():
    assert len(CLAIMS) == 3 * 19
    assert {claim.stream for claim in CLAIMS} == {"permuted-mnist", "mixed-mnist", "split-cifar100"}
    assert all(claim.where for claim in CLAIMS)


def test_the_printed_figures_are_those_of_the_paper():
    printed = {(c.measure, c.stream, c.rival): c.value for c in CLAIMS if c.value}
    assert printed["parameters", "permuted-mnist", "pgn"] == 0.36
    assert printed["parameters", "split-cifar100", "den"] == 0.60
    assert printed["time", "split-cifar100", "den"] == -0.51
    assert printed["time", "mixed-mnist", "rcl"] == 0.37
    assert printed["attention", "split-cifar100", "no attention"] == 0.022
    assert len(printed) == 9 + 6 + 3


def test_other_streams_and_shorter_ones_have_no_claims():
    assert findings(arrange([a_run(stream="permuted-digits"), a_run(tasks=9)])) == []
    assert findings(arrange([a_run(done=3)])) == []


def test_one_method_alone_leaves_comparisons_open():
    found = findings(arrange([a_run()]))
    assert {f.claim.measure for f in found if f.verdict != "open"} == {"keeps"}
    assert all(f.ours == "" for f in found if f.verdict == "open")


@pytest.mark.parametrize(
    ("size", "verdict", "margin"), [(640, "met", ""), (500, "met", "by 14 points"), (900, "missed", "by 26 points")]
)
def test_parameters_saved(size, verdict, margin):
    found = judged("parameters", "pgn", a_run(parameters=size), a_run("pgn", parameters=1000))
    assert (found.verdict, found.margin) == (verdict, margin)
    assert found.ours.startswith(f"{100 - size // 10} %")


def test_a_match_is_the_smallest_setting_on_par_on_validation_samples():
    runs = [
        a_run(reward__alpha=0.1, parameters=100, accuracy=0.99, validation=0.9 - 1.1 * ON_PAR),
        a_run(reward__alpha=0.2, parameters=200, accuracy=0.5, validation=0.9 - 0.9 * ON_PAR),
        a_run(reward__alpha=0.3, parameters=300, accuracy=0.95, validation=0.95),
        a_run("den", parameters=400, accuracy=0.7, validation=0.9),
    ]
    (stream,) = arrange(runs)
    assert smallest_on_par(stream.system("bocl"), stream.system("den").headline).label == "alpha 0.2"
    (row,) = reductions([stream]).rows
    assert row == (
        "permuted-mnist (10 tasks)",
        "den: 400, 70.00 %",
        "bocl (alpha 0.2): 200, 50.00 %",
        "-20.00 points",
        "50 %",
        "24 %",
    )


def test_settings_are_compared_over_the_seeds_that_both_were_run_with():
    rival = a_run("den", seed=0, parameters=1000, accuracy=0.9)
    lucky = a_run(seed=1, parameters=10, accuracy=0.99, validation=0.99)
    found = judged("parameters", "den", a_run(seed=0, parameters=500, accuracy=0.9), lucky, rival)
    assert found.ours == "50 % (test accuracy 0 points)"
    below = a_run(seed=0, parameters=500, accuracy=0.8, validation=0.8)
    assert judged("parameters", "den", below, lucky, rival).margin == "not on par"
    apart = judged("parameters", "den", lucky, rival)
    assert apart.ours.startswith("99 %"), "no seed in common: all of each"


def test_a_match_with_another_setting_than_the_headline_says_so():
    (stream,) = arrange([a_run(reward__alpha=0.1, parameters=100), a_run(parameters=200), a_run("rcl", parameters=400)])
    assert [f.ours for f in findings([stream], "table-1") if f.verdict == "met"] == [
        "75 % (alpha 0.1; test accuracy 0 points)"
    ]


def test_what_is_on_par_on_validation_samples_alone_meets_no_claim():
    def found(accuracy):
        rival = a_run("den", parameters=1000, accuracy=0.9, validation=0.9)
        return judged("parameters", "den", a_run(parameters=100, accuracy=accuracy, validation=0.9), rival)

    assert found(0.9 - 0.9 * ON_PAR).verdict == "met"
    missed = found(0.9 - 1.1 * ON_PAR)
    assert (missed.verdict, missed.ours) == ("missed", "90 % (test accuracy -0.28 points)")
    assert "not on test samples" in missed.margin


def test_the_table_has_the_search_of_the_paper_as_well():
    runs = [a_run(search__kind="bayesian"), a_run(parameters=500), a_run(search__kind="random"), a_run("rcl")]
    assert [row[2].partition(":")[0] for row in reductions(arrange(runs)).rows] == ["bocl", "bocl, paper's search"]


def test_the_table_has_every_setting_of_a_rival_and_the_paper_beside_the_one_that_is_judged():
    small, large = (
        a_run("pgn", pgn__width=width, parameters=round(1000 * width), validation=width) for width in (0.5, 1.0)
    )
    rows = reductions(
        arrange(
            [
                a_run(parameters=250, validation=1.0),
                a_run(search__kind="bayesian", parameters=200, validation=1.0),
                small,
                large,
            ]
        )
    ).rows
    told = [(row[1].partition(":")[0], row[1].endswith("*"), row[2].partition(":")[0], *row[4:]) for row in rows]
    assert told == [
        ("pgn (width 0.5)", False, "bocl", "60 %", ""),
        ("pgn (width 1)", True, "bocl", "80 %", "36 %"),
        ("pgn (width 1)", True, "bocl, paper's search", "75 %", "36 %"),
    ]


def test_where_nothing_is_on_par_the_table_says_so():
    runs = [a_run(accuracy=0.8), a_run("rcl", accuracy=0.9)]
    (row,) = reductions(arrange(runs)).rows
    assert row[2:5] == ("bocl: none on par", "", "")
    found = judged("parameters", "rcl", *runs)
    assert (found.verdict, found.margin, found.ours) == ("missed", "not on par", "0 % (test accuracy -10.00 points)")


def test_time_saved_counts_runs_alone():
    met = judged("time", "rcl", a_run(seconds=40.0), a_run("rcl", seconds=100.0))
    assert (met.verdict, met.margin, met.paper) == ("met", "by 11 points", "49 %")
    assert met.ours == "60 % (samples: 0 %)"
    assert judged("time", "rcl", a_run(seconds=40.0), a_run(seed=1, seconds=1.0), a_run("rcl", seconds=100.0)) == met
    missed = judged("time", "den", a_run(seconds=90.0), a_run("den", seconds=100.0))
    assert (missed.verdict, missed.margin) == ("missed", "by 29 points")


def test_time_saved_one_by_one_stands_beside_it():
    ours = (a_run(seconds=20.0), a_run(seconds=80.0, search__memory_gb=1e-6, folder="one by one"))
    theirs = (a_run("rcl", seconds=100.0), a_run("rcl", seconds=320.0, search__memory_gb=1e-6, folder="one by one"))
    assert judged("time", "rcl", *ours, *theirs).ours == "80 % (one by one: 75 %, samples: 0 %)"
    assert judged("time", "rcl", *ours, theirs[0]).ours == "80 % (samples: 0 %)"
    # den trains one network whatever the memory
    assert judged("time", "den", *ours, a_run("den", seconds=100.0)).ours == "80 % (one by one: 20 %, samples: 0 %)"


def test_runs_that_shared_a_device_tell_no_time_and_say_so():
    for pair in ((a_run(shares_device=2), a_run("rcl")), (a_run(), a_run("rcl", shares_device=2))):
        found = judged("time", "rcl", *pair)
        assert (found.verdict, found.ours) == ("open", "")
        assert found.margin == "not both had a device to themselves; samples saved: 0 %"


def test_an_open_claim_says_what_is_missing():
    assert judged("time", "den", a_run()).margin == "no run of den"
    assert judged("front", "den", a_run("pgn")).margin == "no run of bocl or den"
    assert (
        judged("trials", "random", a_run(trials=[a_trial((0, 0), 0.5, 1)])).margin
        == "no run of bocl with random search"
    )
    assert judged("accuracy", "fixed-size networks", a_run()).margin == "no run of sn or ewc or gem"


def test_trials_are_compared_over_seeds_that_both_were_run_with():
    slow = [a_trial((0, 0), 0.5, 1), a_trial((1, 0), 0.6, 2), a_trial((2, 0), 0.9, 3)]
    fast = [a_trial((0, 0), 0.5, 1), a_trial((2, 0), 0.9, 3)]
    ours = [a_run(seed=0, trials=fast), a_run(seed=1, trials=slow[:2])]
    assert judged("trials", "random", *ours, a_run(seed=0, search__kind="random", trials=slow)).verdict == "met"
    apart = judged("trials", "random", ours[0], a_run(seed=7, search__kind="random", trials=slow))
    assert (apart.verdict, apart.margin) == ("open", "no seed that both were run with")


def test_attention_is_worth_what_pairs_say():
    def found(gain):
        return judged(
            "attention", "no attention", a_run(accuracy=0.9), a_run(accuracy=0.9 - gain, growth__attention=False)
        )

    assert (found(0.002).verdict, found(0.002).margin) == ("met", "by 0.10 points")
    assert (found(0.0).verdict, found(0.0).margin) == ("missed", "by 0.10 points")


def test_forgetting_is_nothing_or_something():
    assert judged("keeps", "bocl", a_run()).verdict == "met"
    assert judged("keeps", "bocl", a_run(loss=0.001)).verdict == "missed"
    assert judged("keeps", "bocl", a_run(loss=-0.001)).verdict == "missed", "a task that changed was touched"
    assert judged("forgets", "sn", a_run("sn", loss=0.01)).verdict == "met"
    assert judged("forgets", "sn", a_run("sn")).verdict == "missed"


def test_every_setting_of_a_rival_must_be_beaten():
    own = [a_run(reward__alpha=0.1, parameters=100, accuracy=0.8), a_run(parameters=300, accuracy=0.9)]
    beaten = a_run("den", parameters=300, accuracy=0.9)
    assert judged("front", "den", *own, beaten).verdict == "met"
    found = judged("front", "den", *own, beaten, a_run("den", den__l1=1.0, parameters=200, accuracy=0.85))
    assert (found.verdict, found.ours) == ("missed", "at 1 of 2 settings")


def test_a_rival_beyond_every_setting_of_ours_leaves_the_front_open():
    own = a_run(parameters=300, accuracy=0.9)
    beyond = judged("front", "pgn", own, a_run("pgn", parameters=900, accuracy=0.95))
    assert (beyond.verdict, beyond.ours) == ("open", "")
    for size, accuracy in ((900, 0.9), (300, 0.95), (200, 0.95), (200, 0.8)):
        found = judged("front", "pgn", own, a_run("pgn", parameters=size, accuracy=accuracy))
        assert found.verdict == ("met" if size >= 300 and accuracy <= 0.9 else "missed"), (size, accuracy)


def test_networks_that_grow_against_those_of_fixed_size():
    grown = [a_run(accuracy=0.9), a_run("pgn", accuracy=0.8)]
    assert judged("accuracy", "fixed-size networks", *grown, a_run("sn", accuracy=0.7)).margin == "by 10.00 points"
    assert judged("accuracy", "fixed-size networks", *grown, a_run("ewc", accuracy=0.85)).verdict == "missed"


def test_trials_needed_for_the_accuracy_of_another_search():
    def search(*accuracies):
        return [a_trial((step, 0), accuracy, 1) for step, accuracy in enumerate(accuracies)]

    other = a_run(search__kind="random", trials=search(0.1, 0.2, 0.3, 0.6))
    met = judged("trials", "random", a_run(trials=search(0.1, 0.7)), other)
    assert (met.verdict, met.margin, met.ours) == ("met", "by 2 trials", "1 for 60.00 %, 3 there")
    level = judged("trials", "random", a_run(trials=search(0.1, 0.1, 0.1, 0.7)), other)
    assert (level.verdict, level.margin) == ("missed", "")
    never = judged("trials", "random", a_run(trials=search(0.1, 0.5)), other)
    assert never.verdict == "missed"
    assert "never" in never.ours


def test_trials_are_counted_on_the_samples_the_figure_shows():
    def scored(kind, *accuracies):
        trials = [a_trial((step, 0), 0.1 * step, 1) for step in range(len(accuracies))]
        return a_run(search__kind=kind, trials=trials, bests=tuple(enumerate(accuracies)))

    found = judged("trials", "random", scored("paper", 0.5, 0.9, 0.9), scored("random", 0.4, 0.5, 0.6))
    assert found.ours == "1 for 60.00 %, 2 there"
