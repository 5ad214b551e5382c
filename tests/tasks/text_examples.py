"""A tokenizer of a few words, as its file holds it; a library that reads it where the real one is missing; texts."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import nn

from bocl.networks.library import make_network

OPEN, CLOSE = 2, 3  # the tokens before and after every text
WORDS = ("good", "bad", "red", "blue", "film", "song", "the", "a")
IDS = {"[PAD]": 0, "[UNK]": 1, "[OPEN]": OPEN, "[CLOSE]": CLOSE, **{word: at for at, word in enumerate(WORDS, 4)}}
ENCODER = {"vocabulary": len(IDS), "width": 8, "layers": 2, "heads": 2, "inner": 12, "positions": 8}
LIKED = (["the good film", "a bad song", "good", "bad bad film"] * 10, ["yes", "no"] * 20)
COLOURS = (["red song", "the blue film", "a red red film", "blue"] * 10, ["red", "blue"] * 20)


def encoder(**changes: Any) -> nn.Module:
    """Return a small text encoder, the same every time."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return make_network("text-encoder", {**ENCODER, **changes})


def tokenizer_json(padding: Any = 0, **changes: Any) -> str:
    """Return a tokenizer.json: one token for every word, between one that opens a text and one that closes it.

    padding  the id that fills texts up; None: it is not said
    """
    special = {name: {"id": name, "ids": [IDS[name]], "tokens": [name]} for name in ("[OPEN]", "[CLOSE]")}
    opening, closing = ({"SpecialToken": {"id": name, "type_id": 0}} for name in special)
    single = [opening, {"Sequence": {"id": "A", "type_id": 0}}, closing]
    filled = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None}
    facts = {
        "version": "1.0",
        "truncation": {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0},
        "padding": None if padding is None else {**filled, "pad_id": padding, "pad_type_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": single,
            "pair": [*single, {"Sequence": {"id": "B", "type_id": 0}}],
            "special_tokens": special,
        },
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": IDS, "unk_token": "[UNK]"},
    }
    return json.dumps({**facts, **changes})


def tokenizer_file(folder: Path, **changes: Any) -> Path:
    """Write a tokenizer.json to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(tokenizer_json(**changes), encoding="utf-8")
    return folder / "tokenizer.json"


def made_up_tokenizers() -> ModuleType:
    """Return a module that reads these files as the library `tokenizers` does."""

    def from_str(content: str) -> Any:
        model = json.loads(content)["model"]
        if model["type"] != "WordLevel":
            raise Exception(f"unknown\nmodel {model['type']}")  # as plain as the library's
        vocabulary = model["vocab"]

        def encoded(text: str) -> Any:
            words = [vocabulary.get(word, vocabulary["[UNK]"]) for word in re.findall(r"\w+|[^\w\s]+", text)]
            return SimpleNamespace(ids=[OPEN, *words, CLOSE])

        return SimpleNamespace(
            encode_batch=lambda texts: [encoded(text) for text in texts],
            no_padding=lambda: None,
            no_truncation=lambda: None,
        )

    module = ModuleType("tokenizers")
    module.Tokenizer = SimpleNamespace(from_str=from_str)  # type: ignore[attr-defined]
    return module
