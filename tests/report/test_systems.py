"""Which runs belong together, what they are called, and which of them stands for the rest."""

from __future__ import annotations

import pytest

from bocl.report.systems import Spread, arrange
from report_examples import a_run


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


def test_streams_are_in_the_order_of_their_names_and_methods_in_that_of_their_table():
    runs = [
        a_run("sn", stream="split-cifar100"),
        a_run("bocl", stream="a"),
        a_run("mine"),
        a_run("joint"),
        a_run("bocl"),
    ]
    streams = arrange([*runs, a_run(tasks=3)])
    assert [stream.label for stream in streams] == [
        "a (10 tasks)",
        "permuted-mnist (3 tasks)",
        "permuted-mnist (10 tasks)",
        "split-cifar100 (10 tasks)",
    ]
    assert [name for name, _ in names(streams[2])] == ["bocl", "joint", "mine"]


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
    (stream,) = arrange([a_run("fixed"), a_run("fixed", fixed__children=9)])
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


def test_the_headline_is_the_setting_that_is_marked_so():
    marked = a_run(reward__alpha=0.1, validation=0.5)
    runs = [marked, a_run(reward__alpha=0.2, validation=0.9), a_run(reward__alpha=0.1, seed=1, validation=0.5)]
    (stream,) = arrange(runs, is_headline=lambda run: run is marked)
    (system,) = stream.systems
    assert [run.seed for run in system.headline.runs] == [0, 1], "one of its runs marks a setting"
    assert [setting.label for setting in system.settings] == ["", "alpha 0.2"], "others are told by what they change"


def test_of_several_marked_settings_validation_samples_choose():
    runs = [a_run(reward__alpha=alpha, validation=validation) for alpha, validation in ((1, 0.9), (2, 0.8), (3, 0.7))]
    (stream,) = arrange(runs, is_headline=lambda run: run is not runs[0])
    assert stream.systems[0].headline.label == "alpha 2"


def test_no_name_of_a_folder_makes_a_headline():
    named = a_run(reward__alpha=0.1, validation=0.5, folder="study/bocl/bocl-seed0")
    (stream,) = arrange([named, a_run(reward__alpha=0.2, validation=0.9, folder="study/other/bocl-seed0")])
    assert stream.systems[0].headline.label == "alpha 0.2"


@pytest.mark.parametrize("setting", [{"search__children_at_once": 1}, {"search__memory_gb": 1e-6}])
def test_children_one_by_one_are_so_by_their_setting_of_today_and_of_old(setting):
    (stream,) = arrange([a_run(**setting), a_run("sn", **setting)])
    bocl, sn = (system.headline for system in stream.systems)
    assert (len(bocl.timed), len(bocl.one_by_one)) == (0, 1)
    assert (len(sn.timed), len(sn.one_by_one)) == (1, 0), "it has no children"
    (several,) = arrange([a_run(search__children_at_once=8)])
    assert several.systems[0].headline.one_by_one == ()


def test_unfinished_runs_and_repeats_are_left_out_of_means():
    again = a_run(folder="elsewhere", accuracy=0.1)
    begun = a_run(seed=1, done=2)
    (stream,) = arrange([a_run(), again, begun])
    assert list(stream.runs()) == [stream.systems[0].headline.runs[0]]
    assert (stream.repeats, stream.unfinished) == ((again,), (begun,))


DEFAULTS = {
    "growth__reads": "choose",
    "growth__wiring": "lean",
    "growth__gates": "unit",
    "search__halving": True,
    "search__bounds": None,
    "reward__alpha": None,
    "goal__tolerance": 0.005,
}
PAPER = {
    "growth__reads": "all",
    "growth__wiring": "full",
    "growth__gates": "sample",
    "search__halving": False,
    "search__bounds": 29,
    "goal__tolerance": 0.005,
}


def test_the_defaults_beside_runs_of_the_papers_ways_are_one_word():
    (stream,) = arrange([a_run(**PAPER), a_run(**DEFAULTS)])
    assert names(stream) == [("bocl", [""]), ("bocl, defaults", [""])]
    (stream,) = arrange([a_run(**PAPER), a_run(**(DEFAULTS | {"growth__attention": False}))])
    assert names(stream)[1] == ("bocl, defaults, no attention", [""])
    (stream,) = arrange([a_run(seed=0, **DEFAULTS), a_run(seed=1, **DEFAULTS)])
    assert names(stream) == [("bocl", [""])], "alone they are just bocl"


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("growth__reads", "chooses what to read"),
        ("growth__wiring", "lean wiring"),
        ("growth__gates", "unit gates"),
        ("search__halving", "halving"),
        ("search__bounds", "open bounds"),
        ("reward__alpha", "by tolerance"),
    ],
)
def test_each_new_way_makes_a_system_with_a_name_in_words(setting, words):
    (stream,) = arrange([a_run(**PAPER), a_run(**(PAPER | {setting: DEFAULTS[setting]}))])
    assert names(stream) == [("bocl", [""]), (f"bocl, {words}", [""])]


def test_tolerances_are_a_sweep_and_those_of_runs_with_a_price_say_nothing():
    sweep = [a_run(**(DEFAULTS | {"goal__tolerance": tolerance})) for tolerance in (0.005, 0.02)]
    (stream,) = arrange([*sweep, a_run(**PAPER), a_run(seed=1, **(PAPER | {"goal__tolerance": 0.3}))])
    assert names(stream) == [("bocl", [""]), ("bocl, defaults", ["tolerance 0.005", "tolerance 0.02"])]


def test_prices_of_parameters_are_a_sweep_of_a_system_that_has_no_tolerance():
    sweep = [a_run(**(DEFAULTS | {"goal__price": price})) for price in (0.01, 0.03)]
    (stream,) = arrange([*sweep, a_run(**(DEFAULTS | {"goal__price": None}))])
    assert names(stream) == [
        ("bocl", ["price 0.01", "price 0.03"]),
        ("bocl, by tolerance", [""]),
    ]
