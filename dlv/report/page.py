"""One HTML file that needs nothing else: no script, no request, for light and for dark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

# Nothing may be loaded and nothing run, whatever a name of a model holds.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"

_STYLE = """
:root { color-scheme: light dark; --page: #fff; --ink: #1c2330; --soft: #586274; --grid: #e3e7ee;
  --c0: #1763c6; --c1: #b34a00; --c2: #1b7a3d; --c3: #a3217f; --c4: #6a4bc4; --c5: #8a6100;
  --c6: #0b7580; --c7: #c0272d; }
@media (prefers-color-scheme: dark) { :root { --page: #14181f; --ink: #e6eaf1; --soft: #a2adbf;
  --grid: #2b323e; --c0: #6aa9ff; --c1: #ff9d5c; --c2: #5fd08a; --c3: #f08fd2; --c4: #b3a0ff;
  --c5: #e0b64a; --c6: #4fc7d3; --c7: #ff8a85; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem; max-width: 88rem; background: var(--page);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.35rem; margin: 0 0 .25rem; }
h2 { font-size: 1rem; margin: 0 0 .25rem; overflow-wrap: anywhere; }
p { margin: 0 0 1rem; color: var(--soft); }
main { display: grid; gap: 2rem;
  grid-template-columns: repeat(auto-fit, minmax(min(30rem, 100%), 1fr)); }
section { min-width: 0; }
svg { display: block; width: 100%; height: auto; }
svg text { font: 11px system-ui, sans-serif; fill: var(--soft); }
svg path { fill: none; stroke: currentColor; stroke-width: 1.6; stroke-linejoin: round; }
svg circle { fill: currentColor; }
svg .grid { stroke: var(--grid); stroke-width: 1; }
svg .raw { opacity: .3; stroke-width: 1; }
.c0 { color: var(--c0); } .c1 { color: var(--c1); } .c2 { color: var(--c2); }
.c3 { color: var(--c3); } .c4 { color: var(--c4); } .c5 { color: var(--c5); }
.c6 { color: var(--c6); } .c7 { color: var(--c7); }
.d1 path { stroke-dasharray: 6 3; } .d2 path { stroke-dasharray: 2 3; }
.d3 path { stroke-dasharray: 8 3 2 3; }
.table { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; }
th, td { padding: .1rem .8rem .1rem 0; text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
th { font-weight: 500; color: var(--soft); }
td svg { display: inline-block; width: 1.8rem; height: .7rem; vertical-align: middle;
  margin-right: .4rem; }
@media print { body { max-width: none; } section { break-inside: avoid; } }
"""


def page(title: str, about: str, sections: Iterable[Iterable[str]]) -> Iterator[str]:
    """The lines of the file; `title` and `about` are texts, sections are HTML."""
    yield "<!doctype html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>"
    yield f"<header><h1>{escape(title)}</h1><p>{escape(about)}</p></header><main>"
    for section in sections:
        yield "<section>"
        yield from section
        yield "</section>"
    yield "</main></body></html>"
