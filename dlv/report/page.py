"""The frame of a report: one file that loads nothing, reads well on paper and needs no script."""

from __future__ import annotations

import base64
import functools
import hashlib
from collections.abc import Iterable
from pathlib import Path

from dlv.dataclass import dataclass
from dlv.report.markup import Html, text


@functools.cache
def style() -> str:
    """The style sheet that reports, pages and notebooks share."""
    return Path(__file__).with_name("style.css").read_text(encoding="utf-8")


@functools.cache
def script() -> str:
    """The one script of a report: values under the pointer."""
    return Path(__file__).with_name("hover.js").read_text(encoding="utf-8")


def _hash_of(content: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"


def policy() -> str:
    """Nothing may be loaded and nothing else run, whatever a name of a model holds."""
    return (
        f"default-src 'none'; style-src {_hash_of(style())}; script-src {_hash_of(script())}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )


@dataclass(frozen=True)
class Section:
    """A part of a report under its heading; `folded` ones are opened by a click."""

    title: str
    body: Html
    folded: bool = False

    def html(self) -> Html:
        title = text(self.title[:1].upper() + self.title[1:])
        if not self.title:
            return Html(f"<section>{self.body}</section>")
        if self.folded:
            return Html(
                f"<section><details><summary><h2>{title}</h2></summary>{self.body}</details></section>"
            )
        return Html(f"<section><h2>{title}</h2>{self.body}</section>")


def page(title: str, about: str, command: str, sections: Iterable[Section]) -> str:
    """The text of the file; `command` is what made it."""
    made = f'<p class="command">Made by <code>{text(command)}</code></p>' if command else ""
    told = f'<p class="about">{text(about)}</p>' if about else ""
    body = "".join(section.html() for section in sections)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)}</title><style>{style()}</style></head><body><main>"
        f"<header><h1>{text(title)}</h1>{told}{made}</header>{body}</main>"
        f"<script>{script()}</script></body></html>\n"
    )
