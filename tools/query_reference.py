"""Write docs/query-reference.md from the grammar: `python tools/query_reference.py > FILE`."""

from __future__ import annotations

import re
import sys

from dlv.dql.bind.templates import GENERAL
from dlv.dql.bind.values import AGGREGATES
from dlv.dql.words.tables import grammar_text
from dlv.metadata.select.relations import COLUMNS, MANY
from dlv.network.ops.op import Attribute, Default
from dlv.network.vocabulary import OPS

HEAD = """\
# Query language: reference

Made by `make docs` from the grammar and the tables of the program; do not edit. A tour with
examples is [Queries](query.md).

In the rules, words in quotes are typed as they are, keywords in any case; `[x]` may be left out,
`(x)*` is repeated any number of times, `x | y` is one or the other. Keywords are reserved only
where one of them is allowed: `m.limit` and `count(*) as first` are plain names. Comments begin
with `#`, or with `--` before a blank, and go to the end of the line.
"""
ACTIONS = """\
A `slice` sets `input` and `output` of what it makes, and `support = "inputs"` if side edges are to
become inputs. A `construct` names nodes and what becomes of them: `.insert`, `.insert(to=..)`,
`.insert_before`, `.replace`, `.delete`, `.delete = ..` for an edge, and `.attribute = value` or
`.attribute in [..]`, which makes a network for each value."""
TRAINING = """\
Trains networks with the configurations that `with` and `vary` say, and keeps the best: see
[Trials](evaluate.md). A path that begins with `config` is a key of the configuration."""
TITLES = {
    "start": ("Statements", "Statements are separated by `;`."),
    "queries": ("Queries", ""),
    "mutate": ("What slice and construct do", ACTIONS),
    "evaluate": ("evaluate", TRAINING),
    "expressions": ("Conditions and values", ""),
}
TEMPLATES = """\
## Templates

What follows `has`, in `m[..]` and in actions. In parentheses: the variant, the name, then
attributes: `POOL("MAX", kernel=2)`, `RELU("relu$1")`. In conditions an attribute may be compared
(`out >= 64`); where a node is made, those without a default are needed.

| template | variants | attributes |
|---|---|---|"""
OVER_ROWS = """\
`count(*)` counts them, `count(distinct x)` different values. They skip nulls. `argmin(x, y)` is the
`x` of the row with the least `y`: `argmin(m, m["loss"])` is the best version of a group. Rows with
equal `y` give the least `x`. `stddev` is that of a sample: null for one value."""
OF_VALUES = """\
Functions of a value: `lower`, `upper` and `length` of a string, `abs` and `round(x)` or
`round(x, digits)` of a number, and `coalesce(a, b, ..)`, which is the first that is not null.

`case when A then x when B then y else z end` is the value of the first condition that holds, else
that of `else`, else null. Its values are of one kind.

A query in parentheses is a value if it selects one column and gives one row: an aggregate without
`group by`, or `limit 1`. Without a row it is null.

Compared with `creation_time`, a string is a time: `"2026-06-01"`, `"2026-06-01T12:00"` (UTC unless
it has a zone), `"3 hours ago"` (seconds to years; a month is 30 days, a year 365), `"yesterday"`,
`"today"` (both begin at 0:00 UTC) or `"now"`."""
CHANGES = """\
## Changes

In `from a, b, c in changes(a, b)`, `c` is what differs between the two versions, one row for each
difference. An end is a variable declared before, or a reference: `changes("lenet@1", m)`. `c.kind`
is `hyperparameter`, `metric` or `layer`; `c.name` the name; `c.before` and `c.after` are
the two values, null where there is none. Of metrics the last values are compared. Layers are
compared by their names: `conv1` has its operation as value, `conv1.out` is an attribute of it.
Only `select` can have changes.
"""
WORDS = """\
## Words

| word | is |
|---|---|
| NAME | a letter or `_`, then letters, digits and `_` |
| STRING | in `"` or `'`, on one line; `\\\\n \\\\t \\\\" \\\\' \\\\\\\\` as usual |
| REGEX | `re"..."`: a Python regular expression, searched anywhere in a name |
| NUMBER, INT | `3`, `.5`, `1e-4`; no letter directly after it |
| PARAM | `$name`, whose value is given with `-P name=VALUE`, or by name in Python |
| CMP | `!=` `<>` `<` `<=` `>` `>=` `==` |
"""
SELECTORS = """\
## Selectors

In `m["..."]` and after `matches`:

| written | means |
|---|---|
| `*` `?` | any run of characters; one character |
| `[1,3,5]` | one of these strings |
| `[1-5]` `[a-f]` | a number, a letter of that range |
| `[!7]` | anything but these |
| `\\\\x` | the character itself |
| `*($1)` | what the wildcard before it matched, to be used as `$1` in a template's name |

A name counts as a whole and with its case. Where no node of a network is called so, its aliases are
tried: `conv1` is the first convolution of any network.
"""
ABOUT = {
    "id": 'the id, or any reference: `m.id = "lenet@3"`',
    "name": "",
    "number": "the 3 of lenet@3",
    "creation_time": "compared with `2026-06-01` or a time, UTC unless it says otherwise",
    "author": "",
    "message": "",
    "framework": "",
    "net": "the structure of the network: equal for networks that differ in weights alone",
    "n_nodes": "layers of the network",
    "n_params": "parameters of its network or, without one, of its weights",
    "depth": "of its longest path",
    "dirty": "whether git had uncommitted changes",
    "source": "of a network that a query derives: the version that it is made of",
    "tag": "holds if one of the tags fulfils it",
    "parents": 'holds if one of the parents fulfils it: `m.parents = "lenet@1"`',
}
FIGURES = """\
A bare name that is none of these is a hyperparameter, `m.hparams["two words"]` one
whose name is not one word. `m["loss"]` is a metric where a number is expected (`m.metrics["loss"]`
always): its last value; `.min` and `.max`; `.step`, `.min.step`, `.max.step` say where; `.at(100)`
is the value at a step, `.steps` how many there are. Otherwise it is a set of layers
(`m.nodes["loss"]` always).
"""
NAN = """\
NaN and infinities are values, and NaN is not null: `m["loss"] is nan`, `is not nan` (of null, too).
Comparisons with NaN are false, `!=` is true; with null they are null. In `order by` NaN comes
after all values and before nulls, ascending or descending; truth values come before numbers, then
strings, then lists. `min` and `max` skip NaN where there is a number, `sum`, `avg`, `median` and
`stddev` do not; `group by` and `distinct` take all NaN for one.
"""
NODES = """\
`m["conv*"]` are the layers of these names, `m[CONV(kernel=3, out>=64)]` those of a template.
`.next` and `.prev` go along the edges, past reshaping: from a `RESHAPE` to the layers that read its
data, and to the layer whose data it reshapes. `.next_raw` and `.prev_raw` do not pass anything.
`.next*` and `.prev*` are all layers that are reached so, in one step or many. `.count` is how many
there are, `[0]` one of them in topological order. A condition on a set holds if it holds for any of
them; `every` and `no` in front ask otherwise.

An attribute of layers, such as `m["conv1"].out`, is a value, too: selected, ordered by, or compared
with something that is not a constant. It is what all of the layers share, or else the list of what
each has; null where no layer has it.
"""


