"""Fetching one file from the first mirror that gives the right bytes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TIMEOUT = 30  # seconds without an answer
CHUNK = 1 << 16


def download(mirrors: Sequence[str], target: Path, known_hash: str, failures: list[str]) -> bool:
    """Try the mirrors in turn; return whether ``target`` is there now, and append why each mirror failed.

    The file appears under its name only when it is complete and has its hash. A transfer that was cut is tried
    once more after all mirrors had their turn.
    """
    cut: list[str] = []
    return _try_each(mirrors, target, known_hash, failures, cut) or _try_each(cut, target, known_hash, failures, [])


def _try_each(mirrors: Sequence[str], target: Path, known_hash: str, failures: list[str], cut: list[str]) -> bool:
    import pooch

    for address in mirrors:
        fetch = pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), chunk_size=CHUNK, timeout=TIMEOUT)
        try:
            with _quiet(pooch.get_logger()):
                pooch.retrieve(address, known_hash, fname=target.name, path=target.parent, downloader=fetch)
        except (OSError, ValueError) as error:  # the network, the disk, and pooch's word for a wrong hash
            failures.append(f"{address}: {_reason(error)}")
            if type(error).__name__ == "ChunkedEncodingError":  # requests' word for an answer that ends too soon
                cut.append(address)
        else:
            return True
    return False


def _reason(error: Exception) -> str:
    """Return one short line: what the libraries say spans several, with the address again."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"answered {response.status_code}"
    if type(error) is ValueError:
        return "the file has the wrong hash"
    if type(error).__module__.startswith("requests"):
        return type(error).__name__
    return str(error)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Keep pooch's running commentary out of the way; the progress bar and the errors say enough."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
