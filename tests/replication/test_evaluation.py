"""The evaluation: equal tries for all, chosen by validation samples, brought to one size, told as the records say."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from dataclasses import replace
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from types import SimpleNamespace

import pytest
from scipy.stats import t as student

from bocl.engines.orders import carry_out
from bocl.engines.studies import PARTS, record_name, recorded, run_jobs
from bocl.experiment.study import jobs, load_study
from bocl.method_table import METHODS
from bocl.records.summary import find_runs, summarise
from replication.evaluation import tables
from replication.evaluation.__main__ import ALL_SAMPLES, equal_study, own_study, reference_size, tries_study, write
from replication.evaluation.choice import best, chosen, results_of_tries, scored
from replication.evaluation.sizes import sized, stored
from replication.evaluation.tries import (
    HERE,
    PAPERS,
    first_seeds,
    numbers,
    shared_out,
    systems,
    tries,
    tuning_seed,
)
from replication.records import name_of
from replication.tables import filled

RECIPE = ("optimiser", "learning_rate", "schedule", "average", "weight_decay", "epochs")
SOME = ("bocl", "pgn", "wsn", "fixed", "sn")  # of every kind of size, for the rehearsal


class InThisProcess:
    """An engine of one run at a time."""

    workers, shares_device, most_parts = 1, 1, 1

    def machine(self):
        return {"device": "cpu"}

    def __call__(self, orders, ended):
        for order in orders:
            carry_out(order, "cpu")
            ended(order, "")


def study_file(stream: str, step: str = "tries") -> Path:
    return HERE / "studies" / f"{step}-{stream}.toml"


# -- what is tried ----------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", PAPERS)
def test_all_systems_and_controls_are_compared(stream):
    assert {system.method for system in systems(stream)} == set(METHODS)
    alone = [system.name for system in systems(stream) if not system.size]
    assert alone == [tables.REFERENCE, "bocl-printed"]


@pytest.mark.parametrize("stream", PAPERS)
def test_every_system_tries_as_many_settings_and_none_twice(stream):
    for system in systems(stream):
        assert len(set(tries(system))) == 8, system.name
        assert set(RECIPE) <= {override.partition("=")[0].removeprefix("recipe.") for override in tries(system)[0]}, (
            system.name
        )
        for name in ("step", "schedule", "average", "decay", "epochs"):
            assert len(system.lists[name]) > 1, (system.name, name)
        assert len({value.split()[0] for value in system.lists["step"]}) == 2, "two optimisers"


def test_tries_share_out_their_lists_evenly_and_begin_with_the_first_value():
    for count, values in ((8, "abc"), (8, "abcdefgh"), (8, "ab"), (5, "abcdefgh"), (1, "ab")):
        columns = [shared_out(values, count, seed) for seed in range(20)]
        for column in columns:
            assert column[0] == "a"
            assert len(column) == count
            assert max(Counter(column).values()) - min(Counter(column).values()) <= 1
        assert len(set(map(tuple, columns))) > 1 or count == 1
        assert columns[3] == shared_out(values, count, 3)


@pytest.mark.parametrize("stream", PAPERS)
def test_the_studies_of_tries_are_what_the_lists_say(stream):
    assert study_file(stream).read_text(encoding="utf-8") == tries_study(systems(stream)), (
        "run `python -m replication.evaluation tries`, but never once there are runs"
    )


@pytest.mark.parametrize("stream", PAPERS)
def test_tries_are_on_a_seed_of_their_own_and_leave_validation_samples_out(stream):
    wanted = jobs([load_study(str(study_file(stream)))])
    assert {job.seed for job in wanted} == {tuning_seed()}
    assert tuning_seed() not in numbers(stream)["seeds"]
    assert not any(job.config.recipe.use_validation for job in wanted)
    for job in wanted:
        config = job.config
        assert config.stream.name == stream
        assert config.stream.tasks in (10, numbers(stream)["few"])
        assert stream != "split-cifar100" or config.stream.arguments == {"class_order": "drawn"}
        if config.method != "gem":
            common = ("batch_size", "augment", "precision", "average_share", "patience")
            assert {name: getattr(config.recipe, name) for name in common} == {
                name: getattr(wanted[0].config.recipe, name) for name in common
            }


def test_what_independent_networks_store_is_what_the_caps_say():
    for stream in (*PAPERS, "digits"):
        (system,) = (one for one in systems(stream) if one.name == "independent")
        assert stored(system.config(tries(system, 1)[0])) == numbers(stream)["independent"]


# -- the best of them -------------------------------------------------------------------------------


def test_the_best_is_the_most_accurate_and_of_equals_the_smallest_and_earliest():
    def one(*validation: float, parameters: int = 10):
        return {"validation": validation or None, "parameters": parameters}

    assert best([one(0.5, 0.7), one(0.9, 0.5), one(0.6, 0.7)]) == 1
    assert best([one(), one(0.1), one()]) == 1
    assert best([one(0.5, parameters=9), one(0.5, parameters=8), one(0.4, parameters=1)]) == 1
    assert best([one(0.5), one(0.5)]) == 0
    assert best([one(), one()]) is None


# -- sizes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["sn", "hat", "packnet", "supsup", "pgn", "frozen", "independent"])
def test_a_system_is_brought_to_a_size_by_counting(method):
    (system,) = (one for one in systems("digits") if one.name == method)
    config = system.config(tries(system, 1)[0])
    for parameters in (4_000, 12_000):
        found = system.config([*tries(system, 1)[0], *sized(config, system.size, parameters)])
        assert stored(found) == pytest.approx(parameters, rel=0.05)
    twice = system.config([*tries(system, 1)[0], *sized(config, system.size, 12_000, seen=2.0)])
    assert stored(twice) == pytest.approx(6_000, rel=0.05)


def test_what_no_widths_bring_to_a_size_stays_as_it_is():
    (system,) = (one for one in systems("digits") if one.name == "independent")
    config = system.config(tries(system, 1)[0])
    assert sized(config, system.size, 500) == ()  # less than the heads of three tasks at a width of 1


# -- the whole, rehearsed ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    """Every step on the digits, with a few systems and two tries of each."""
    place = tmp_path_factory.mktemp("evaluation")
    of = [system for system in systems("digits") if system.name in SOME]

    def make(step: str, text: str, records: str) -> None:
        file = place / "studies" / f"{step}-digits.toml"
        write(file, text)
        failed = run_jobs(
            jobs([load_study(str(file))]),
            place / "runs",
            InThisProcess(),
            records=place / records,
            data=None,
            command="",
            tell=lambda _: None,
        )
        assert not failed

    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(Path(__file__).parents[2])
        make("tries", tries_study(of, 2), "tried")
        found = scored(of, place / "tried", 2)
        write(place / "tries" / "digits.json", json.dumps(found))
        make("own", own_study(of, place), "results")
        make("equal", equal_study(of, place), "results")
    return place, of


def test_a_choice_reads_validation_samples_alone(rehearsal, monkeypatch):
    place, of = rehearsal
    before = scored(of, place / "tried", 2)

    def without_test(run):
        found = summarise(run)
        return replace(found, tasks=tuple(replace(task, row=(0.0,) * len(task.row)) for task in found.tasks))

    monkeypatch.setattr("bocl.engines.studies.summarise", without_test)
    assert scored(of, place / "tried", 2) == before == results_of_tries(place, "digits")
    for system in of:
        validation = [fmean(one["validation"]) for one in before[system.name]["tries"]]
        assert fmean(chosen(system, place)["validation"]) == max(validation)


def test_a_try_without_a_record_of_its_settings_is_missing_unless_it_broke_down(rehearsal, tmp_path):
    place, of = rehearsal
    with pytest.raises(SystemExit, match=r"digits: \d+ tries have no record .*bocl-try-2, .*; run them"):
        scored(of, place / "tried", 3)
    tried = tmp_path / "tried"
    shutil.copytree(place / "tried", tried)
    name = "digits/sn-try-1-seed-100.jsonl"
    (tried / name).unlink()
    with (tried / PARTS).open("a") as file:
        file.write(json.dumps({"failed": {name: "the worker was lost"}}) + "\n")
    with pytest.raises(SystemExit, match="1 tries have no record"):
        scored(of, tried, 2)
    with (tried / PARTS).open("a") as file:
        file.write(json.dumps({"failed": {name: "task 'a': the loss was not finite"}}) + "\n")
    assert scored(of, tried, 2)["sn"]["tries"][1]["validation"] is None
    shutil.copy(tried / "digits/sn-try-0-seed-100.jsonl", tried / "digits/wsn-try-0-seed-100.jsonl")
    with pytest.raises(SystemExit, match="wsn-try-0"):  # a journal of other settings is none
        scored(of, tried, 2)


def test_a_system_whose_tries_all_broke_down_has_a_row_and_no_runs(rehearsal, tmp_path):
    place, of = rehearsal
    found = results_of_tries(place, "digits")
    for one in found["sn"]["tries"]:
        one["validation"] = None
    write(tmp_path / "tries" / "digits.json", json.dumps(found))
    assert "| `sn` | 0 of 2 |" in tables.tried_table("digits", tmp_path)
    text = own_study(of, tmp_path)
    assert '"wsn"' in text
    assert '"sn"' not in text


def test_the_size_of_bocl_takes_all_of_the_first_seeds(tmp_path):
    with pytest.raises(SystemExit, match="bocl has no finished run of seed 200, 201"):
        reference_size("digits", tmp_path)


def test_a_row_lacking_a_seed_says_so_and_has_no_verdict(rehearsal, tmp_path):
    place, _ = rehearsal
    shutil.copytree(place / "results", tmp_path / "results")
    (tmp_path / "results/digits/wsn-seed-201.jsonl").unlink()
    (row,) = (line for line in tables.results_table("digits", tmp_path).splitlines() if line.startswith("| `wsn`"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[1] == "1 of 2"
    assert cells[3:5] == ["", ""]


def test_published_runs_have_the_best_settings_other_seeds_and_all_samples(rehearsal):
    place, of = rehearsal
    runs = [summarise(run) for run in find_runs(place / "results")]
    by_name = {system.name: system for system in of}
    assert {name_of(run) for run in runs} == {*SOME, *(f"{name}-equal" for name in SOME)} - {"fixed", "bocl-equal"}
    for run in runs:
        system = by_name[name_of(run).removesuffix("-equal")]
        assert run.seed in numbers("digits")["seeds"]
        assert run.config["recipe"]["use_validation"]
        asked = system.config([*chosen(system, place)["settings"], ALL_SAMPLES]).recipe
        assert {name: run.config["recipe"][name] for name in RECIPE} == {name: getattr(asked, name) for name in RECIPE}
    assert first_seeds("digits") == (200, 201)


def test_equal_sizes_are_equal(rehearsal):
    place, _ = rehearsal
    parameters = reference_size("digits", place)
    equal = [run for run in map(summarise, find_runs(place / "results")) if name_of(run).endswith("-equal")]
    for run in equal:
        share = run.tasks[-1].stored / parameters
        assert 0.95 < share < 1.05 or (name_of(run) == "fixed-equal" and 0.9 < share <= 1)  # units are few here


def test_tables_tell_what_runs_came_to(rehearsal):
    place, _ = rehearsal
    rows = {
        row.split("`")[1]: [cell.strip() for cell in row.split("|")[1:-1]]
        for row in tables.results_table("digits", place, equal=True).splitlines()
        if row.startswith("| `")
    }
    found = tables.runs(place)
    assert set(rows) == set(SOME)
    wsn, bocl = found["digits", "wsn-equal"], found["digits", "bocl"]
    gains = [wsn[seed].figures()["accuracy"] - bocl[seed].figures()["accuracy"] for seed in (200, 201)]
    quantile = student.ppf(1 - 0.05 / (2 * (len(systems("digits")) - 1)), 1)
    half = quantile * stdev(gains) / sqrt(2)
    assert rows["wsn"][3] == f"{100 * fmean(gains):+.2f} ± {100 * half:.2f}"
    assert rows["bocl"][3:5] == ["", ""]
    masks = fmean(sum(task.parameters["masks"] for task in run.tasks) for run in wsn.values())
    assert rows["wsn"][6] == f"{masks:.0f}"
    own = tables.results_table("digits", place)
    assert "`fixed`" not in own
    assert "`sn`" in own
    tried = tables.tried_table("digits", place)
    assert f"2 of 2 | {100 * max(map(fmean, _validation(place, 'sn'))):.2f} %" in tried


def _validation(place: Path, system: str) -> list[list[float]]:
    return [one["validation"] for one in results_of_tries(place, "digits")[system]["tries"]]


def test_verdicts_are_of_whole_intervals():
    def verdict(mean: float, half: float) -> str:
        return tables.Difference(mean, half, 0.01).verdict

    assert verdict(0.02, 0.019) == "**ahead**"
    assert verdict(-0.02, 0.019) == "**behind**"
    assert verdict(0.002, 0.005) == "level"
    assert verdict(0.002, 0.009) == "open"
    assert verdict(0.02, 0.03) == "open"
    assert verdict(0.002, 0.001) == "**ahead**"  # though no difference that matters


def test_a_backward_transfer_is_0_only_if_no_task_changed():
    def run(*rows):
        return SimpleNamespace(tasks=[SimpleNamespace(row=row) for row in rows])

    assert tables.keeps_all(run((0.9,), (0.9, 0.8), (0.9, 0.8, 0.7)))
    assert not tables.keeps_all(run((0.9,), (0.9, 0.8), (0.91, 0.79, 0.7)))  # a mean of 0


def test_a_choice_at_the_end_of_its_list_is_told():
    values = ["a.x=1", "a.x=0.1", "a.x=10"]
    assert [tables.at_an_end(values, [value]) for value in values] == [False, True, True]
    assert not tables.at_an_end(["a.x=1", "a.x=2"], ["a.x=1"])
    assert not tables.at_an_end(["a.x=mean", "a.x=mode", "a.x=all"], ["a.x=all"])
    rates = ["o=sgd r=1", "o=sgd r=2", "o=sgd r=3", "o=adam r=1"]
    assert [tables.at_an_end(rates, value.split()) for value in rates] == [True, False, True, True]
    (cab,) = (system for system in systems("permuted-mnist") if system.name == "cab")
    told = {value: tables.at_an_end(cab.lists["step"], value.split()) for value in cab.lists["step"]}
    assert [value.split()[1].partition("=")[2] for value, end in told.items() if not end] == ["0.1"]
    (imm,) = (system for system in systems("permuted-mnist") if system.name == "imm")
    told = {value: tables.at_an_end(imm.lists["newest"], [value]) for value in imm.lists["newest"]}
    assert [value for value, end in told.items() if not end] == ["imm.newest=none", "imm.newest=0.5"]


# -- what is published ------------------------------------------------------------------------------


def test_the_tables_of_the_page_are_what_the_records_say():
    text = tables.PAGE.read_text(encoding="utf-8")
    assert filled(text, tables.tables()) == text, "run `python -m replication.evaluation.tables --write`"
    for name in tables.tables():
        assert f"<!-- {name} -->" in text


@pytest.mark.parametrize("stream", PAPERS)
@pytest.mark.parametrize(("step", "text"), [("own", own_study), ("equal", equal_study)])
def test_published_runs_are_those_of_the_best_tries_from_clean_commits(stream, step, text):
    file = study_file(stream, step)
    if not file.exists():
        pytest.skip("not chosen yet")
    assert file.read_text(encoding="utf-8") == text(systems(stream), HERE)
    for tried in results_of_tries(HERE, stream).values():
        assert not any(commit.endswith("-dirty") for commit in tried["commits"])
    wanted = {record_name(job): job for job in jobs([load_study(str(file))])}
    for name, by_seed in ((name, by_seed) for (of, name), by_seed in tables.runs(HERE).items() if of == stream):
        for seed, run in by_seed.items():
            job = wanted.get(f"{stream}/{name}-seed-{seed}.jsonl")
            if job is not None:
                assert recorded(job, HERE / "results") is not None, "its settings are others"
                assert not any(session.versions["commit"].endswith("-dirty") for session in run.sessions)
