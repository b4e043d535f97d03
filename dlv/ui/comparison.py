"""Versions side by side: what differs, where weights moved, networks, curves, text."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Sequence

import dlv.report.network_picture as network_picture
import dlv.ui.curves as curves
import dlv.versions.diff as diffing
import dlv.views.differences as view
from dlv.report.courses import Chart
from dlv.report.markup import Html, scrolling, text
from dlv.report.page import Section
from dlv.repository.git_files import FileStore
from dlv.repository.handle import Repository
from dlv.ui.frame import Frame
from dlv.versions.diff import ABSENT, Diff
from dlv.versions.matrix_pairs import MatrixPair
from dlv.versions.working_side import LABEL as WORKING

# Relative movement from which a cell is a shade darker.
STEPS = (1e-6, 1e-4, 1e-3, 1e-2, 5e-2, 2e-1)
MOVED = "where weights moved"
MOST_DIFF_LINES = 600
OPEN_LINES = 60  # of a change that is shown at once
FOLDED = 60  # rows of the heat map from which the rest is folded


def sections(
    repository: Repository,
    diff: Diff,
    frame: Frame,
    *,
    everything: bool = False,
    charts: Sequence[Chart] | None = None,
) -> list[Section]:
    """All that `diff` says, with pictures: only differences, unless everything is asked for."""
    blocks = [*view.text(diff, everything, terminal=False)]
    told = frame.sections(blocks)
    found = told[:1]
    rest = {section.title.partition(":")[0]: section for section in told[1:]}
    if "params" in diff.sections and "hyperparameters" in rest:
        found.append(rest.pop("hyperparameters"))
    if "metrics" in diff.sections:
        found += [rest.pop(name) for name in ("metrics",) if name in rest]
        if charts is None:
            charts = curves_of(repository, diff)
        found += curves.sections(charts)
    if "matrices" in diff.sections:
        rows = heat_map(diff, everything)
        if rows:
            found.append(Section(MOVED, rows))
    found += [rest.pop(name) for name in ("tensors",) if name in rest]
    found += networks(diff)
    found += list(rest.values())
    if "files" in diff.sections:
        found += text_changes(diff)
    return found


def curves_of(repository: Repository, diff: Diff) -> list[Chart]:
    """Curves of the versions that are in this repository, overlaid."""
    here = [
        side.version.label
        for side in diff.sides
        if side.label != WORKING and side.repository.path == repository.path
    ]
    found = curves.charts_of(repository, list(dict.fromkeys(here)))
    return [chart for chart in found if len(chart.courses) > 1]


def heat_map(diff: Diff, everything: bool = False) -> Html:
    """Tensors down, versions across: how far each tensor moved from the base, relative to it."""
    names: dict[str, list[MatrixPair | None]] = {}
    for place, other in enumerate(diff.others):
        for pair in other.matrices:
            row = names.setdefault(pair.name, [None] * len(diff.others))
            row[place] = pair
    rows = [
        (name, pairs)
        for name, pairs in names.items()
        if everything or any(pair is not None and pair.status != "unchanged" for pair in pairs)
    ]
    if not rows:
        return Html("")
    head = "".join(f'<th scope="col">{text(other.side.label)}</th>' for other in diff.others)
    lines = [
        f'<tr><th scope="row">{text(name)}</th>{"".join(map(_moved, pairs))}</tr>'
        for name, pairs in rows
    ]
    exact = all(pair is None or pair.bounds is None for _, pairs in rows for pair in pairs)
    base = text(diff.sides[0].label)
    about = (
        f"Relative L2 distance to {base}: 0.01 means that the tensor moved by 1% of its norm."
        + ("" if exact else " Between the bounds that the bytes read so far allow.")
    )

    def table(some: Sequence[str]) -> str:
        heads = f'<thead><tr><th scope="col">tensor</th>{head}</tr></thead>'
        inner = f'<table class="heat">{heads}<tbody>{"".join(some)}</tbody></table>'
        return scrolling("where weights moved", inner)

    body = table(lines[:FOLDED])
    if len(lines) > FOLDED:
        rest = f"{len(lines) - FOLDED:,} more"
        body += f"<details><summary>{rest}</summary>{table(lines[FOLDED:])}</details>"
    return Html(f'<p class="about">{about}</p>{body}')


def _moved(pair: MatrixPair | None) -> str:
    if pair is None:
        return '<td class="m m0"><span class="dim">–</span></td>'
    if pair.status in ("added", "removed"):
        return f'<td class="m">{pair.status}</td>'
    if pair.bounds is not None and pair.bounds.relative_l2 is not None:
        low, high = pair.bounds.relative_l2.low, pair.bounds.relative_l2.high
        shown = f"{low:.2g} .. {high:.2g}" if low else f"≤ {high:.2g}"
        return f'<td class="m m{_shade((low + high) / 2)}" title="{low!r} .. {high!r}">{shown}</td>'
    difference = pair.difference
    if difference is None:
        if pair.status in ("unchanged", "renamed", "rearranged"):
            return '<td class="m m0">=</td>'
        same = pair.old is not None and pair.new is not None and pair.old.shape == pair.new.shape
        return f'<td class="m">{"changed" if same else "another shape"}</td>'
    value = difference.relative_l2
    if value is None or not math.isfinite(value):
        return '<td class="m m6">not finite</td>'
    return f'<td class="m m{_shade(value)}" title="{value!r}">{value:.3g}</td>'


def _shade(value: float) -> int:
    return sum(value >= step for step in STEPS)


def networks(diff: Diff) -> list[Section]:
    """Both networks where they differ; of more versions, each beside the base."""
    found = []
    base = diff.sides[0]
    for other in diff.others:
        side, structure = other.side, other.structure
        if structure is None or structure.same or base.network is None or side.network is None:
            continue
        drawn = network_picture.compared(
            *(base.network, side.network, structure, (base.label, side.label)),
            (base.tensors, side.tensors),
        )
        found.append(Section(f"networks of {base.label} and {side.label}", drawn))
    return found


def text_changes(diff: Diff) -> list[Section]:
    """Changed text files of the last version, line by line."""
    last = diff.others[-1].side
    if last.label == WORKING:
        return []
    parts = []
    for row in diff.files:
        old, new = row.values[0], row.values[-1]
        if not row.differs or (old is ABSENT and new is ABSENT):
            continue
        stores = [FileStore(side.repository.files_git) for side in (diff.sides[0], last)]
        texts = [
            b""
            if entry is ABSENT
            else store.read(entry)
            if entry.bytes <= diffing.MOST_BYTES
            else None
            for store, entry in zip(stores, (old, new), strict=True)
        ]
        lines = [*_unified(texts[0], texts[1])]
        if lines:
            one_sided = ABSENT in (old, new)
            opened = "" if one_sided or len(lines) > OPEN_LINES else " open"
            what = "added" if old is ABSENT else "removed" if new is ABSENT else "changed"
            parts.append(
                f"<details{opened}><summary>{text(row.name)} <span class='soft'>{what}</span>"
                '</summary><div class="diff" tabindex="0" role="region"'
                f' aria-label="changes of {text(row.name)}">{"".join(lines)}</div></details>'
            )
    return [Section("changes in text files", Html("".join(parts)))] if parts else []


def _unified(old: bytes | None, new: bytes | None) -> Iterator[str]:
    if old is None or new is None or b"\0" in old or b"\0" in new:
        return
    before, after = (content.decode("utf-8", "replace").splitlines() for content in (old, new))
    if len(before) + len(after) > diffing.MOST_LINES:
        return
    kinds = {"+": "add", "-": "del", "@": "at"}
    for count, line in enumerate(difflib.unified_diff(before, after, lineterm="", n=3)):
        if count < 2:  # the names of the files
            continue
        if count > MOST_DIFF_LINES:
            yield '<span class="at">… more lines differ</span>'
            return
        kind = kinds.get(line[:1], "")
        sort = f' class="{kind}"' if kind else ""
        yield f"<span{sort}>{text(line) or ' '}</span>"


def title(diff: Diff) -> str:
    """`lenet@1 and lenet@2`."""
    labels = [side.label for side in diff.sides]
    return f"{', '.join(labels[:-1])} and {labels[-1]}"
