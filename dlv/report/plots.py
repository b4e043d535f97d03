"""Small plots as SVG: points, lines and bars in a frame with axes; parallel coordinates."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from dlv.dataclass import dataclass
from dlv.report.courses import padded, ticks
from dlv.report.markup import Html, text
from dlv.terminal.table import cut, human_bytes

WIDTH, HEIGHT = 560.0, 280.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 16.0, 14.0, 40.0


@dataclass(frozen=True)
class Dot:
    """A point of a plot; `about` is told while hovering, `kind` 0 to 7 is its color."""

    x: float
    y: float
    about: str = ""
    kind: int = 0
    size: float = 4.0
    label: str = ""
    address: str | None = None


@dataclass(frozen=True)
class Axis:
    """What an axis measures; `unit` is how its numbers are written: "", bytes or percent."""

    title: str
    unit: str = ""

    def number(self, value: float) -> str:
        if self.unit == "bytes":
            return human_bytes(round(value))
        return f"{value:.4g}%" if self.unit == "percent" else f"{value:,.6g}"


def _share(value: float, span: tuple[float, float]) -> float:
    low, high = span
    wide = high / 2 - low / 2  # halves: no overflow
    return (value / 2 - low / 2) / wide if wide > 0 else 0.5


class _Frame:
    """Axes around the values."""

    def __init__(self, dots: Sequence[Dot], across: Axis, upwards: Axis) -> None:
        finite = [dot for dot in dots if math.isfinite(dot.x) and math.isfinite(dot.y)]
        xs, ys = [dot.x for dot in finite] or [0.0], [dot.y for dot in finite] or [0.0]
        self.dots = finite
        self.axes = across, upwards
        self.across = padded((min(xs), max(xs)), 0.04)
        self.upwards = padded((min(ys), max(ys)), 0.06)

    def x(self, value: float) -> float:
        return _LEFT + _share(value, self.across) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - _BOTTOM - _share(value, self.upwards) * (HEIGHT - _TOP - _BOTTOM)

    def drawn(self) -> Iterator[str]:
        across, upwards = self.axes
        bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
        for mark in ticks(self.upwards, 5):
            y = self.y(mark)
            yield f'<path class="grid" d="M{_LEFT} {y:.1f}H{right}"/>'
            yield _words(_LEFT - 6, y + 4, upwards.number(mark), "end")
        for mark in ticks(self.across, 5):
            x = self.x(mark)
            yield f'<path class="grid" d="M{x:.1f} {_TOP}V{bottom}"/>'
            yield _words(x, bottom + 15, across.number(mark))
        yield _words((_LEFT + right) / 2, HEIGHT - 6, across.title)
        yield _words(4, 11, upwards.title, "start")


def _words(x: float, y: float, words: str, anchor: str = "middle", kind: str = "") -> str:
    sort = f' class="{kind}"' if kind else ""
    return f'<text{sort} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{text(words)}</text>'


def _opened(title: str, width: float = WIDTH, height: float = HEIGHT) -> str:
    return (
        f'<svg class="plot" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}"'
        f' height="{height:.0f}" role="img" aria-label="{text(title)}">'
    )


def scatter(
    title: str,
    dots: Sequence[Dot],
    across: Axis,
    upwards: Axis,
    lines: Iterable[Sequence[tuple[float, float]]] = (),
) -> Html:
    """Points, and lines through other points; both make the frame."""
    courses = [list(line) for line in lines]
    frame = _Frame([*dots, *(Dot(x, y) for line in courses for x, y in line)], across, upwards)
    parts = [_opened(title), *frame.drawn()]
    for number, line in enumerate(courses):
        places = "L".join(f"{frame.x(x):.1f} {frame.y(y):.1f}" for x, y in line)
        parts.append(f'<path class="line c{number % 8}" d="M{places}"/>')
    parts += [_dot(frame, dot) for dot in dots if math.isfinite(dot.x) and math.isfinite(dot.y)]
    return Html("".join([*parts, "</svg>"]))


def _dot(frame: _Frame, dot: Dot) -> str:
    x, y = frame.x(dot.x), frame.y(dot.y)
    tooltip = f"<title>{text(dot.about)}</title>" if dot.about else ""
    place = f'cx="{x:.1f}" cy="{y:.1f}" r="{dot.size:g}"'
    mark = f'<circle class="mark c{dot.kind % 8}" {place}>{tooltip}</circle>'
    if dot.label:
        right = x > WIDTH * 0.7
        side, anchor = (x - 8, "end") if right else (x + 8, "start")
        mark += _words(side, y + 4, dot.label, anchor, "ink")
    return mark if dot.address is None else f'<a href="{text(dot.address)}">{mark}</a>'


def bars(title: str, rows: Sequence[tuple[str, float, str]], *, width: float = 640.0) -> Html:
    """A horizontal bar for each (name, value, how the value is written)."""
    if not rows:
        return Html("")
    most = max((value for _, value, _ in rows), default=0.0) or 1.0
    left = min(240.0, 16 + 6.4 * max(len(name) for name, *_ in rows))
    room, step = width - left - 110, 19.0
    parts = [_opened(title, width, step * len(rows) + 6)]
    for place, (name, value, shown) in enumerate(rows):
        y = 4 + place * step
        long = max(1.0, room * max(value, 0.0) / most)
        parts.append(
            f'<text class="ink" x="{left - 8:.1f}" y="{y + 11:.1f}" text-anchor="end">'
            f"{text(cut(name, 34))}<title>{text(name)}</title></text>"
            f'<rect class="bar" x="{left:.1f}" y="{y:.1f}" width="{long:.1f}" height="14" rx="2"/>'
            f'<text x="{left + long + 6:.1f}" y="{y + 11:.1f}">{text(shown)}</text>'
        )
    return Html("".join([*parts, "</svg>"]))


def histogram(title: str, edges: Sequence[float], counts: Sequence[float]) -> Html:
    """Counts between edges."""
    width, height, bottom = 320.0, 110.0, 18.0
    most, span = max(counts, default=0) or 1, (edges[0], edges[-1])
    parts = [_opened(title, width, height)]
    for low, high, count in zip(edges[:-1], edges[1:], counts, strict=True):
        x0, x1 = (8 + _share(edge, span) * (width - 16) for edge in (low, high))
        tall = (height - bottom - 6) * count / most
        parts.append(
            f'<rect class="bar" x="{x0:.1f}" y="{height - bottom - tall:.1f}"'
            f' width="{max(x1 - x0 - 0.6, 0.6):.1f}" height="{tall:.1f}">'
            f"<title>{count:,.0f} from {low:.4g} to {high:.4g}</title></rect>"
        )
    for at, edge, anchor in ((8.0, edges[0], "start"), (width - 8, edges[-1], "end")):
        parts.append(f'<text x="{at}" y="{height - 4}" text-anchor="{anchor}">{edge:.4g}</text>')
    return Html("".join([*parts, "</svg>"]))


def sparkline(values: Sequence[float], title: str = "") -> Html:
    """The course of a metric, as high as a line of text."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < 2:
        return Html("")
    span = padded((min(finite), max(finite)), 0.05)
    points = [
        f"{1 + 94 * place / (len(values) - 1):.1f} {17 - 16 * _share(value, span):.1f}"
        for place, value in enumerate(values)
        if math.isfinite(value)
    ]
    return Html(
        f'<svg class="spark" viewBox="0 0 96 18" role="img" aria-label="{text(title or "course")}">'
        f'<path d="M{"L".join(points)}"/></svg>'
    )


