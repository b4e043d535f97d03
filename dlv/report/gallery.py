"""Small images beside each other, each with a line below it."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

from dlv.kinds import Array
from dlv.report.markup import Html, text

SIDE = 64  # pixels that an image takes on the page


def png(image: Array) -> bytes:
    """Gray [height, width] or colors [height, width, 3], of bytes, as a PNG file."""
    height, width = image.shape[:2]
    rows = image.reshape(height, -1)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    head = struct.pack(">IIBBBBB", width, height, 8, 0 if image.ndim == 2 else 2, 0, 0, 0)
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(raw, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in parts
    )


def gallery(images: Sequence[tuple[Array, str, str]]) -> Html:
    """Each of (image, its line, what is told of it)."""
    figures = []
    for image, line, about in images:
        source = f"data:image/png;base64,{base64.b64encode(png(image)).decode()}"
        figures.append(
            f'<figure><img src="{source}" alt="{text(about)}" width="{SIDE}" height="{SIDE}">'
            f"<figcaption>{text(line)}</figcaption></figure>"
        )
    return Html(f'<div class="gallery">{"".join(figures)}</div>') if figures else Html("")
