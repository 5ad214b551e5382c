"""Training images, changed at random whenever they are shown: mirrored, and moved by a few pixels.

What happens to every image is drawn on the host for a whole epoch. So it depends on nothing but the seed, and a
captured step, which reads it from the device, does the same as any other.
"""

from __future__ import annotations

import torch
from torch import Tensor

from bocl.errors import InputError
from bocl.training.recipe import Augment

MOST_SHIFT = 8  # an image is moved by at most one part in so many of its height and width


def check_images(augment: Augment, shape: torch.Size) -> None:
    """Refuse to change samples (n, *shape) that are no images."""
    if augment != "off" and len(shape) != 4:
        raise InputError(
            f"recipe.augment is {augment}, which changes images, channels first; these samples have the shape "
            f"{tuple(shape[1:])}, so leave it out"
        )


def draw_changes(augment: Augment, order: Tensor, shape: torch.Size, generator: torch.Generator) -> Tensor | None:
    """Return what is done to each image of ``order`` (steps, batch): (steps, batch, 3), or None where nothing is.

    The three are: 1 where it is mirrored, rows by which it moves up, columns by which it moves left.

    shape  of the samples, (n, C, H, W)
    """
    if augment == "off":
        return None
    limits = [size // MOST_SHIFT if "shift" in augment else 0 for size in shape[2:]]
    drawn = [
        torch.randint(2 if "flip" in augment else 1, order.shape, generator=generator),
        *(torch.randint(-most, most + 1, order.shape, generator=generator) for most in limits),
    ]
    return torch.stack(drawn, dim=2)


def changed(x: Tensor, changes: Tensor) -> Tensor:
    """Return images x (n, C, H, W) after their changes (n, 3); where nothing is left to show, they are 0."""
    height, width = x.shape[2:]
    mirrored, up, left = changes.unsqueeze(2).unbind(1)  # (n, 1) each
    columns = torch.arange(width, device=x.device)
    rows = torch.arange(height, device=x.device) + up
    columns = torch.where(mirrored == 1, width - 1 - columns, columns) + left
    seen = ((rows >= 0) & (rows < height)).unsqueeze(2) & ((columns >= 0) & (columns < width)).unsqueeze(1)
    places = rows.clamp(0, height - 1).unsqueeze(2) * width + columns.clamp(0, width - 1).unsqueeze(1)
    taken = x.flatten(2).gather(2, places.flatten(1).unsqueeze(1).expand(-1, x.shape[1], -1))
    return taken.view_as(x) * seen.unsqueeze(1)