def rules() -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """(section, its rules as name and alternatives), in the order of the grammar."""
    found: list[tuple[str, list[tuple[str, list[str]]]]] = [("start", [])]
    for line in grammar_text().splitlines():
        if line.startswith("// ---"):
            found.append((line.rpartition("- ")[2].strip(), []))
            continue
        text = re.sub(r"\s//\s.*", "", line)
        if match := re.match(r"[?]?([a-z_]+)(?:\.\d)?:\s*(.*)", text):
            found[-1][1].append((match[1], [match[2]]))
        elif match := re.match(r"\s+\|\s*(.*)", text):
            found[-1][1][-1][1].append(match[1])
    sections = {name: held for name, held in found if name != "terminals"}
    # Of slice and construct as well.
    into = next(each for each in sections["evaluate"] if each[0] == "into")
    sections["evaluate"].remove(into)
    sections["mutate"].append(into)
    return list(sections.items())


def keywords() -> dict[str, str]:
    """Terminal -> how it is written, for all that are words or signs."""
    found = {}
    for name, pattern in re.findall(r"^([A-Z_]+)(?:\.\d)?: (.*)$", grammar_text(), re.MULTILINE):
        if match := re.fullmatch(r"/(\w+)\\b/i", pattern):
            found[name] = match[1]
        elif name == "_DOTS":
            found[name] = ".."
    return found


