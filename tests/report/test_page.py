"""The frame of a page: nothing is loaded, nothing runs."""

from __future__ import annotations

import re

import pytest

from dlv.report.markup import Html
from dlv.report.page import Section, page, policy, script, style


def _colours(block: str) -> dict[str, str]:
    return dict(re.findall(r"--([\w]+): (#[0-9a-f]+)", block))


def _light(colour: str) -> float:
    """Relative luminance, as WCAG defines it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * sign for sign in colour[1:])
    channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_light(one), _light(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_contrasts_are_enough_for_weak_eyes(dark: bool) -> None:
    light_part, dark_part, *_ = style().split("@media (prefers-color-scheme: dark)")
    colours = _colours(dark_part if dark else light_part)
    assert _contrast(colours["ink"], colours["page"]) >= 7
    words = ("soft", "accent", "good", "bad", "warn", "other")
    for name in (*words, *(f"c{i}" for i in range(8))):
        assert _contrast(colours[name], colours["page"]) >= 4.5, name


_SEEN = {  # what is left of linear red, green and blue (Machado 2009, complete)
    "deuteranopia": (0.367, 0.861, -0.228, 0.280, 0.673, 0.047, -0.012, 0.043, 0.969),
    "protanopia": (0.152, 1.053, -0.205, 0.115, 0.786, 0.099, -0.004, -0.048, 1.052),
}


def _lab(linear: list[float]) -> tuple[float, float, float]:
    r, g, b = (min(1.0, max(0.0, c)) for c in linear)
    xyz = (
        (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.9505,
        0.2126 * r + 0.7152 * g + 0.0722 * b,
        (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.089,
    )
    x, y, z = (c ** (1 / 3) if c > 0.008856 else 7.787 * c + 16 / 116 for c in xyz)
    return 116 * y - 16, 500 * (x - y), 200 * (y - z)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("eyes", ["all", *_SEEN])
def test_lines_can_be_told_apart(eyes: str, dark: bool) -> None:
    """Any two colors of lines differ well, for color-blind eyes, too."""
    light_part, dark_part, *_ = style().split("@media (prefers-color-scheme: dark)")
    colours = _colours(dark_part if dark else light_part)
    labs = []
    for number in range(8):
        digits = colours[f"c{number}"][1:]
        channels = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        if eyes in _SEEN:
            m = _SEEN[eyes]
            linear = [sum(m[3 * row + i] * linear[i] for i in range(3)) for row in range(3)]
        labs.append(_lab(linear))
    apart = {
        (i, j): sum((a - b) ** 2 for a, b in zip(labs[i], labs[j], strict=True)) ** 0.5
        for i in range(8)
        for j in range(i)
    }
    assert min(apart.values()) > 15, min(apart, key=lambda pair: apart[pair])


def test_nothing_is_asked_of_a_network() -> None:
    text = page("<b>a", "b & c", "dlv desc '<i>'", [Section("x", Html("<p>x</p>"))])
    assert "<title>&lt;b&gt;a</title>" in text
    assert "b &amp; c" in text
    assert "dlv desc &#x27;&lt;i&gt;&#x27;" in text
    assert policy() in text
    body = text.replace(script(), "").replace(style(), "")
    assert not re.search(r"https?:|src=|url\(|@import", body + style() + script())
    assert body.count("<script") == 1
