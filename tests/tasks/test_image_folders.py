"""Images in folders, one folder per class."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from bocl.errors import DataError, InputError
from bocl.tasks import pictures
from bocl.tasks.entries import find_entry, read_entry, read_inputs

GREY = np.arange(12, dtype=np.uint8).reshape(3, 4)  # 4 wide, 3 high
COLOUR = np.arange(36, dtype=np.uint8).reshape(3, 4, 3)


def picture(path: Path, pixels: np.ndarray, mode: str | None = None, **options) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path, **options)
    return path


def read(folder: Path):
    return read_entry(find_entry(folder))[0]


def refusal(folder: Path) -> str:
    with pytest.raises(InputError) as caught:
        read(folder)
    message = str(caught.value)
    assert "\n" not in message
    return message.replace(str(folder), "FILE")


def test_grey_images_have_one_channel(tmp_path):
    folder = tmp_path / "pets"
    picture(folder / "dog" / "b.png", GREY)
    picture(folder / "dog" / "a.bmp", GREY + 1)
    picture(folder / "cat" / "c.PNG", GREY + 2)
    picture(folder / ".hidden" / "d.png", COLOUR)
    (folder / "cat" / ".hidden").write_bytes(b"")
    parts = read(folder)
    inputs, labels = parts.train
    assert (inputs.dtype, labels, parts.validation, parts.test) == (np.uint8, ["cat", "dog", "dog"], None, None)
    np.testing.assert_array_equal(inputs, np.stack([GREY + 2, GREY + 1, GREY])[:, None])


def test_colour_images_have_three_channels_first(tmp_path):
    picture(tmp_path / "a" / "x" / "1.png", COLOUR)
    picture(tmp_path / "a" / "y" / "1.png", COLOUR[::-1].copy(), "RGBA")
    inputs, labels = read(tmp_path / "a").train
    np.testing.assert_array_equal(inputs, np.stack([COLOUR, COLOUR[::-1]]).transpose(0, 3, 1, 2))
    assert labels == ["x", "y"]


def test_a_picture_is_of_bytes_whatever_its_mode(tmp_path):
    black_and_white = np.eye(4, dtype=bool)[:3]
    picture(tmp_path / "a" / "x" / "1.png", black_and_white)
    picture(tmp_path / "a" / "x" / "2.png", GREY, "LA")
    inputs, _ = read(tmp_path / "a").train
    np.testing.assert_array_equal(inputs[:, 0], [255 * black_and_white, GREY])
    see_through = Image.fromarray(COLOUR).convert("P", palette=Image.Palette.ADAPTIVE)
    (tmp_path / "b" / "x").mkdir(parents=True)
    see_through.save(tmp_path / "b" / "x" / "1.png", transparency=bytes(range(12)))
    np.testing.assert_array_equal(read(tmp_path / "b").train[0][0], COLOUR.transpose(2, 0, 1))


def test_the_parts_may_be_given(tmp_path):
    for place, part in enumerate(("train", "validation", "test")):
        picture(tmp_path / "a" / part / "cat" / "1.png", GREY + place)
    parts = read(tmp_path / "a")
    found = [(int(inputs[0, 0, 0, 0]), labels) for inputs, labels in (parts.train, parts.validation, parts.test)]
    assert found == [(0, ["cat"]), (1, ["cat"]), (2, ["cat"])]


def test_classes_may_be_called_like_parts(tmp_path):
    for kind in ("train", "boat"):
        picture(tmp_path / "a" / kind / "1.png", GREY)
    assert read(tmp_path / "a").train[1] == ["boat", "train"]


def test_a_class_may_be_a_link_to_a_folder(tmp_path):
    picture(tmp_path / "elsewhere" / "1.png", GREY)
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "cat").symlink_to(tmp_path / "elsewhere")
    np.testing.assert_array_equal(read(tmp_path / "a").train[0], GREY[None, None])


def test_images_of_different_kinds_are_refused(tmp_path):
    picture(tmp_path / "a" / "cat" / "1.png", GREY)
    picture(tmp_path / "a" / "cat" / "2.png", GREY.T.copy())
    assert refusal(tmp_path / "a").startswith(
        "FILE/cat/2.png has 3 x 4 pixels in grey, but FILE/cat/1.png has 4 x 3 pixels in grey; bring all images to the"
    )
    picture(tmp_path / "a" / "cat" / "2.png", COLOUR)
    assert "FILE/cat/2.png has 4 x 3 pixels in colour, but FILE/cat/1.png has 4 x 3" in refusal(tmp_path / "a")


def test_pixels_of_sixteen_bits_are_refused_and_not_cut_off(tmp_path):
    picture(tmp_path / "a" / "cat" / "1.png", GREY.astype(np.uint16) * 4000)
    assert refusal(tmp_path / "a").startswith("FILE/cat/1.png has pixels of more than 8 bits (mode I;16); convert it")


def test_a_damaged_image_is_refused_by_name(tmp_path):
    path = picture(tmp_path / "a" / "cat" / "1.jpg", np.zeros((64, 64), np.uint8))
    whole = path.read_bytes()
    for content in (b"", b"text", whole[:10], whole[: len(whole) // 2]):
        path.write_bytes(content)
        assert refusal(tmp_path / "a").startswith("FILE/cat/1.jpg cannot be read as an image: ")


def test_an_image_that_unpacks_to_far_too_many_pixels_is_refused(tmp_path, monkeypatch):
    picture(tmp_path / "a" / "cat" / "1.png", np.zeros((50, 50), np.uint8))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert "FILE/cat/1.png cannot be read as an image: Image size (2500 pixels) exceeds" in refusal(tmp_path / "a")


def test_images_larger_than_the_memory_are_refused(tmp_path, monkeypatch):
    for name in "123":
        picture(tmp_path / "a" / "cat" / f"{name}.png", GREY)
    monkeypatch.setattr(pictures, "exceeds_memory", lambda size: "too much" if size == 36 else None)
    assert refusal(tmp_path / "a") == "3 images like FILE/cat/1.png take too much; give smaller ones, or fewer"


def test_a_format_that_another_program_would_read_is_refused(tmp_path, monkeypatch):
    from PIL import EpsImagePlugin

    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_args, **_options: pytest.fail("a program was run"))
    path = tmp_path / "a" / "cat" / "1.png"
    path.parent.mkdir(parents=True)
    Image.fromarray(COLOUR).save(path, format="EPS")
    assert refusal(tmp_path / "a").startswith("FILE/cat/1.png cannot be read as an image: cannot identify")


def test_what_is_no_image_is_refused_by_name(tmp_path):
    picture(tmp_path / "a" / "cat" / "1.png", GREY)
    (tmp_path / "a" / "cat" / "notes.txt").write_text("")
    assert refusal(tmp_path / "a").startswith("FILE/cat/notes.txt is not an image (.png, ")
    (tmp_path / "a" / "cat" / "notes.txt").unlink()
    (tmp_path / "a" / "cat" / "2.png").mkdir()
    assert refusal(tmp_path / "a") == "FILE/cat/2.png is not a file"
    entry = find_entry(tmp_path / "a")
    (tmp_path / "a" / "cat" / "2.png").rmdir()
    os.mkfifo(tmp_path / "a" / "cat" / "2.png")  # a pipe that comes after the folder was looked at
    with pytest.raises(DataError, match=r"2\.png is not a file"):
        read_entry(entry)


def test_folders_without_images_are_refused(tmp_path):
    (tmp_path / "a").mkdir()
    assert refusal(tmp_path / "a").startswith("FILE holds no folders of images; give one per class")
    (tmp_path / "a" / "cat").mkdir()
    assert refusal(tmp_path / "a") == "FILE holds no images in folders of its own, one per class"


def test_images_to_predict_for_are_all_those_under_a_folder(tmp_path):
    picture(tmp_path / "new" / "b.png", GREY)
    picture(tmp_path / "new" / "a" / "z.png", GREY + 1)
    picture(tmp_path / "new" / ".thumbnails" / "b.png", GREY[:2])
    (tmp_path / "new" / "notes.txt").write_text("")
    inputs, names = read_inputs(tmp_path / "new")
    assert (names, inputs[:, 0, 0, 0].tolist()) == (["a/z.png", "b.png"], [1, 0])
    (tmp_path / "none").mkdir()
    with pytest.raises(DataError, match=r"none holds no images \(\.png, "):
        read_inputs(tmp_path / "none")


def test_without_pillow_the_extra_is_named(tmp_path, monkeypatch):
    picture(tmp_path / "a" / "cat" / "1.png", GREY)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    assert refusal(tmp_path / "a") == (
        "FILE/cat/1.png is an image, which needs the extra 'images'; pip install 'bocl[images]'"
    )