# Parallel coordinates


def parallel(
    title: str,
    rows: Sequence[tuple[str, Mapping[str, Any], float]],
    names: Sequence[str],
    metric: str,
    *,
    smaller: bool = True,
) -> Html:
    """A line for each (name, settings, value of the metric), the better ones stronger.

    Axes of numbers are linear, or logarithmic where they span a hundredfold; others have a place
    for each value.
    """
    shown = [row for row in rows if math.isfinite(row[2])]
    if len(shown) < 2 or not names:
        return Html("")
    width, height, top, bottom = max(560.0, 170.0 * (len(names) + 1)), 280.0, 40.0, 24.0
    scales = [_Scale([settings.get(name) for _, settings, _ in shown]) for name in names]
    scales.append(_Scale([value for *_, value in shown]))
    xs = [60 + place * (width - 120) / len(names) for place in range(len(names) + 1)]

    def y(scale: _Scale, value: Any) -> float:
        return height - bottom - scale.share(value) * (height - top - bottom)

    ordered = sorted(shown, key=lambda row: row[2] if smaller else -row[2])
    parts = [_opened(title, width, height)]
    for place, (name, settings, value) in reversed(list(enumerate(ordered))):
        points = [
            f"{x:.1f} {y(scale, item):.1f}"
            for x, scale, item in zip(
                xs, scales, [*(settings.get(key) for key in names), value], strict=True
            )
        ]
        kind = "line c1" if place == 0 else "line c0" + (" faint" if place >= 5 else "")
        told = ", ".join(f"{key} {settings.get(key)}" for key in names)
        parts.append(
            f'<path class="{kind}" d="M{"L".join(points)}">'
            f"<title>{text(f'{name}: {told}, {metric} {value:.5g}')}</title></path>"
        )
    for x, scale, name in zip(xs, scales, [*names, metric], strict=True):
        parts.append(f'<path class="axis" d="M{x:.1f} {top}V{height - bottom}"/>')
        parts.append(_words(x, 14, cut(name, 20), kind="ink"))
        for value, words in scale.marks():
            parts.append(
                f'<text x="{x + 5:.1f}" y="{y(scale, value) + 4:.1f}">{text(cut(words, 14))}</text>'
            )
    return Html(f'<div class="table">{"".join(parts)}</svg></div>')


class _Scale:
    """Where the values of one axis lie between 0 and 1."""

    def __init__(self, values: Sequence[Any]) -> None:
        known = [value for value in values if value is not None]
        self.numbers = bool(known) and all(
            isinstance(value, (int, float)) and not isinstance(value, bool) for value in known
        )
        if self.numbers:
            low, high = min(known), max(known)
            self.log = low > 0 and high / low >= 100
            self.span = padded(self._ends(low, high))
            self.ends = (low, high)
        else:
            self.words = sorted({str(value) for value in values})

    def _ends(self, low: float, high: float) -> tuple[float, float]:
        return (math.log10(low), math.log10(high)) if self.log else (low, high)

    def share(self, value: Any) -> float:
        if not self.numbers:
            return (self.words.index(str(value)) + 0.5) / len(self.words)
        if value is None:
            return 0.0
        return _share(math.log10(value) if self.log else value, self.span)

    def marks(self) -> list[tuple[Any, str]]:
        if not self.numbers:
            return [(word, word) for word in self.words[:12]]
        low, high = self.ends
        return (
            [(low, f"{low:.4g}"), (high, f"{high:.4g}")] if low != high else [(low, f"{low:.4g}")]
        )
