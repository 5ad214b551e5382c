"""Downloads a file from the first mirror that gives the right bytes."""

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
    """Try the mirrors in turn; return whether ``target`` now exists, and append to ``failures`` why each mirror failed.

    The file appears only when it is complete and has the right hash. A transfer that was cut off is tried once more
    after all other mirrors. A transfer of more than ``limit`` bytes is stopped.
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
        except (OSError, ValueError) as error:  # the network, the disk, or a wrong hash
            failures.append(f"{address}: {_reason(error)}")
            was_cut = isinstance(error, requests.exceptions.ChunkedEncodingError)
            if was_cut and address not in queue[len(mirrors) :]:
                queue.append(address)
        else:
            return True
    return False


def _fetch(address: str, place: Path, limit: int) -> None:
    """Write what an address sends. A redirect cannot leave SCHEMES, because the session has no adapter for others."""
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
    """Return one short line; the messages of the libraries have several, and repeat the address."""
    import requests

    if isinstance(error, requests.exceptions.InvalidSchema):  # the session has no adapter for the address
        return "not encrypted: only https is used"
    if isinstance(error, requests.RequestException):
        return type(error).__name__ if error.response is None else f"answered {error.response.status_code}"
    return "the file has the wrong hash" if type(error) is ValueError else str(error)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Hide pooch's messages; the progress bar and the errors say enough."""
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)
