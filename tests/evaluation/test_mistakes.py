"""Wrong predictions and their images."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.evaluation.mistakes import image_of
from dlv.report.gallery import gallery, png


@pytest.mark.parametrize(
    ("shape", "found"),
    [
        ((8, 8), (8, 8)),
        ((1, 8, 8), (8, 8)),
        ((8, 8, 1), (8, 8)),
        ((3, 16, 12), (16, 12, 3)),
        ((16, 12, 3), (16, 12, 3)),
        ((64,), None),
        ((2, 8, 8), None),
        ((3, 3), None),
        ((1, 500, 8), None),
    ],
)
def test_what_is_an_image(shape: tuple[int, ...], found: tuple[int, ...] | None) -> None:
    values = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    image = image_of(values)
    assert (None if image is None else image.shape) == found
    if image is not None:
        assert image.dtype == np.uint8
        assert (image.min(), image.max()) == (0, 255)


def test_values_that_are_no_numbers_are_no_image() -> None:
    assert image_of(np.full((8, 8), np.nan)) is None
    flat = image_of(np.full((8, 8), 3.0))
    assert flat is not None
    assert not flat.any()


@given(st.integers(1, 40), st.integers(1, 40), st.booleans(), st.integers(0, 2**32 - 1))
def test_pngs_hold_the_very_pixels(height: int, width: int, colors: bool, seed: int) -> None:
    pillow = pytest.importorskip("PIL.Image")
    shape = (height, width, 3) if colors else (height, width)
    image = np.random.default_rng(seed).integers(0, 256, shape, np.uint8)
    read = np.asarray(pillow.open(io.BytesIO(png(image))))
    assert np.array_equal(read, image)


def test_a_gallery_escapes_its_lines() -> None:
    html = gallery([(np.zeros((4, 4), np.uint8), "<b>", '"&')])
    assert "&lt;b&gt;" in html
    assert 'alt="&quot;&amp;"' in html
    assert gallery([]) == ""
