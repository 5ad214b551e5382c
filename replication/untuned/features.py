"""Texts, sounds, movements and small images as numbers, by rules that are fitted to nothing."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
FARTHEST = 10.0  # standard deviations
WINDOW, STEP = 128, 64  # samples of a phone's sensors: 2.56 s, each half over the one before
SOUND, FRAME, HOP, BANDS = 2000, 512, 248, 20  # samples of sound: 0.25 s, 64 ms, 31 ms
QUIET = 0.01  # root mean square of full scale


def standardised(train: Floats, test: Floats) -> tuple[Floats, Floats]:
    """Return both parts with every feature at 0 ± 1 in the first, and nothing beyond ``FARTHEST``."""
    mean, std = train.mean(axis=0), train.std(axis=0)
    std = np.where(std > 0, std, 1.0)
    first, second = (np.clip((part - mean) / std, -FARTHEST, FARTHEST) for part in (train, test))
    return first, second


def padded(features: NDArray[Any], width: int) -> NDArray[Any]:
    """Return (n, width): the features, then zeros."""
    return np.pad(features, ((0, 0), (0, width - features.shape[1])))


def hashed_words(texts: Sequence[str], bins: int) -> Floats:
    """Return (n, bins): every word adds ±(1 + log count) to a bin that its hash names; rows of length √bins."""
    rows = np.zeros((len(texts), bins))
    for row, text in zip(rows, texts, strict=True):
        for word, count in Counter(re.findall(r"[a-z0-9]{2,}", text.lower())).items():
            place, sign = _place(word)
            row[place % bins] += sign * (1 + np.log(count))
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Floats = np.sqrt(bins) * rows / np.where(lengths > 0, lengths, 1.0)
    return scaled


@cache
def _place(word: str) -> tuple[int, int]:
    number = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest(), "big")
    return number >> 1, 1 - 2 * (number & 1)


def movements(sensors: Floats) -> Floats:
    """Return (windows, 60) of sensors (6, n).

    Ten of each sensor: mean, deviation, least, most, and the log of the power in six bands of frequency, each twice as
    wide as the one before.
    """
    count = max(0, (sensors.shape[1] - WINDOW) // STEP + 1)
    if count == 0:
        return np.zeros((0, 60))
    windows = np.stack([sensors[:, STEP * at : STEP * at + WINDOW] for at in range(count)])  # (windows, 6, WINDOW)
    power = np.abs(np.fft.rfft(windows * np.hanning(WINDOW), axis=2)) ** 2
    edges = (1, 2, 4, 8, 16, 32, 65)
    bands = [np.log(power[:, :, low:high].mean(axis=2) + 1e-6) for low, high in pairwise(edges)]
    told = [windows.mean(axis=2), windows.std(axis=2), windows.min(axis=2), windows.max(axis=2), *bands]
    return np.stack(told, axis=2).reshape(count, -1)


def spectra(sound: Floats) -> Floats:
    """Return (windows, 140) of a sound (n,): log power in 20 bands, equal in mel, of 7 frames, less its mean.

    Quiet windows are left out. Without the mean, the level of a recording does not tell.
    """
    windows = sound[: len(sound) // SOUND * SOUND].reshape(-1, SOUND)
    windows = windows[np.sqrt((windows**2).mean(axis=1)) > QUIET]
    starts = range(0, SOUND - FRAME + 1, HOP)
    frames = np.stack([windows[:, at : at + FRAME] for at in starts], axis=1)
    power = np.abs(np.fft.rfft(frames * np.hanning(FRAME), axis=2)) ** 2  # (windows, frames, FRAME / 2 + 1)
    hertz = np.linspace(0, 4000, power.shape[2])
    band = np.minimum(BANDS * np.log1p(hertz / 700) / np.log1p(4000 / 700), BANDS - 1).astype(int)
    summed = np.stack([power[:, :, band == number].mean(axis=2) for number in range(BANDS)], axis=2)
    logs: Floats = np.log(summed + 1e-6).reshape(len(windows), len(starts) * BANDS)
    told: Floats = logs - logs.mean(axis=1, keepdims=True)
    return told


def small_images(images: NDArray[np.uint8]) -> Floats:
    """Return (n, 8, 8) in 0 … 1 of images (n, 28, 28): framed by two zeros, then means of 4 x 4."""
    framed = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    means: Floats = framed.reshape(-1, 8, 4, 8, 4).mean(axis=(2, 4)) / 255
    return means
