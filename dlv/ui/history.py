"""The lineage of versions as a picture or a report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import dlv.disk.user_files as user_files
import dlv.report.lineage as lineage
import dlv.report.page as page
import dlv.report.raster as raster
from dlv.report.markup import Html
from dlv.report.page import Section
from dlv.ui.frame import write as write_report
from dlv.versions.history import Entry


def write(path: Path, entries: Sequence[Entry], command: str) -> None:
    """The graph of `dlv log --graph`: .html, .svg or .png."""
    known = {entry.version.id for entry in entries}
    nodes = [(e.version.id, [p.id for p in e.parents if p.id in known]) for e in entries]
    labels = [_label(entry) for entry in entries]
    if path.suffix.lower() == ".html":
        drawing = Html(f'<div class="table">{lineage.picture(nodes, labels)}</div>')
        write_report(path, "Lineage", [Section("", drawing)], command=command)
        return
    with user_files.replacing(path) as out:
        if path.suffix.lower() == ".svg":
            out.write(lineage.file(nodes, labels, page.style()).encode())
        else:
            raster.write_lineage(lineage.rows(nodes), labels, out)


def _label(entry: Entry) -> str:
    version = entry.version
    words = [version.label, *(f"[{tag}]" for tag in version.tags)]
    message = version.message.partition("\n")[0]
    return f"{' '.join(words)}  {message}"