def rule(name: str, alternatives: list[str], words: dict[str, str]) -> list[str]:
    shown = [_written(text, words) for text in alternatives]
    head = f"{name.strip('_'):<13}"
    return [f"{head} = {shown[0]}", *(f"{'':<13} | {text}" for text in shown[1:])]


def _written(text: str, words: dict[str, str]) -> str:
    text = re.sub(r"\s*->\s*\w+\s*$", "", text).strip()
    text = re.sub(r"\b_?[A-Z_]+\b", lambda m: f'"{words[m[0]]}"' if m[0] in words else m[0], text)
    text = re.sub(r" {2,}", " ", text)
    return re.sub(r"\b([a-z_]+)_(?=[\s)\]*+?]|$)", r"\1", text)


def templates() -> list[str]:
    lines = [TEMPLATES]
    for op in OPS.values():
        if op.name in ("INPUT", "LOSS"):
            continue
        variants = ", ".join(f"`{name}`" for name in op.variants if name != "raw")
        named: dict[str, str] = {}
        for attribute in op.attributes:
            named.setdefault(attribute.name, _attribute(attribute))
        lines.append(f"| `{op.name}` | {variants} | {', '.join(named.values())} |")
    lines += [
        "",
        "Kinds of `RESHAPE`: " + ", ".join(f"`{kind}`" for kind in OPS["RESHAPE"].kinds) + ".",
    ]
    general = ", ".join(f"`{name}`" for name in GENERAL)
    lines += ["", f'Every node has {general}: `m["fc*"].n_params > 1000`.']
    return lines


def _attribute(attribute: Attribute) -> str:
    default = attribute.default
    if default is Default.REQUIRED or default is Default.FROM_SLOTS or default is None:
        return attribute.name
    text = str(default).lower() if isinstance(default, bool) else str(default)
    return f"{attribute.name} = {text}"


def attributes() -> list[str]:
    lines = ["## Attributes of versions", "", "| attribute | holds | |", "|---|---|---|"]
    for name, kind in {**COLUMNS, **dict.fromkeys(MANY, "several")}.items():
        lines.append(f"| `{name}` | {kind} | {ABOUT.get(name, '')} |")
    called = ", ".join(f"`{name}`" for name in AGGREGATES)
    functions = f"Functions over rows: {called}; {OVER_ROWS}\n\n{OF_VALUES}\n"
    return [*lines, "", FIGURES, functions, NAN, "## Layers", "", NODES, CHANGES]


def reference() -> str:
    words = keywords()
    lines = [HEAD]
    for section, held in rules():
        if not held:
            continue
        title, text = TITLES[section]
        lines += [f"## {title}", "", *([text, ""] if text else []), "```text"]
        for name, alternatives in held:
            lines += rule(name, alternatives, words)
        lines += ["```", ""]
    lines += [WORDS.replace("\\\\", "\\"), *attributes(), SELECTORS.replace("\\\\", "\\")]
    return "\n".join([*lines, *templates()]).rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.stdout.write(reference())
