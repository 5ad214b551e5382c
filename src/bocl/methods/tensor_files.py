"""Tensors as the bytes of a safetensors file that says what it is and of which format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.numpy import save  # the one for tensors makes two types per size in bytes, which are never freed
from safetensors.torch import load
from torch import Tensor

from bocl.errors import FolderError
from bocl.records.files import describe, read_stored, write_whole
from bocl.records.record import StoredFile


def pack(tensors: Mapping[str, Tensor], about: str) -> bytes:
    """Return the file of these tensors; ``about`` is what it says of itself, such as ``round, format 2``."""
    plain = {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in tensors.items()}
    return save(plain, metadata={"bocl": about})


def unpack(data: bytes, path: Path) -> dict[str, Tensor]:
    """Return the tensors in a file's bytes; ``path`` is for messages."""
    try:
        return load(data)
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise FolderError(f"{path} cannot be read as tensors: {reason}") from error


def write_tensors(folder: Path, place: str, tensors: Mapping[str, Tensor], about: str) -> StoredFile:
    """Write tensors to a place in a run's folder and return what names them."""
    data = pack(tensors, about)
    write_whole(folder / place, data)
    return describe(place, data)


def read_tensors(folder: Path, stored: StoredFile) -> dict[str, Tensor]:
    """Return the tensors of a file that is as it was when it was recorded."""
    return unpack(read_stored(folder, stored), folder / stored.file)
