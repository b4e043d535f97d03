"""Patterns of nodes, `POOL("MAX", kernel=2)` or `CONV(out>=64)`, and templates that make nodes,
`CONV("c2", out=64, kernel=3)`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from dlv.dataclass import dataclass
from dlv.errors import UsageError, nearest
from dlv.network.fields import FieldError, label
from dlv.network.graph import Network, Node, Port
from dlv.network.ops.op import op_of
from dlv.network.selector import Selector
from dlv.network.sizes import Shape
from dlv.network.vocabulary import OPS, attributes, complete

RAW = "raw"  # what an OP node is called where it comes from, beside its attributes
Operator = Callable[[Any, Any], bool]
OPERATORS: Mapping[str, Operator] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True)
class AttributeTest:
    """`out >= 64`"""

    name: str
    operator: str
    value: Any

    def __str__(self) -> str:
        return f"{self.name}{self.operator}{self.value!r}"


@dataclass(frozen=True)
class Pattern:
    """What a node has to be: its operation, and whatever else is said. `name`: its name fits.

    `raw`: of an OP node, its name where it comes from; aten.roll is aten.roll.default too.
    """

    op: str
    variant: str | None = None
    name: Selector | None = None
    tests: tuple[AttributeTest, ...] = ()
    raw: Selector | None = None

    def fits(self, op: str, variant: str | None, name: str, attrs: Mapping[str, Any]) -> bool:
        """`attrs` as `attributes_of` gives them."""
        return (
            op == self.op
            and (self.variant is None or variant == self.variant)
            and (self.name is None or name in self.name)
            and (self.raw is None or _called(attrs.get(RAW), self.raw))
            and all(
                compare(test.operator, attrs.get(test.name), test.value) is True
                for test in self.tests
            )
        )


def attributes_of(node: Node) -> Mapping[str, Any]:
    """What a node's attributes are to patterns, in the catalogue as well."""
    if not op_of(node).raw or node.source is None:
        return node.attrs
    return {**node.attrs, RAW: node.source.get("op")}


def _called(operation: Any, wanted: Selector) -> bool:
    if not isinstance(operation, str):
        return False
    dots = [at for at, sign in enumerate(operation) if sign == "." and at]
    return any(operation[:end] in wanted for end in (len(operation), *dots))


def compare(sign: str, found: Any, wanted: Any) -> bool | None:
    """Whether an attribute is as it is wanted; None if it is absent.

    A number stands for a list whose entries are all that number: `kernel=3` is `kernel=[3, 3]`,
    and `kernel>=3` asks it of every axis. Values of different kinds are just not equal.
    """
    if found is None or wanted is None:
        return None
    if sign == "!=":
        same = compare("=", found, wanted)
        return None if same is None else not same
    if _is_list(found) and not _is_list(wanted):
        entries = list(_entries(found))
        return bool(entries) and all(_single(sign, entry, wanted) for entry in entries)
    if _is_list(found) and _is_list(wanted):
        return sign == "=" and _listed(found) == _listed(wanted)
    return not _is_list(wanted) and _single(sign, found, wanted)


def _single(sign: str, found: Any, wanted: Any) -> bool:
    if isinstance(found, bool) != isinstance(wanted, bool):
        return False
    if isinstance(found, str) != isinstance(wanted, str):
        return False
    try:
        return bool(OPERATORS[sign](found, wanted))
    except TypeError:  # a date or a table of a configuration beside a number
        return False


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _listed(value: Any) -> Any:
    return [_listed(each) for each in value] if _is_list(value) else value


def _entries(value: Any) -> Iterator[Any]:
    for each in value:
        yield from _entries(each) if _is_list(each) else [each]


LONGEST = 2000
_WORDS = {"true": True, "false": False, "null": None}


@dataclass(frozen=True)
class Template:
    """What a new node is to be; without a name it gets its operation's word and a number.

    `also` names producers that it reads besides the one it is attached to.
    """

    op: str
    variant: str | None = None
    name: str | None = None
    attrs: Mapping[str, Any] = field(default_factory=dict)
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        words = [f'"{word}"' for word in (self.variant, self.name) if word is not None]
        words += [f"{name}={value!r}" for name, value in self.attrs.items()]
        return f"{self.op}({', '.join(words)})"


