"""A network as SVG: a box for each layer, with operation, name, output shape and its parameters.

Text is cut to the width of its box, in a font whose letters are all equally wide, so that
nothing overlaps whatever layers are called.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from dlv.dataclass import dataclass
from dlv.network.drawing import operation_text
from dlv.network.graph import Network
from dlv.network.inference import Tensors
from dlv.network.likeness.comparison import Comparison
from dlv.network.sizes import text as shape_text
from dlv.network.summary import Row, summary
from dlv.report.graph_layout import Box, Layout, Size, layout, ranks_of
from dlv.report.markup import Html, text
from dlv.report.network_folding import Unit, folds
from dlv.terminal.table import width as text_width

WIDTH, HEIGHT = 200.0, 48.0
_LETTER, _SMALL, _TINY = 6.65, 6.05, 5.45  # widths of a letter of 11, 10 and 9 px
_SIGNS = {"added": "+", "removed": "−", "changed": "~", "renamed": ">", "stored": "="}

Address = Callable[[str], str | None]


@dataclass(frozen=True)
class _Card:
    """What a box says."""

    title: str
    name: str
    shape: str = ""
    share: float = 0.0  # of the parameters of the largest layer, by their logarithms
    kind: str = ""
    mark: str = ""
    about: str = ""


@dataclass(frozen=True)
class Sketch:
    """A network made ready for drawing: boxes with what they say, and lines between them."""

    cards: dict[str, _Card]
    edges: list[tuple[str, str]]


def sketch(
    network: Network,
    tensors: Tensors | None = None,
    *,
    marks: Mapping[str, str] | None = None,
    fold: bool = True,
) -> Sketch:
    """The boxes of a network; `marks` say how layers differ from those of another one."""
    marks = marks or {}
    rows = {} if network.cyclic else {row.name: row for row in summary(network, tensors).rows}
    most = max((row.parameters or 0 for row in rows.values()), default=0)
    nodes = {node.name: node for node in network.nodes if not node.plumbing or node.name in marks}
    ends = {item.name for item in network.inputs} | network.constants.keys()
    links = [
        edge
        for edge in (network.edges() if network.cyclic else network.logical_edges())
        if edge.dst in nodes and (edge.src in nodes or edge.src in ends)
    ]
    sources: dict[str, dict[str, None]] = {name: {} for name in nodes}
    for edge in links:
        sources[edge.dst][edge.src] = None
    units = [
        Unit(name, f"{operation_text(node)} {_shape(rows.get(name))}", tuple(sources[name]))
        for name, node in nodes.items()
    ]
    changed = {name for name, mark in marks.items() if mark != "unchanged"}
    folded = folds(units, changed) if fold else []
    drawn_as = {name: kept for each in folded for name, kept in each.stands_for.items()}
    used = {source for found in sources.values() for source in found}
    cards = {
        item.name: _Card("INPUT " + item.dtype, item.name, shape_text(item.shape), kind="end")
        for item in network.inputs
    }
    cards |= {
        name: _Card("CONSTANT", name, kind="end") for name in network.constants if name in used
    }
    heads: dict[str, str] = {}
    for each in folded:
        head = f"\0{each.first[0]}"
        cards[head] = _Card(f"block × {each.count}", each.title, kind="repeat")
        heads |= dict.fromkeys(each.first, head)
    aliases = network.node_aliases()
    for name, node in nodes.items():
        if name in drawn_as:
            continue
        row = rows.get(name)
        cards[name] = _Card(
            operation_text(node),
            name,
            _shape(row),
            _share(row, most),
            "tinted" if row is not None and row.parameters else "",
            marks.get(name, ""),
            _about(row, aliases.get(name)),
        )
    edges = _edges(sources, drawn_as, heads)
    edges = [edge for edge in edges if edge[0] in cards and edge[1] in cards]
    if folded and not network.cyclic and ranks_of(list(cards), edges) is None:
        # A layer between two blocks belongs to neither, so folding would create a cycle.
        return sketch(network, tensors, marks=marks, fold=False)
    return Sketch(cards, edges)


def _edges(
    sources: Mapping[str, Mapping[str, None]], drawn_as: Mapping[str, str], heads: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Lines between what is drawn. What comes into a folded block comes in through its heading."""
    lines: dict[tuple[str, str], None] = {}
    for name, read in sources.items():
        target = drawn_as.get(name, name)
        for read_from in read:
            source = drawn_as.get(read_from, read_from)
            inside = target in heads and heads.get(source) == heads[target]
            if inside and name not in drawn_as and read_from not in drawn_as:
                lines[source, target] = None
            elif inside:
                continue  # within a block that is not drawn, or from one block to the next
            elif target not in heads:
                lines[source, target] = None
            else:
                lines[source, heads[target]] = lines[heads[target], target] = None
    return list(lines)


