"""Steps and shards from file names: `ckpt-500.pt`, `model-00001-of-00003.safetensors`."""

from __future__ import annotations

import re

_SUFFIX = re.compile(r"(?:\.[A-Za-z][A-Za-z0-9]{0,14})+$")
_NUMBER = r"([0-9]{1,18})([kKmM]?)(?![A-Za-z0-9])"
_START = r"(?:^|(?<=[^a-z]))"
# In this order: a step says more than an epoch, both say more than a bare number.
_STEP = re.compile(_START + r"(?:global_?step|steps?|iterations?|iters?)[=_-]?" + _NUMBER, re.I)
_EPOCH = re.compile(_START + r"epochs?[=_-]?" + _NUMBER, re.I)
_PLAIN = re.compile(
    r"(?:.*[^a-z])?(?:checkpoints?|ckpts?|chkpt|cp|model|weights|snapshot|state)[=_.-]?" + _NUMBER,
    re.I,
)
_BARE = re.compile("([0-9]{1,18})")
_DATE = re.compile("(?:19|20)[0-9]{2}(?:0[1-9]|1[0-2])(?:0[1-9]|[12][0-9]|3[01])(?:[0-9]{6})?")
_SHARD = re.compile(
    r"(.+?)[-_.]([0-9]{1,6})[-_]of[-_]([0-9]{1,6})((?:\.[A-Za-z][A-Za-z0-9]{0,14})*)", re.I
)
_UNITS = {"": 1, "k": 1000, "m": 1_000_000}


def step_of(name: str) -> int | None:
    """The training step that a path names, in its file name or else in its folder's."""
    shard = shard_of(name)
    parts = [part for part in (shard[0] if shard else name).replace("\\", "/").split("/") if part]
    if not parts:
        return None
    stem = _SUFFIX.sub("", parts[-1])
    step = _step_in(stem)
    if step is None and _BARE.fullmatch(stem) and not _DATE.fullmatch(stem):
        step = int(stem)
    if step is None and len(parts) > 1:
        step = _step_in(parts[-2])
    return step


def shard_of(name: str) -> tuple[str, int, int] | None:
    """(path without the shard's number, its number, how many there are): parts of one snapshot."""
    match = _SHARD.fullmatch(name)
    if match is None or "/" in name[match.end(1) :]:
        return None
    index, count = int(match[2]), int(match[3])
    return (match[1] + match[4], index, count) if index <= count and count else None


def _step_in(stem: str) -> int | None:
    found = list(_STEP.finditer(stem)) or list(_EPOCH.finditer(stem))
    match = found[-1] if found else _PLAIN.fullmatch(stem)
    if match is None or (not found and _DATE.fullmatch(match[1])):
        return None
    return int(match[1]) * _UNITS[match[2].lower()]
