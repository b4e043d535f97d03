"""Words of queries by lot: constants, names of nodes, templates."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

from tests.dql.brute_model import Layer, Version
from tests.dql.brute_repositories import METRICS, NAMES, OPTIMIZERS, TAGS, Made

T = TypeVar("T")
Draw: TypeAlias = Callable[[int, int], int]  # a number from .. to

NUMBERS = ("0", "1", "0.5", "0.25", "0.125", "2", "3", "7", "32", "64", "-1", "2.5", "1e-3")
_RECKONED = ("(1 + 2)", "(0.5 * 2)", "(1 / 0)", "(-7 % 3)", "(3 - 2 * 4)", "-(2)", "(1 / 4)")
# Bound from outside.
PARAMETERS = {"half": 0.5, "three": 3, "adam": "adam", "some": [0.5, 0.25, 32], "names": ["lenet"]}
_PATTERNS = ("alex%", "alexnet_%", "%1%", "_lex%", "%", "", "%net", "A%", "x", "%ÄR%", "100\\%")
_SELECTORS = (
    *("conv*", "*", "conv[1,3,5]", "conv[1-3]", "conv?", "fc*", "relu*", "pool[!2]", "features.*"),
    *("*.0", "[a-f]*", "conv1", "conv2", "fc7", "full1", "add1", "nothing*", "*view", "conv*($1)"),
)
_NUMBERED = ("out", "kernel", "stride", "pad", "p", "heads", "slope", "n_params", "axis", "groups")
_TEXTS = ("name", "alias", "op", "variant", "layout")


def quoted(text: str) -> str:
    """The text as a string of a query."""
    for sign, written in (("\\", "\\\\"), ('"', '\\"'), ("\t", "\\t")):
        text = text.replace(sign, written)
    return f'"{text}"'


class Words:
    def __init__(self, draw: Draw, made: Made) -> None:
        self.draw = draw
        self.made = made

    def one(self, options: Sequence[T]) -> T:
        """One of them; the first ones are what a failing query shrinks to."""
        return options[self.draw(0, len(options) - 1)]

    def whole(self, low: int, high: int) -> int:
        return self.draw(low, high)

    def rarely(self, often: int = 4) -> bool:
        return self.whole(0, often) == often

    def some(self, make: Callable[[], str], low: int = 1, high: int = 3) -> str:
        return ", ".join(make() for _ in range(self.whole(low, high)))

    # Constants

    def number(self) -> str:
        if self.rarely(20):
            return self.one(("$half", *_RECKONED))
        return self.one(NUMBERS)

    def text(self) -> str:
        if self.rarely(20):
            return "$adam"
        return quoted(
            self.one((*NAMES, *OPTIMIZERS, "x", "100%", "torch", "ärger", "straße", "zz"))
        )

    def pattern(self) -> str:
        return quoted(self.one(_PATTERNS))

    def moment(self) -> str:
        day = datetime.date(2015, 11, 8) + datetime.timedelta(days=self.whole(0, 40))
        rest = self.one(("", "T12:00:00", "T00:00:00+02:00", "T16:26:40Z"))
        return quoted(f"{day}{rest}")

    def version(self) -> Version:
        return self.one(self.made.model.all)

    def reference(self) -> str:
        version = self.version()
        forms = [version.id, version.id[:12]]
        if version.number is not None:
            forms.append(f"{version.name}@{version.number}")
            first = self.made.model.by_id.get(version.parents[0]) if version.parents else None
            if first is not None:
                forms.append(f"{version.name}@{version.number}~1")
        forms += version.tags
        return quoted(self.one(forms[::-1]))

    def tag(self) -> str:
        return quoted(self.one((*TAGS, "none")))

    def metric(self) -> str:
        return quoted(self.one((*METRICS, "test/accuracy")))

    # Networks

    def layer(self) -> Layer:
        graphs = [version.graph for version in self.made.model.visible if version.graph]
        return self.one(list(self.one(graphs).layers.values()))

    def selector(self) -> str:
        """With its brackets."""
        if self.rarely(12):
            return self.one(('[re"^conv"]', '[re"[0-9]$"]', r'[re"\.\d"]', '[re"(conv|fc)[12]"]'))
        if self.rarely(3):
            layer = self.layer()
            name = self.one((layer.name, layer.alias or layer.name))
            for sign in "[]":
                name = name.replace(sign, f"\\{sign}")
            return f"[{quoted(name)}]"
        return f"[{quoted(self.one(_SELECTORS))}]"

    def template(self) -> str:
        layer = self.layer()
        if layer.op == "OP":
            return self.one(("OP", 'OP("aten.roll")', 'OP("aten.*")', 'OP("aten.roll.default")'))
        args = []
        if layer.variant is not None and not self.rarely():
            args.append(quoted(layer.variant))
            if self.rarely():
                args.append(quoted(self.one((layer.name[:2] + "*", "*"))).replace("n[", "n\\\\["))
        attrs = [name for name, value in layer.attrs.items() if _plain(value) is not None]
        if attrs and self.rarely(2):
            name = self.one(attrs)
            value = _plain(layer.attrs[name])
            sign = "=" if isinstance(value, (str, bool)) else self.one(("=", ">=", "<", "!="))
            args.append(f"{name} {sign} {_written(value)}")
        return f"{layer.op}({', '.join(args)})" if args or self.rarely() else layer.op

    def node_selector(self) -> str:
        return f"[{self.template()}]" if self.rarely(3) else self.selector()

    def nodes(self, variable: str) -> str:
        """A set of nodes."""
        found = variable + (".nodes" + self.selector() if self.rarely(8) else self.node_selector())
        for _ in range(self.one((0, 0, 1, 1, 1, 2, 3))):
            found += self.one(
                (
                    *(".next", ".prev", ".next", ".next_raw", ".prev_raw", "[0]", "[1]", "select"),
                    *(".next*", ".prev*"),
                )
            ).replace("select", self.node_selector())
        return found

    def node_test(self, variable: str) -> str:
        """On an attribute of the nodes of a set."""
        nodes = self.nodes(variable)
        if self.rarely(3):
            value = f"{nodes}.{self.one(_TEXTS)}"
            layer = self.layer()
            text = quoted(str(layer.value(self.one(("name", "op", "variant"))) or "MAX"))
            tests = (
                *(f"{value} = {text}", f"{value} != {text}", f'{value} like "%1"'),
                *(f'{value} not like "c%"', f'{value} matches "conv[1-3]"', f"{value} > {text}"),
                *(f"{value} not in ({text}, {text})", f'{value} ilike "CONV%"'),
            )
            return self.one(tests)
        value = f"{nodes}.{self.one(_NUMBERED)}"
        number = self.one(("3", "4", "8", "1", "0.5", "0", "64", "5", "2"))
        return self.one(
            (
                f"{value} {self.one(('=', '!=', '<', '>='))} {number}",
                f"{value} in [{number}, 3]",
                f"{value} between 2 and {number}",
                f"{value} not in [{number}]",
                f"{value} not between {number} and 4",
                f"{number} < {value}",
                f"{nodes}.kernel {self.one(('=', '!='))} [3, 5]",
                f"{nodes}.bias = {self.one(('true', 'false'))}",
            )
        )


def _plain(value: Any) -> Any:
    """What a query can write for an attribute: a list of equal numbers is that number."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, tuple) and value and len(set(value)) == 1 and isinstance(value[0], int):
        return value[0]
    return None


def _written(value: Any) -> str:
    if isinstance(value, str):
        return quoted(value)
    return str(value).lower() if isinstance(value, bool) else repr(value)
