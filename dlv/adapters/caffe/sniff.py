"""Which files are Caffe's: weights by their first bytes, texts by the words in them."""

from __future__ import annotations

import re

NETWORK, SOLVER = "prototxt", "caffe_solver"

# Fields 1 to 8 and 100 of a network: name, layers, input, .., layer.
_TAGS = b"\x0a\x12\x1a\x20\x22\x28\x32\x38\x42\xa2"
_LAYER = b"\xa2\x06"
_SUFFIXES = ("", ".prototxt", ".pbtxt", ".txt")

_FIELD = re.compile(r"(?:\s++|#[^\n]*+)*+[a-z_]+\s*+[:{<]")
_LAYERS = re.compile(r"^[ \t]*+layers?[ \t]*+:?\s*+[{<]", re.MULTILINE)
_WIRED = re.compile(r"\b(?:bottom|top)\s*+:\s*+[\[\"']")
_TYPED = re.compile(r"\btype\s*+:\s*+[\"'A-Z]")
_SETTINGS = re.compile(
    r"^[ \t]*+(base_lr|lr_policy|max_iter|solver_mode|snapshot_prefix|solver_type|test_interval"
    r"|train_net|net)[ \t]*+:",
    re.MULTILINE,
)
_LEARNS = {"base_lr", "lr_policy"}


def is_weights(head: bytes, suffix: str) -> bool:
    """Protobuf has no magic: without the usual name, a name and a layer must stand in front."""
    if suffix == ".caffemodel":
        return len(head) > 1 and head[0] in _TAGS
    if head[:1] != b"\x0a" or len(head) < 4 or head[1] > 100:
        return False
    name, behind = head[2 : 2 + head[1]], head[2 + head[1] : 4 + head[1]]
    return behind == _LAYER and name.isascii() and not name.translate(None, bytes(range(32, 127)))


def of_text(text: str, suffix: str) -> str | None:
    """A network, the settings of a solver, or neither."""
    if suffix not in _SUFFIXES or not _FIELD.match(text):
        return None
    keys = {match[1] for match in _SETTINGS.finditer(text, 0, 1 << 16)}
    if len(keys) > 1 and keys & _LEARNS:
        return SOLVER
    if _LAYERS.search(text) and _WIRED.search(text) and _TYPED.search(text):
        return NETWORK
    return None
