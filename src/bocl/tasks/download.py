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
    import pooch
    import requests

    queue = list(mirrors)
    for address in queue:
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
            was_cut = isinstance(error, requests.exceptions.ChunkedEncodingError)
            if was_cut and address not in queue[len(mirrors) :]:
                queue.append(address)
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
    import requests

    if isinstance(error, requests.exceptions.InvalidSchema):  # no adapter is there for the address
        return "not encrypted: https alone is used"
    if isinstance(error, requests.RequestException):
        return type(error).__name__ if error.response is None else f"answered {error.response.status_code}"
    return "the file has the wrong hash" if type(error) is ValueError else str(error)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Keep pooch's running commentary out of the way; the progress bar and the errors say enough."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
