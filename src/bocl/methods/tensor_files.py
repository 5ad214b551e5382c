"""Tensors as the bytes of a safetensors file that says what it is and of which format."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from bocl.errors import DamagedError, FolderError
from bocl.records.files import write_whole
from bocl.records.record import StoredFile


def pack(tensors: Mapping[str, Tensor], about: str) -> bytes:
    """Return the file of these tensors; ``about`` is what it says of itself, such as ``round, format 2``."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
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
    return StoredFile(place, len(data), hashlib.sha256(data).hexdigest())


def describe_file(folder: Path, place: str) -> StoredFile:
    """Return what names a file that is there."""
    data = (folder / place).read_bytes()
    return StoredFile(place, len(data), hashlib.sha256(data).hexdigest())


def read_stored(folder: Path, stored: StoredFile) -> bytes:
    """Return the bytes of a file that is as it was when it was recorded; its size is looked at first."""
    path = folder / stored.file
    way_out = "restore it from a copy, or start again in another folder"
    try:
        size = path.stat().st_size
        if size != stored.bytes:
            raise DamagedError(f"{path} is damaged: it has {size} bytes, recorded were {stored.bytes}; {way_out}")
        data = path.read_bytes()
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror}; {way_out}") from error
    if hashlib.sha256(data).hexdigest() != stored.sha256:
        raise DamagedError(f"{path} is damaged: its hash is not the one recorded; {way_out}")
    return data


def read_tensors(folder: Path, stored: StoredFile) -> dict[str, Tensor]:
    """Return the tensors of a file that is as it was when it was recorded."""
    return unpack(read_stored(folder, stored), folder / stored.file)
