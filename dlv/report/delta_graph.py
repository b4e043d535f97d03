"""Which checkpoints are stored as deltas against which: lines as wide as the deltas are large."""

from __future__ import annotations

import math
from collections.abc import Mapping

from dlv.report.graph_layout import Size, layout
from dlv.report.markup import Html, text
from dlv.terminal.table import cut, human_bytes

WIDTH, HEIGHT, LETTERS = 150.0, 34.0, 20
MOST_WIDE = 12.0  # pixels of the largest delta


def svg(own: Mapping[str, float], lines: Mapping[tuple[str, str], float]) -> Html:
    """`own`: bytes in packs of each box; `lines`: of those, what is stored against another box."""
    linked = {name for edge in lines for name in edge}
    # What has nothing to do with any other stands in the table; here it would only take room.
    shown = {name: Size(WIDTH, HEIGHT) for name in own if name in linked}
    edges = _without_cycles(lines)
    places = layout(shown, list(edges))
    most = max(lines.values())
    parts = [
        f'<svg viewBox="0 0 {places.width:.0f} {places.height:.0f}" width="{places.width:.0f}"'
        f' height="{places.height:.0f}" role="img" aria-label="deltas between checkpoints">'
    ]
    for source, target, points in places.lines:
        there, back = lines.get((source, target), 0.0), lines.get((target, source), 0.0)
        size = there + back
        wide = max(1.0, MOST_WIDE * math.sqrt(size / most))
        course = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
        both = ((target, source, there), (source, target, back))
        tooltip = "; ".join(f"{a} against {b}: {human_bytes(round(n))}" for a, b, n in both if n)
        parts.append(
            f'<path class="flow" d="M{course}" stroke-width="{wide:.1f}">'
            f"<title>{text(tooltip)}</title></path>"
        )
    for name, box in places.boxes.items():
        parts.append(
            f'<g class="layer"><title>{text(name)}</title><rect x="{box.x:.1f}" y="{box.y:.1f}"'
            f' width="{box.width:.0f}" height="{box.height:.0f}" rx="4"/>'
            f'<text x="{box.x + 8:.1f}" y="{box.y + 14:.1f}">{text(cut(name, LETTERS))}</text>'
            f'<text class="shape" x="{box.x + 8:.1f}" y="{box.y + 27:.1f}">'
            f"{human_bytes(round(own[name]))}</text></g>"
        )
    label = 'tabindex="0" role="region" aria-label="deltas between checkpoints"'
    return Html(f'<div class="network deltas" {label}>{"".join(parts)}</svg></div>')


def _without_cycles(lines: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], None]:
    """The lines, each turned around where it would close a cycle with larger ones.

    Of two checkpoints each may be the base of some tensors of the other; only places depend on it.
    """
    edges: dict[tuple[str, str], None] = {}
    below: dict[str, set[str]] = {}

    def leads(start: str, end: str) -> bool:
        seen, ends = {start}, [start]
        while ends:
            for name in below.get(ends.pop(), ()):
                if name == end:
                    return True
                if name not in seen:
                    seen.add(name)
                    ends.append(name)
        return False

    for source, target in sorted(lines, key=lambda edge: -lines[edge]):
        if (target, source) in edges:
            continue
        edge = (target, source) if leads(target, source) else (source, target)
        edges[edge] = None
        below.setdefault(edge[0], set()).add(edge[1])
    return edges
