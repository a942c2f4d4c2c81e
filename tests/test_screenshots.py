"""The pictures in docs/images: there, whole, small; how they get their palette."""

import struct

import numpy as np
import pytest

from tests.screenshots import BYTES_MAX, IMAGES, PICTURES, SCALE, quantised


@pytest.mark.parametrize("name", [picture[0] for picture in PICTURES])
def test_pictures_are_those_that_are_made(name: str) -> None:
    width, height = next(picture[1:3] for picture in PICTURES if picture[0] == name)
    raw = (IMAGES / f"{name}.png").read_bytes()
    assert raw.startswith(b"\x89PNG\r\n\x1a\n")
    assert raw.endswith(b"IEND\xaeB`\x82")
    assert struct.unpack(">II", raw[16:24]) == (width * SCALE, height * SCALE)
    assert len(raw) <= BYTES_MAX


def test_no_picture_is_left_over() -> None:
    assert {path.name for path in IMAGES.glob("*.png")} == {f"{one[0]}.png" for one in PICTURES}


def test_few_colours_stay_as_they_are_and_many_come_near() -> None:
    few = np.array([[1, 2, 3], [200, 0, 9], [1, 2, 3]], np.uint8)
    palette, numbers = quantised(few)
    assert palette[numbers].tolist() == few.tolist()
    ramp = np.stack([np.arange(1000) % 256, np.arange(1000) // 4, np.zeros(1000)], 1)
    many = np.vstack([ramp.astype(np.uint8)] + [few] * 5)
    palette, numbers = quantised(many)
    assert len(palette) == 256
    assert palette[numbers][1000:].tolist() == few.tolist() * 5  # what occurs most is exact