def _shape(row: Row | None) -> str:
    return "" if row is None or row.out_shape is None else shape_text(row.out_shape)


def _share(row: Row | None, most: int) -> float:
    if row is None or not row.parameters or not most:
        return 0.0
    return math.log1p(row.parameters) / math.log1p(most)


def _about(row: Row | None, alias: str | None) -> str:
    if row is None:
        return ""
    facts = [f"also called {alias}"] if alias and alias != row.name else []
    facts += [f"{row.parameters:,} parameters"] if row.parameters else []
    facts += [f"{row.flops:,} FLOPs per example"] if row.flops else []
    return "; ".join(facts)


def svg(drawing: Sketch, title: str, address: Address | None = None) -> Html:
    """One network; `address` says where a click on a layer leads."""
    return _drawn(drawing, places_of(drawing), title, address)


def picture(network: Network, tensors: Tensors | None, title: str, *, fold: bool = True) -> Html:
    """The same in a frame that scrolls, for pages."""
    drawn = svg(sketch(network, tensors, fold=fold), title)
    return Html(
        f'<div class="network" tabindex="0" role="region" aria-label="{text(title)}">{drawn}</div>'
    )


def file(drawing: Sketch, title: str, style: str) -> str:
    """A file of its own: with its name space, and its colors inside."""
    markup = svg(drawing, title).replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    start = markup.index(">") + 1
    return (
        f'{markup[:start]}<style>{style}</style><g class="network">{markup[start:-6]}</g></svg>\n'
    )


def places_of(drawing: Sketch, ranks: Mapping[str, int] | None = None) -> Layout:
    """Where the boxes and lines go."""
    sizes = {name: Size(WIDTH, HEIGHT) for name in drawing.cards}
    return layout(sizes, drawing.edges, ranks)


def _drawn(drawing: Sketch, places: Layout, title: str, address: Address | None) -> Html:
    lines = [
        f'<svg viewBox="0 0 {places.width:.0f} {places.height:.0f}" width="{places.width:.0f}"'
        f' height="{places.height:.0f}" role="img" aria-label="{text(title)}">'
    ]
    for _, _, points in places.lines:
        lines.append(f'<path class="edge" d="{_course(points)}"/>')
        x, y = points[-1]
        lines.append(f'<path class="tip" d="M{x - 3:.1f} {y - 5:.1f}h6l-3 5z"/>')
    for name, card in drawing.cards.items():
        lines += _card(card, places.boxes[name], None if address is None else address(card.name))
    return Html("\n".join([*lines, "</svg>"]))


def _course(points: Sequence[tuple[float, float]]) -> str:
    """Straight down through ranks, and in curves between them."""
    (x, y), *rest = points
    course = f"M{x:.1f} {y:.1f}"
    for a, b in rest:
        middle = (y + b) / 2
        course += (
            f"V{b:.1f}"
            if abs(a - x) < 0.05
            else f"C{x:.1f} {middle:.1f} {a:.1f} {middle:.1f} {a:.1f} {b:.1f}"
        )
        x, y = a, b
    return course


