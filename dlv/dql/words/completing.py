"""What may come next in a query that is being typed: keywords, names, references, templates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from dlv.dataclass import dataclass
from dlv.network.vocabulary import OPS

Look = Callable[[str, str], Iterable[str]]  # kind, beginning -> names in the repository
Accepted = Callable[[str], Iterable[str]]  # text -> words that the grammar takes behind it

ATTRIBUTES = (
    *("id", "name", "number", "creation_time", "author", "message", "framework", "tag", "net"),
    *("parents", "n_nodes", "n_params", "depth", "dirty", "source", "nodes", "metrics", "hparams"),
)
STEPS = ("next", "prev", "next_raw", "prev_raw", "count")
FIGURES = ("last", "min", "max", "step", "steps", "at(")
CHANGES = ("insert", "insert_before", "replace", "delete")
FUNCTIONS = (
    *("count", "sum", "avg", "min", "max", "stddev", "median", "argmin", "argmax"),
    *("lower", "upper", "length", "abs", "round", "coalesce", "changes"),
)
BEGINNINGS = ("select", "slice", "construct", "define", "explain")

_LINEAGE = ("derived_from", "ancestor_of", "child_of", "parent_of", "sibling_of")
_TEXT = re.compile(r"""(["'])(?:[^"'\\\n]|\\.|(?!\1)["'])*(\1)?|(?:--(?=\s|\Z)|\#)[^\n]*""")
_DOTTED = re.compile(r"""(?:\b[A-Za-z_]\w*|[\])])(?:\(\))?\.(\w*)\Z""")
_SELECTS = re.compile(r"(?:([A-Za-z_]\w*)|[\])])\s*\[\Z")


@dataclass(frozen=True)
class Completion:
    """`text` goes where the last `replaced` characters are."""

    text: str
    replaced: int
    kind: str


def completions(text: str, look: Look, accepted: Accepted | None = None) -> list[Completion]:
    """What the text up to the cursor can go on with; without a grammar only what is certain."""
    quote = _open_quote(text)
    if quote is not None:
        return list(_within_string(text, quote, look))
    if re.search(r"(?<![\w.])\d+\.?\Z", text):
        return []
    dotted = _DOTTED.search(text)
    if dotted is not None:
        return _starting(dotted[1], _attributes(text[: dotted.start(1) - 1], dotted[1], look))
    word = re.search(r"\w*\Z", text)
    begun = word[0] if word else ""
    return _starting(begun, _words(text[: len(text) - len(begun)], accepted))


def _open_quote(text: str) -> int | None:
    """Where the string begins in which the text ends; -1 in a comment, which nothing completes."""
    for found in _TEXT.finditer(text):
        if found[1] is None:
            if found.end() == len(text) and "\n" not in found[0]:
                return -1
        elif found[2] is None and found.end() == len(text):
            return found.start()
    return None


def _starting(begun: str, words: Iterable[tuple[str, str]]) -> list[Completion]:
    kinds: dict[str, str] = {}
    for word, kind in words:
        if word.lower().startswith(begun.lower()) and word != begun:
            kinds.setdefault(word, kind)
    return [Completion(word, len(begun), kind) for word, kind in kinds.items()]


def _within_string(text: str, quote: int, look: Look) -> Iterator[Completion]:
    if quote < 0:
        return
    before, begun, sign = text[:quote], text[quote + 1 :], text[quote]
    end = sign
    kinds: tuple[str, ...] = ()
    chosen = _SELECTS.search(before)
    if chosen is not None and (chosen[1] or "").lower() != "in":
        kinds, end = _selected(before[: chosen.start()], chosen[1] or ""), sign + "]"
    else:
        called = re.search(r"([A-Za-z_]\w*)\s*\(\Z", before)
        if called is not None and called[1].upper() in OPS:
            words = ((variant, "variant") for variant in OPS[called[1].upper()].variants)
            for each in _starting(begun, words):
                yield Completion(each.text + end, each.replaced, each.kind)
            return
        kinds = _compared(before)
    for kind in kinds:
        for name in look(kind, begun):
            if sign not in name and "\\" not in name:
                yield Completion(name + end, len(begun), kind)


def _selected(before: str, word: str) -> tuple[str, ...]:
    if before.endswith("."):
        named = {"metrics": ("metric",), "hparams": ("hyperparameter",), "nodes": ("node",)}
        return named.get(word, ("node",))
    return ("node", "metric")


def _compared(before: str) -> tuple[str, ...]:
    """What a string is about, by what stands before it."""
    # Within a list, the word before the list tells.
    outside = re.sub(r"""[\[(](?:\s*(?:"[^"]*"|'[^']*')\s*,)*\s*\Z""", "", before)
    listed = outside != before
    last = re.search(r"([\w.]+|[=<>!]+)\s*\Z", outside)
    word = last[1].lower() if last else ""
    if word in _LINEAGE:
        return ("reference",)
    if word == "from" or (word == "in" and not listed):
        return ("saved",)
    if word not in ("=", "==", "!=", "<>", "like", "ilike", "matches", "in", "not"):
        return ()
    left = re.search(r"([A-Za-z_]\w*)(?:\.(\w+))?\s*(?:not\s+)?[\w=<>!]+\s*\Z", outside)
    attribute = (left[2] or "").lower() if left else None
    kinds = {"": "reference", "id": "reference", "parents": "reference", "source": "reference"}
    kinds |= {"name": "name", "tag": "tag"}
    return (kinds[attribute],) if attribute in kinds else ()


def _attributes(before: str, begun: str, look: Look) -> Iterator[tuple[str, str]]:
    if before.endswith("]"):
        yield from ((word, "nodes") for word in STEPS)
        yield from ((word, "metric") for word in FIGURES)
        if re.search(r"\bmutate\b", before, re.IGNORECASE):
            yield from ((word, "change") for word in CHANGES)
        names = {a.name for op in OPS.values() for a in op.attributes}
        yield from ((name, "layer attribute") for name in ("op", "variant", *sorted(names)))
        return
    if re.search(r"\.(?:next|prev|next_raw|prev_raw)\Z", before):
        yield from ((word, "nodes") for word in STEPS)
        return
    yield from ((word, "attribute") for word in ATTRIBUTES)
    for key in look("hyperparameter", begun):
        if re.fullmatch(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*", key):
            yield key, "hyperparameter"


def _words(before: str, accepted: Accepted | None) -> Iterator[tuple[str, str]]:
    if accepted is None:
        if not before.strip() or before.rstrip().endswith(";"):
            yield from ((word, "keyword") for word in BEGINNINGS)
        return
    taken = set(accepted(before))
    for word in sorted(taken):
        if word.isidentifier():
            yield word, "keyword"
    if "a name" not in taken:
        return
    if re.search(r"(?:\bhas|\w\[|\]\[|\|)\s*\Z", before, re.IGNORECASE):
        yield from ((name, "template") for name in OPS)
        return
    if re.search(r"\bmutate\b.*[=,\[]\s*\Z", before, re.IGNORECASE | re.DOTALL):
        yield from ((name, "template") for name in OPS)
    yield from ((name, "variable") for name in _variables(before))
    yield from ((name + "(", "function") for name in FUNCTIONS)


def _variables(text: str) -> list[str]:
    """Names that stand before a dot or bracket, or where variables are declared."""
    bare = _TEXT.sub(" ", text)
    found = re.findall(r"(?<![\w.])([A-Za-z_]\w*)\s*[.\[]", bare)
    found += re.findall(r"\b(?:select|from|slice|construct|as)\s+([A-Za-z_]\w*)", bare, re.I)
    keywords = {"in", "where", "and", "or", "not", "distinct", "has", "explain", "by", "select"}
    return [name for name in dict.fromkeys(found) if name.lower() not in keywords]
