"""The replication's runs: the paper's streams in its order, headlines by the studies."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bocl.method_table import METHODS
from replication.streams import arrange_replication, headline_names, is_headline
from report_examples import a_run


def test_the_paper_s_streams_come_first_in_its_order():
    names = ("split-cifar100", "a", "mixed-mnist", "z", "permuted-mnist")
    streams = arrange_replication([a_run(stream=name) for name in names] + [a_run(tasks=3)])
    assert [(stream.name, stream.tasks) for stream in streams] == [
        ("permuted-mnist", 3),
        ("permuted-mnist", 10),
        ("mixed-mnist", 10),
        ("split-cifar100", 10),
        ("a", 10),
        ("z", 10),
    ]


@pytest.mark.parametrize("place", ["study/{}/bocl-seed0", "records/{}-seed-0.jsonl"])
def test_the_headline_of_old_records_is_what_their_study_marks(place):
    (stream,) = arrange_replication(
        [
            a_run(reward__alpha=0.1, validation=0.5, folder=place.format("bocl")),
            a_run(reward__alpha=0.2, validation=0.9, folder=place.format("bocl-alpha-5e-3")),
        ]
    )
    (system,) = stream.systems
    assert system.headline.runs[0].config["reward"]["alpha"] == 0.1
    assert [setting.label for setting in system.settings] == ["", "alpha 0.2"]


NOT_RUN_YET = {"hat", "imm", "pc", "cab", "fearnet", "packnet", "supsup", "wsn"}


def test_the_studies_mark_every_method_but_fixed_growth_which_has_several_shapes():
    assert headline_names() == set(METHODS) - {"fixed"} - NOT_RUN_YET


def test_what_a_record_says_of_itself_goes_before_its_name():
    run = a_run(folder="records/bocl-seed-0.jsonl")
    assert is_headline(run)
    for recorded in (True, False):
        said = replace(run)
        object.__setattr__(said, "headline", recorded)
        assert is_headline(said) is recorded