def template(op: str, /, *words: str, also: Sequence[str] = (), **attrs: Any) -> Template:
    """`words` are the variant, of an operation that has some, and the name."""
    known = [name for name, each in OPS.items() if not (each.raw or each.placeholder)]
    if op not in known:
        close = [name for name in known if name == op.upper()] or nearest(op, known)
        raise UsageError(
            f"no operation {op!r}", why="known: " + ", ".join(known), did_you_mean=close
        )
    left = list(words)
    variant = None
    if OPS[op].variants:
        if not left or left[0] not in OPS[op].variants:
            raise UsageError(
                f"{op} needs its variant first",
                why="it is one of " + ", ".join(OPS[op].variants),
                did_you_mean=nearest(left[0], OPS[op].variants) if left else (),
                hint=f'{op}("{OPS[op].variants[0]}", ..)',
            )
        variant = left.pop(0)
    if len(left) > 1:
        raise UsageError(f"{op} takes one name", why=f"given are {', '.join(left)}")
    try:
        for name in left:
            label(name, "the name of a node")
        known_attributes = attributes(op, variant, attrs)
    except FieldError as error:
        raise UsageError(f"{op}: {error.message}", did_you_mean=error.did_you_mean) from error
    for name in attrs:
        if name not in known_attributes:
            raise UsageError(
                f"{op} has no attribute {name!r}",
                why="it has " + (", ".join(known_attributes) or "none"),
                did_you_mean=nearest(name, known_attributes),
            )
    return Template(op, variant, left[0] if left else None, attrs, tuple(also))


def parse(text: str) -> tuple[Template, ...]:
    """One template, or several in brackets: `[CONV("a", out=8, kernel=3), RELU()]`."""
    problem = f"`{text[:80]}` is not a template"
    hint = 'write RELU("relu9"), POOL("MAX", kernel=2, stride=2) or [CONV(..), RELU()]'
    if len(text) > LONGEST:
        raise UsageError(problem, why=f"it is longer than {LONGEST} characters")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise UsageError(problem, why=str(error), hint=hint) from error
    several = tree.elts if isinstance(tree, (ast.List, ast.Tuple)) else [tree]
    if not several:
        raise UsageError(problem, why="the list is empty", hint=hint)
    return tuple(_template(item, problem, hint) for item in several)


def _template(tree: ast.expr, problem: str, hint: str) -> Template:
    if isinstance(tree, ast.Name):
        return template(tree.id)
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise UsageError(problem, hint=hint)
    words = [_value(item, problem, hint) for item in tree.args]
    attrs: dict[str, Any] = {}
    for item in tree.keywords:
        if item.arg is None:
            raise UsageError(problem, hint=hint)
        attrs[item.arg] = _value(item.value, problem, hint)
    for word in words:
        if not isinstance(word, str):
            raise UsageError(problem, why=f"{word!r} has no name", hint=hint)
    also = attrs.pop("also", ())
    also = (also,) if isinstance(also, str) else also
    if not isinstance(also, (list, tuple)) or not all(isinstance(name, str) for name in also):
        raise UsageError(problem, why="`also` takes the names of nodes", hint=hint)
    name = attrs.pop("name", None) if "name" not in _own(tree.func.id, words, attrs) else None
    return template(tree.func.id, *words, *([name] if name else []), also=also, **attrs)


def _own(op: str, words: Sequence[str], attrs: Mapping[str, Any]) -> Mapping[str, Any]:
    """The attributes of an operation, as far as it is one."""
    try:
        return attributes(op, words[0] if words else None, attrs) if op in OPS else {}
    except FieldError:
        return {}


def _value(tree: ast.expr, problem: str, hint: str) -> Any:
    if isinstance(tree, ast.Name) and tree.id in _WORDS:
        return _WORDS[tree.id]
    try:
        return ast.literal_eval(tree)
    except (ValueError, TypeError, MemoryError, RecursionError) as error:
        raise UsageError(problem, why="only numbers, strings and lists", hint=hint) from error


@dataclass(frozen=True)
class Habits:
    """How a network stores its weights and maps, which new nodes follow."""

    channels: str = "first"
    layouts: Mapping[str, str] = field(default_factory=dict)  # by operation

    @staticmethod
    def of(network: Network) -> Habits:
        channels = "first"
        layouts: dict[str, str] = {}
        for node in reversed(network.nodes):
            channels = node.attrs.get("channels", channels)
            layouts.update(op_of(node).habits(node))
        return Habits(channels, layouts)


def build(
    template: Template, name: str, inputs: tuple[Port, ...], shape: Shape | None, habits: Habits
) -> Node:
    """The node of a template; `shape` is that of what it reads first."""
    given = dict(template.attrs)
    known = attributes(template.op, template.variant, given)
    rank = None if shape is None else len(shape)
    last = habits.channels == "last" and rank is not None and rank > 2
    if "channels" in known:
        given.setdefault("channels", habits.channels)
    if "layout" in known and template.op in habits.layouts:
        given.setdefault("layout", habits.layouts[template.op])
    if last and OPS[template.op].turned(template.variant):
        given.setdefault("axis", (rank or 0) - 1)
    axes = rank - 2 if rank is not None and rank > 2 else None
    fresh = ("bias",) if "bias" not in given else ()
    try:
        attrs = complete(template.op, template.variant, given, axes=axes, params=fresh)
    except FieldError as error:
        raise UsageError(
            f"{template}: {error.message}",
            why=error.why,
            hint=error.hint,
            did_you_mean=error.did_you_mean,
        ) from error
    params = {
        slot: f"{name}.{slot}" for slot in OPS[template.op].fresh_slots(template.variant, attrs)
    }
    return Node(name, template.op, template.variant, attrs, inputs, params)
