"""Which runs belong together, what they are called, and which of them stands for the rest."""

from __future__ import annotations

import pytest
from report_examples import a_run

from bocl.report.style import style_of
from bocl.report.systems import Spread, arrange, pairs


def names(stream):
    return [(system.name, [setting.label for setting in system.settings]) for system in stream.systems]


def test_fixed_growth_that_chooses_among_children_is_a_system_of_its_own():
    (stream,) = arrange([a_run("fixed"), a_run("fixed", fixed__children=1, seed=1), a_run("fixed", fixed__children=11)])
    assert [(system.name, len(system.headline.runs)) for system in stream.systems] == [
        ("fixed", 2),
        ("fixed, best of 11 children", 1),
    ]


def test_seeds_are_averaged_over():
    (stream,) = arrange([a_run(seed=0, accuracy=0.8), a_run(seed=1, accuracy=0.9)])
    (system,) = stream.systems
    assert names(stream) == [("bocl", [""])]
    assert system.headline.spread("accuracy") == Spread(pytest.approx(0.85), pytest.approx(0.0707107), 2)
    assert arrange([a_run()])[0].systems[0].headline.spread("accuracy").sd is None


@pytest.mark.parametrize("alone", [{"search__children_at_once": 1}, {"search__memory_gb": 1e-6}])
def test_of_repeats_the_first_with_children_together_stands_for_all(alone):
    runs = [a_run(accuracy=0.7, **alone), a_run(accuracy=0.8), a_run(accuracy=0.9)]
    (stream,) = arrange(runs)
    assert list(stream.runs()) == runs[1:2]
    assert stream.repeats == (runs[0], runs[2])


def test_a_setting_of_one_search_tells_its_runs_apart_though_others_lack_it():
    (stream,) = arrange(
        [
            a_run(search__kind="bayesian", search__transfer=True),
            a_run(search__kind="bayesian", search__transfer=False),
            a_run(search__kind="random"),
        ]
    )
    assert [name for name, _ in names(stream)] == ["bocl", "bocl, random search", "bocl, no transfer"]


def test_streams_and_methods_have_an_order_of_their_own():
    runs = [
        a_run("sn", stream="split-cifar100"),
        a_run("bocl", stream="a"),
        a_run("mine"),
        a_run("joint"),
        a_run("bocl"),
    ]
    streams = arrange([*runs, a_run(tasks=3)])
    assert [stream.label for stream in streams] == [
        "permuted-mnist (3 tasks)",
        "permuted-mnist (10 tasks)",
        "split-cifar100 (10 tasks)",
        "a (10 tasks)",
    ]
    assert [name for name, _ in names(streams[1])] == ["bocl", "joint", "mine"]


def test_a_sweep_is_one_system_with_settings_smallest_first():
    (stream,) = arrange(
        [
            a_run(reward__alpha=0.001, parameters=2000),
            a_run(reward__alpha=0.01, parameters=1000),
            a_run(parameters=1500),
        ]
    )
    assert names(stream) == [("bocl", ["alpha 0.01", "alpha 0.005", "alpha 0.001"])]


def test_what_is_under_study_is_a_system_of_its_own():
    (stream,) = arrange(
        [
            a_run(),
            a_run(growth__attention=False),
            a_run(search__kind="random"),
            a_run(search__kind="bayesian"),
            a_run("rcl"),
            a_run("rcl", rcl__controller="as-released"),
        ]
    )
    assert [(system.name, system.changed) for system in stream.systems] == [
        ("bocl", ()),
        ("bocl, paper's search", ("search.kind",)),
        ("bocl, random search", ("search.kind",)),
        ("bocl, no attention, paper's search", ("growth.attention", "search.kind")),
        ("rcl", ()),
        ("rcl, as released", ("rcl.controller",)),
    ]
    assert stream.system("bocl").headline.runs[0].config["search"]["kind"] == "bayesian"


