"""Fetching one file from the first mirror that gives the right bytes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

TIMEOUT = 30  # seconds without an answer
CHUNK = 1 << 16
SCHEMES = ("https://",)


def download(mirrors: Sequence[str], target: Path, known_hash: str, limit: int, failures: list[str]) -> bool:
    """Try the mirrors in turn; return whether ``target`` is there now, and append why each mirror failed.

    The file appears under its name only when it is complete and has its hash. A transfer that was cut is tried
    once more after all mirrors had their turn; one of more than ``limit`` bytes is broken off.
    """
    cut: list[str] = []
    return any(_try_each(each, target, known_hash, limit, failures, cut) for each in (mirrors, cut))


def _try_each(
    mirrors: Sequence[str], target: Path, known_hash: str, limit: int, failures: list[str], cut: list[str]
) -> bool:
    import pooch

    for address in list(mirrors):
        try:
            with _quiet(pooch.get_logger()):
                pooch.retrieve(
                    address,
                    known_hash,
                    fname=target.name,
                    path=target.parent,
                    downloader=lambda address, place, _: _fetch(address, Path(place), limit),
                )
        except (OSError, ValueError) as error:  # the network, the disk, and pooch's word for a wrong hash
            failures.append(f"{address}: {_reason(error)}")
            if type(error).__name__ == "ChunkedEncodingError":  # requests' word for an answer that ends too soon
                cut.append(address)
        else:
            return True
    return False


def _fetch(address: str, place: Path, limit: int) -> None:
    """Write what an address answers; a redirect cannot leave SCHEMES, because nothing is there to follow it."""
    import requests
    from tqdm import tqdm

    with requests.Session() as session:
        session.adapters.clear()
        for scheme in SCHEMES:
            session.mount(scheme, requests.adapters.HTTPAdapter())
        with session.get(address, stream=True, timeout=TIMEOUT) as answer, place.open("wb") as file:
            answer.raise_for_status()
            size = int(answer.headers.get("Content-Length", 0)) or None
            hidden = not sys.stderr.isatty()
            with tqdm(total=size, ncols=79, unit="B", unit_scale=True, disable=hidden) as progress:
                for chunk in answer.iter_content(CHUNK):
                    if file.tell() + len(chunk) > limit:
                        raise OSError(f"sends more than the {limit} bytes expected; do not trust it")
                    file.write(chunk)
                    progress.update(len(chunk))


def _reason(error: Exception) -> str:
    """Return one short line: what the libraries say spans several, with the address again."""
    response = getattr(error, "response", None)
    if response is not None:
        return f"answered {response.status_code}"
    if type(error) is ValueError:
        return "the file has the wrong hash"
    if type(error).__name__ == "InvalidSchema":  # requests' word for an address it may not follow
        return "not encrypted: https alone is used"
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
