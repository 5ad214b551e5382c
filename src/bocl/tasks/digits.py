"""scikit-learn's embedded digits: 1,797 images (1, 8, 8), no download."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from bocl.seeding import seed_for
from bocl.tasks.images import LabelledImages, fingerprint_of, labelled_images
from bocl.tasks.partition import stratified_rows

BYTES_PER_STEP = 15  # the published values are whole numbers 0 … 16; times 15 they are exact bytes
TEST_IMAGES = 360


@lru_cache(maxsize=4)
def load_digits(seed: int = 0) -> LabelledImages:
    """Return the digits as bytes. They come without a test part, so the seed draws one of 360 images."""
    from sklearn.datasets import load_digits as load_published_digits

    published = load_published_digits()
    images = (published.images * BYTES_PER_STEP).astype(np.uint8)[:, None]  # (1797, 1, 8, 8)
    labels = published.target.astype(np.int64)
    kept, drawn = stratified_rows(labels, TEST_IMAGES, seed_for(seed, "test"))
    return labelled_images(
        "digits", (images[kept], labels[kept]), (images[drawn], labels[drawn]), fingerprint_of(images, labels)
    )