def test_a_method_without_its_usual_form_is_never_called_by_its_name_alone():
    (stream,) = arrange([a_run(growth__attention=False)])
    assert names(stream) == [("bocl, no attention", [""])]
    assert stream.system("bocl") is None


def test_settings_of_other_methods_tell_no_runs_apart():
    (stream,) = arrange([a_run("sn", seed=0), a_run("sn", seed=1, den__l1=1.0, reward__alpha=0.9)])
    assert names(stream) == [("sn", [""])]
    assert len(stream.systems[0].headline.runs) == 2
    (stream,) = arrange([a_run("rcl", seed=0), a_run("rcl", seed=1, search__kind="random", growth__attention=False)])
    assert names(stream) == [("rcl", [""])]


def test_a_record_older_than_a_setting_counts_as_what_was_done_before_it():
    old = a_run("fixed")
    assert "children" not in old.config["fixed"]
    (stream,) = arrange([old, a_run("fixed", fixed__children=9)])
    assert names(stream) == [("fixed", [""]), ("fixed, best of 9 children", [""])]


def test_a_record_that_lacks_a_setting_is_of_another_unless_it_is_known_what_was_done():
    old = a_run(seed=1)
    del old.config["recipe"]["epochs"]
    (stream,) = arrange([a_run(seed=0), old])
    assert [len(setting.runs) for setting in stream.systems[0].settings] == [1, 1]


def test_the_headline_is_chosen_on_validation_samples():
    (stream,) = arrange(
        [
            a_run(reward__alpha=0.1, accuracy=0.99, validation=0.5),
            a_run(reward__alpha=0.2, accuracy=0.5, validation=0.9),
        ]
    )
    assert stream.systems[0].headline.label == "alpha 0.2"


@pytest.mark.parametrize("place", ["study/{}/bocl-seed0", "records/{}-seed-0.jsonl"])
def test_the_headline_is_the_setting_called_after_its_method(place):
    (stream,) = arrange(
        [
            a_run(reward__alpha=0.1, validation=0.5, folder=place.format("bocl")),
            a_run(reward__alpha=0.2, validation=0.9, folder=place.format("bocl-alpha-0.2")),
        ]
    )
    (system,) = stream.systems
    assert system.headline.runs[0].config["reward"]["alpha"] == 0.1
    assert [setting.label for setting in system.settings] == ["", "alpha 0.2"], "others are told by what they change"


def test_unfinished_runs_and_repeats_are_left_out_of_means():
    again = a_run(folder="elsewhere", accuracy=0.1)
    begun = a_run(seed=1, done=2)
    (stream,) = arrange([a_run(), again, begun])
    assert list(stream.runs()) == [stream.systems[0].headline.runs[0]]
    assert (stream.repeats, stream.unfinished) == ((again,), (begun,))


def test_runs_are_paired_by_all_they_have_in_common():
    runs = [a_run(seed=seed, growth__attention=on) for seed in (1, 0) for on in (True, False)]
    (stream,) = arrange(
        [*runs, a_run(seed=2), a_run(seed=3, growth__attention=False), a_run(seed=0, reward__alpha=1.0)]
    )
    found = pairs(stream, "growth.attention", True, False)
    assert [(one.seed, other.seed) for one, other in found] == [(0, 0), (1, 1)]
    assert all(one.config["growth"]["attention"] and not other.config["growth"]["attention"] for one, other in found)


def test_a_method_has_one_colour_and_its_variants_other_marks():
    runs = [a_run(method) for method in ("bocl", "rcl", "den", "pgn", "gem", "ewc", "sn", "fixed", "frozen", "joint")]
    (stream,) = arrange([*runs, a_run("independent"), a_run(growth__attention=False)])
    styles = {system.name: style_of(system) for system in stream.systems}
    assert styles["bocl"].colour == styles["bocl, no attention"].colour
    assert len(set(styles.values())) == len(styles) == 12
    plain = [style for name, style in styles.items() if "," not in name]
    assert len({style.mark for style in plain}) == len({style.colour for style in plain}) == 11
