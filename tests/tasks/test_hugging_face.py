"""Hugging Face datasets that were saved to disk."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bocl.errors import DataError, InputError
from bocl.tasks.entries import find_entry, read_entry, read_inputs

needs_datasets = pytest.mark.extras("datasets")
GREY = np.arange(12, dtype=np.uint8).reshape(3, 4)


@pytest.fixture
def datasets(tmp_path, monkeypatch):
    """Return the library, offline and with a cache of its own."""
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import datasets

    datasets.disable_progress_bars()
    return datasets


def saved(datasets, folder: Path, columns, features=None) -> Path:
    kinds = None if features is None else datasets.Features(features)
    datasets.Dataset.from_dict(columns, features=kinds).save_to_disk(folder)
    return folder


def png(pixels: np.ndarray, kind: str = "PNG") -> dict[str, bytes | None]:
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, kind)
    return {"bytes": content.getvalue(), "path": None}


def refusal(folder: Path, label: str | None = None) -> str:
    with pytest.raises(InputError) as caught:
        read_entry(find_entry(folder), label)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(folder), "FILE")


@needs_datasets
def test_columns_of_numbers_are_put_side_by_side(tmp_path, datasets):
    folder = saved(datasets, tmp_path / "a", {"height": [1.5, 2.5], "kind": ["cat", "dog"], "legs": [4, 2]})
    parts, columns = read_entry(find_entry(folder), "kind")
    assert (columns, parts.validation, parts.test) == (("height", "legs"), None, None)
    assert parts.train[0].tolist() == [[1.5, 4], [2.5, 2]]
    assert parts.train[1] == ["cat", "dog"]


@needs_datasets
def test_arrays_stay_of_their_type_and_class_labels_have_names(tmp_path, datasets):
    kinds = {"x": datasets.Array3D((1, 2, 2), "uint8"), "label": datasets.ClassLabel(names=["cat", "dog"])}
    pixels = np.arange(8, dtype=np.uint8).reshape(2, 1, 2, 2)
    folder = saved(datasets, tmp_path / "a", {"x": list(pixels), "label": [1, 0]}, kinds)
    parts, _ = read_entry(find_entry(folder))
    assert parts.train[0].dtype == np.uint8
    np.testing.assert_array_equal(parts.train[0], pixels)
    assert parts.train[1] == ["dog", "cat"]
    folder = saved(datasets, tmp_path / "b", {"x": [[1.0, 2.0], [3.0, 4.0]], "label": [1, 0]})
    assert read_entry(find_entry(folder))[0].train[0].tolist() == [[1, 2], [3, 4]]


@needs_datasets
def test_samples_to_predict_for_are_read_by_the_columns_of_the_task(tmp_path, datasets):
    folder = saved(datasets, tmp_path / "new", {"legs": [4, 2], "label": [0, 1], "height": [1.5, 2.5]})
    inputs, names = read_inputs(folder, ["height", "legs"])
    assert (inputs.tolist(), names) == ([[1.5, 4], [2.5, 2]], ["0", "1"])
    assert read_inputs(folder)[0].tolist() == [[4, 0, 1.5], [2, 1, 2.5]]
    with pytest.raises(DataError, match="new has no feature column 'colour' "):
        read_inputs(folder, ["colour"])
    datasets.DatasetDict({"test": datasets.load_from_disk(folder)}).save_to_disk(tmp_path / "splits")
    with pytest.raises(DataError, match="splits has the splits test; give the folder of one of them"):
        read_inputs(tmp_path / "splits", ["legs"])
    assert len(read_inputs(tmp_path / "splits" / "test", ["legs"])[0]) == 2


@needs_datasets
def test_images_are_bytes_with_channels_first(tmp_path, datasets):
    kinds = {"picture": datasets.Image(), "label": datasets.Value("int64")}
    colour = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)
    folder = saved(datasets, tmp_path / "a", {"picture": [png(colour), png(colour[::-1])], "label": [5, 3]}, kinds)
    inputs, labels = read_entry(find_entry(folder))[0].train
    np.testing.assert_array_equal(inputs, np.stack([colour, colour[::-1]]).transpose(0, 3, 1, 2))
    assert labels == [5, 3]
    folder = saved(datasets, tmp_path / "b", {"picture": [png(GREY)], "label": [5]}, kinds)
    np.testing.assert_array_equal(read_entry(find_entry(folder))[0].train[0], GREY[None, None])


@needs_datasets
def test_the_splits_of_a_dictionary_are_the_parts(tmp_path, datasets):
    splits = {
        "train": datasets.Dataset.from_dict({"a": [1.0, 2.0], "b": [0.0, 1.0], "label": [0, 1]}),
        "validation": datasets.Dataset.from_dict({"b": [7.0], "label": [1], "a": [3.0]}),
        "test": datasets.Dataset.from_dict({"a": [4.0], "b": [8.0], "label": [0]}),
    }
    datasets.DatasetDict(splits).with_format("numpy").save_to_disk(tmp_path / "a")
    parts, _ = read_entry(find_entry(tmp_path / "a"))
    found = [(inputs.tolist(), labels) for inputs, labels in (parts.train, parts.validation, parts.test)]
    assert found == [([[1, 0], [2, 1]], [0, 1]), ([[3, 7]], [1]), ([[4, 8]], [0])]


@needs_datasets
@pytest.mark.parametrize(
    ("splits", "fault"),
    [
        ({"test": {"a": [1.0], "label": [0]}}, "FILE has no split 'train'"),
        ({"train": {"a": [1.0], "label": [0]}, "extra": {"a": [1.0], "label": [0]}}, "FILE has a split 'extra'; "),
        ({"train": {"a": [1.0], "label": [0]}, "test": {"b": [1.0], "label": [0]}}, "FILE: the splits train and test "),
    ],
)
def test_wrong_splits_are_refused(tmp_path, datasets, splits, fault):
    made = {name: datasets.Dataset.from_dict(columns) for name, columns in splits.items()}
    datasets.DatasetDict(made).save_to_disk(tmp_path / "a")
    assert refusal(tmp_path / "a").startswith(fault)


@needs_datasets
@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"a": [1.0], "lable": [0]}, "FILE has no label column 'label' (did you mean 'lable'?)"),
        ({"label": [0]}, "FILE has no column besides the label's; "),
        ({"a": [1.0, 2.0], "label": [0, None]}, "FILE: row 1 has no label; fill it in"),
        ({"a": ["red"], "label": [0]}, "FILE: the column 'a' holds text or nothing in places"),
        ({"a": [[1.0], [1.0, 2.0]], "label": [0, 1]}, "FILE: the arrays in 'a' differ in shape"),
        ({"a": [[1.0], [2.0]], "b": [1, 2], "label": [0, 1]}, "FILE has more columns than the arrays in 'a'; "),
        ({"a": [{"b": 1}], "label": [0]}, "FILE: the column 'a' holds {'b': Value('int64')}, not numbers; "),
    ],
)
def test_wrong_columns_are_refused(tmp_path, datasets, columns, fault):
    assert refusal(saved(datasets, tmp_path / "a", columns)).startswith(fault)


@needs_datasets
def test_a_label_that_is_not_known_is_refused(tmp_path, datasets):
    kinds = {"a": datasets.Value("float32"), "label": datasets.ClassLabel(names=["cat", "dog"])}
    assert refusal(saved(datasets, tmp_path / "a", {"a": [1.0, 2.0], "label": [0, -1]}, kinds)).startswith(
        "FILE: row 1 has no label; "
    )


@needs_datasets
def test_wrong_images_are_refused_by_row(tmp_path, datasets):
    kinds = {"picture": datasets.Image(), "label": datasets.Value("int64")}

    def told(name, *pictures):
        columns = {"picture": list(pictures), "label": [0] * len(pictures)}
        return refusal(saved(datasets, tmp_path / name, columns, kinds))

    broken = {"bytes": b"text", "path": None}
    assert told("broken", png(GREY), broken).startswith("FILE: the image in row 1 of 'picture' cannot be read as an")
    assert "in row 1 of 'picture' has 3 x 4 pixels" in told("sizes", png(GREY), png(np.ascontiguousarray(GREY.T)))
    assert told("missing", png(GREY), None).startswith("FILE: the image in row 1 of 'picture' is not in the dataset; ")
    colour = np.zeros((3, 4, 3), np.uint8)
    assert told("program", png(colour, "EPS")).startswith("FILE: the image in row 0 of 'picture' cannot be read as an")
    columns = {"picture": [png(GREY)], "label": [0], "note": ["good"]}
    kinds["note"] = datasets.Value("string")
    assert "more columns than the images in 'picture'" in refusal(saved(datasets, tmp_path / "more", columns, kinds))


@needs_datasets
def test_an_image_that_is_only_an_address_is_not_fetched(tmp_path, datasets, monkeypatch):
    kinds = {"picture": datasets.Image(), "label": datasets.Value("int64")}
    Image.fromarray(GREY).save(tmp_path / "private.png")
    monkeypatch.setattr("datasets.arrow_writer.embed_table_storage", lambda table, **_options: table)
    folder = saved(datasets, tmp_path / "a", {"picture": [str(tmp_path / "private.png")], "label": [0]}, kinds)
    assert datasets.load_from_disk(folder)[0]["picture"].size == (4, 3)  # the library follows it
    assert refusal(folder).startswith("FILE: the image in row 0 of 'picture' is not in the dataset; ")


@needs_datasets
def test_a_damaged_dataset_is_refused(tmp_path, datasets):
    folder = saved(datasets, tmp_path / "a", {"a": [1.0], "label": [0]})
    before = find_entry(folder).sha256
    (data,) = folder.glob("*.arrow")
    whole = data.read_bytes()
    for content in (b"", b"text", whole[:100]):
        data.write_bytes(content)
        assert find_entry(folder).sha256 != before
        assert refusal(folder).startswith("FILE cannot be read as a dataset: ")
    data.write_bytes(whole)
    for name in ("state.json", "dataset_info.json"):
        content = (folder / name).read_bytes()
        (folder / name).write_text("{")
        assert refusal(folder).startswith("FILE cannot be read as a dataset: ")
        (folder / name).write_bytes(content)
    assert read_entry(find_entry(folder))[0].train[1] == [0]


@needs_datasets
def test_a_script_beside_a_dataset_is_not_run(tmp_path, datasets):
    folder = saved(datasets, tmp_path / "a", {"a": [1.0], "label": [0]})
    ran = tmp_path / "ran"
    (folder / "a.py").write_text(f"import pathlib\npathlib.Path({str(ran)!r}).write_text('')\n")
    facts = json.loads((folder / "dataset_info.json").read_text())
    (folder / "dataset_info.json").write_text(json.dumps({**facts, "builder_name": "a", "dataset_name": "a"}))
    assert read_entry(find_entry(folder))[0].train[0].tolist() == [[1.0]]
    assert not ran.exists()


def test_without_the_library_the_extra_is_named(tmp_path, monkeypatch):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "dataset_info.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert refusal(tmp_path / "a") == (
        "FILE is a Hugging Face dataset, which needs the extra 'datasets'; pip install 'bocl[datasets]'"
    )