def _card(card: _Card, box: Box, address: str | None) -> Iterator[str]:
    kinds = " ".join(filter(None, ("layer", card.kind, card.mark)))
    tooltip = "\n".join(filter(None, (card.title, card.name, card.shape, card.about, card.mark)))
    yield f'<g class="{kinds}" data-layer="{text(card.name)}"><title>{text(tooltip)}</title>'
    if address is not None:
        yield f'<a href="{text(address)}">'
    yield (
        f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.0f}"'
        f' height="{box.height:.0f}" rx="4"/>'
    )
    room = box.width - 16
    sign = _SIGNS.get(card.mark, "")
    if sign:
        right = box.x + box.width - 14
        yield f'<text class="sign" x="{right:.1f}" y="{box.y + 15:.1f}">{sign}</text>'
    yield _label(card.title, "", box.x + 8, box.y + 15, room - (14 if sign else 0), _LETTER)
    yield _label(card.name, "name", box.x + 8, box.y + 28, room, _SMALL, keep_end=True)
    if card.shape:
        yield _label(card.shape, "shape", box.x + 8, box.y + 40, room, _TINY)
    if card.share:
        yield (
            f'<rect class="share" x="{box.x + 1:.1f}" y="{box.y + box.height - 3.5:.1f}"'
            f' width="{max(2.0, (box.width - 2) * card.share):.1f}" height="3"/>'
        )
    yield "</a></g>" if address is not None else "</g>"


def _label(
    words: str, kind: str, x: float, y: float, room: float, letter: float, *, keep_end: bool = False
) -> str:
    """Cut to the room that there is; of names the end tells most."""
    most = int(room / letter)
    if text_width(words) > most:
        if keep_end:
            while text_width(words) > most - 1:
                words = words[1:]
            words = "…" + words
        else:
            while text_width(words) > most - 1:
                words = words[:-1]
            words += "…"
    sort = f' class="{kind}"' if kind else ""
    return f'<text{sort} x="{x:.1f}" y="{y:.1f}">{text(words)}</text>'


# Two networks beside each other


def compared(
    old: Network,
    new: Network,
    comparison: Comparison,
    titles: tuple[str, str],
    tensors: tuple[Tensors | None, Tensors | None] = (None, None),
) -> Html:
    """Both networks, with layers that correspond on one level, and signs for what differs."""
    left = {layer.name: "removed" for layer in comparison.removed}
    right = {layer.name: "added" for layer in comparison.added}
    partner = {}
    for pair in comparison.pairs:
        kind = {"reshaped": "unchanged"}.get(pair.kind, pair.kind)
        left[pair.old.name] = right[pair.new.name] = kind
        partner[pair.new.name] = pair.old.name
    drawings = (
        sketch(old, tensors[0], marks=_visible(old, left)),
        sketch(new, tensors[1], marks=_visible(new, right)),
    )
    for a, b in zip(old.inputs, new.inputs, strict=False):
        partner[b.name] = a.name
    heads = {f"\0{b}": f"\0{a}" for b, a in partner.items()}
    ranks = _common_ranks(drawings[0], drawings[1], partner | heads)
    found = []
    for drawing, title, which in zip(drawings, titles, (0, 1), strict=True):
        places = places_of(drawing, None if ranks is None else ranks[which])
        drawn = _drawn(drawing, places, f"network of {title}", None)
        found.append(f"<div><h3>{text(title)}</h3>{drawn}</div>")
    return Html(
        '<div class="network pair" tabindex="0" role="region" aria-label="networks side by side">'
        f"{''.join(found)}</div>"
    )


def _visible(network: Network, marks: Mapping[str, str]) -> dict[str, str]:
    """Plumbing is drawn only where it is new or gone or changed."""
    hidden = {node.name for node in network.nodes if node.plumbing}
    return {name: mark for name, mark in marks.items() if name not in hidden or mark != "unchanged"}


def _common_ranks(
    old: Sketch, new: Sketch, partner: Mapping[str, str]
) -> tuple[dict[str, int], dict[str, int]] | None:
    """Ranks in the union of both graphs; None where it has a cycle."""

    def left(name: str) -> tuple[str, str]:
        return ("old", name)

    def right(name: str) -> tuple[str, str]:
        known = partner.get(name)
        return ("old", known) if known is not None and known in old.cards else ("new", name)

    names = list(dict.fromkeys([*map(left, old.cards), *map(right, new.cards)]))
    edges = {(left(a), left(b)) for a, b in old.edges}
    edges |= {(right(a), right(b)) for a, b in new.edges}
    keys = {name: f"{name[0]} {name[1]}" for name in names}
    listed = sorted((keys[a], keys[b]) for a, b in edges if a != b)
    ranks = ranks_of(list(keys.values()), listed)
    if ranks is None:
        return None
    return (
        {name: ranks[keys[left(name)]] for name in old.cards},
        {name: ranks[keys[right(name)]] for name in new.cards},
    )
