"""The frame of a page: nothing is loaded, nothing runs."""

from __future__ import annotations

import re

import pytest

from dlv.report.curves_page import _STYLE, POLICY, page


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
    light_part, dark_part = _STYLE.split("@media (prefers-color-scheme: dark)")
    colours = _colours(dark_part if dark else light_part)
    assert _contrast(colours["ink"], colours["page"]) >= 7
    for name in ("soft", *(f"c{i}" for i in range(8))):
        assert _contrast(colours[name], colours["page"]) >= 4.5, name


def test_nothing_is_asked_of_a_network() -> None:
    text = "\n".join(page("<b>a", "b & c", [["<p>x</p>"]]))
    assert "<title>&lt;b&gt;a</title>" in text
    assert "b &amp; c" in text
    assert POLICY in text
    assert not re.search(r"https?:|src=|url\(|<script|@import", text)
