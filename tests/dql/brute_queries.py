"""Queries by lot, as texts, of what a repository holds."""

from __future__ import annotations

from collections.abc import Sequence

from tests.dql.brute_repositories import SAVED, Made
from tests.dql.brute_words import Draw, Words

_SIGNS = ("=", "!=", "<", "<=", ">", ">=", "<>", "==")
_OF_GROUPS = (
    *("count(*)", "avg(m.lr)", "count(m.lr)", "max(m.lr)", "coalesce(max(m.lr), 1)", "-max(m.lr)"),
    *(
        "count(distinct m.lr)",
        "case when count(*) > 2 then max(m.lr) end",
        "argmin(m.number, m.lr)",
        "argmax(m.n_params, m.batch_size)",
    ),
)
_KINDS = ('"hyperparameter"', '"metric"', '"layer"')
_TAG_PATTERNS = ('"%prod%"', '"x_%"', '"_ld"', '"%"', '"P%"')


class Queries(Words):
    def __init__(self, draw: Draw, made: Made) -> None:
        super().__init__(draw, made)
        self._inner = 0

    def variable(self) -> str:
        """One that nothing else is called."""
        self._inner += 1
        return f"v{self._inner}"

    # Values

    def metric_of(self, variable: str) -> str:
        metric = self.metric()
        if self.rarely(8):
            return f"{variable}.metrics[{metric}]"
        tails = ("", "", ".last", ".min", ".max", ".steps", ".step", ".min.step", ".max.step")
        at = f".at({self.whole(0, 11)})"
        return f"{variable}[{metric}]{self.one((*tails, at))}"

    def number_of(self, variable: str, depth: int = 1) -> str:
        key = self.one(("lr", "batch_size", "n", "optim.lr", 'hparams["a b"]', 'hparams["lr"]'))
        column = self.one(("number", "n_nodes", "n_params", "depth", "N_Nodes"))
        found = [f"{variable}.{key}", f"{variable}.{column}", self.metric_of(variable)]
        if depth:
            if self.rarely(3):
                found.append(f"{self.nodes(variable)}.count")
            if self.rarely(5):
                left, right = self.number_of(variable, 0), self.number_of(variable, 0)
                sign = self.one(("+", "-", "*", "/", "%"))
                right = self.one((self.number(), right))
                return self.one((f"({left} {sign} {right})", f"-{left}"))
            if self.rarely(8):
                return f"{self.nodes(variable)}.{self.one(('out', 'n_params'))}"
            if self.rarely(8):
                value = self.number_of(variable, 0)
                return self.one((f"abs({value})", f"round({value}, 1)", f"length({variable}.name)"))
            if self.rarely(8):
                n = self.variable()
                figure = self.one(("max", "avg", "count", "min"))
                where = self.one(("", f" where {n}.name = {variable}.name"))
                return f"(select {figure}({self.number_of(n, 0)}) from {n}{where})"
            if self.rarely(8):
                test, value = self.test(variable, 0), self.number_of(variable, 0)
                second = self.one(("", f" when {self.test(variable, 0)} then {self.number()}"))
                last = self.one(("", f" else {self.number_of(variable, 0)}"))
                return f"case when {test} then {value}{second}{last} end"
            if self.rarely(8):
                return f"coalesce({self.number_of(variable, 0)}, {self.number()})"
        return self.one(found)

    def text_of(self, variable: str) -> str:
        names = ("name", "optimizer", "note", "author", "message", "framework", "Name")
        found = f"{variable}.{self.one(names)}"
        if self.rarely(12):
            return self.one((f"lower({found})", f"upper({found})"))
        return f'coalesce({found}, "x")' if self.rarely(12) else found

    def boolean_of(self, variable: str) -> str:
        return f"{variable}.{self.one(('use_bn', 'frozen', 'dirty'))}"

    def value_of(self, variable: str) -> str:
        makes = (self.number_of, self.text_of, self.boolean_of)
        return self.one(makes)(variable)

    # Conditions

    def condition(self, variables: Sequence[str], depth: int = 3) -> str:
        if depth and self.rarely(1):
            left = self.condition(variables, depth - 1)
            form = self.one(("and", "or", "not", "and", "or", "()"))
            if form == "not":
                return f"not ({left})"
            if form == "()":
                return f"({left})"
            right = self.condition(variables, depth - 1)
            return self.one((f"{left} {form} {right}", f"({left}) {form} not ({right})"))
        if len(variables) > 1 and self.rarely(2):
            return self.join(variables[0], variables[1])
        return self.test(self.one(variables), depth)

    def test(self, m: str, depth: int) -> str:
        makes = [
            self.numbers,
            self.texts,
            self.of_nodes,
            self.of_nodes,
            self.others,
            self.identities,
        ]
        if depth:
            makes.append(self.subqueries)
        return self.one(makes)(m)

    def numbers(self, m: str) -> str:
        value, other = self.number_of(m), self.number()
        no = self.one(("", "", "not "))
        return self.one(
            (
                f"{value} {self.one(_SIGNS)} {other}",
                f"{value} {self.one(_SIGNS)} {self.number_of(m)}",
                f"{value} {no}between {other} and {self.number()}",
                f"{value} {no}in [{self.some(self.number)}]",
                f"{value} {no}in ({other}, {self.number()})",
                f"{value} {no}in [1..8, {other}]",
                f"{value} is {no}null",
                f"{value} is {no}nan",
                f"{value} is {no}{self.one(('nan', 'null'))}",
                f"{other} {self.one(_SIGNS)} {value}",
                f"{other} {self.one(_SIGNS)} {self.number()} or {value} > 0",
                f"{value} {no}in $some",
            )
        )

    def texts(self, m: str) -> str:
        value, other = self.text_of(m), self.text()
        no = self.one(("", "", "not "))
        return self.one(
            (
                f"{value} {self.one(_SIGNS)} {other}",
                f"{value} {no}like {self.pattern()}",
                f"{value} {no}ilike {self.pattern()}",
                f"{value} {no}in ({other}, {self.text()})",
                f"{value} is {no}null",
                f'{value} {no}matches "{self.one(("alex*", "*[1-3]", "?dam", "*[18,34]"))}"',
                f"{value} {no}between {other} and {self.text()}",
                f'{value} {no}like "%!_%" escape "!"',
                f"{value} {self.one(_SIGNS)} {self.text_of(m)}",
                f"{value} like {m}.name",
            )
        )

    def others(self, m: str) -> str:
        boolean, no = self.boolean_of(m), self.one(("", "not "))
        literal = self.one(("true", "false", "1", '"1"', "0", "2.5", '""'))
        return self.one(
            (
                f"{m}.creation_time {self.one(_SIGNS)} {self.moment()}",
                boolean,
                f"{no}{boolean}",
                f"{boolean} {self.one(('=', '!='))} {self.one(('true', 'false'))}",
                f"{boolean} is {no}null",
                f"{m}.mixed is {no}nan",
                f"{m}.mixed {self.one(_SIGNS)} {literal}",
                f"{m}.mixed {no}in [{literal}, 2.5, true]",
                f"{m}.layers {self.one(('=', '!='))} 3",
                f"{m}.layers is {no}null",
                f"{m}.layers {self.one(('=', '!='))} [32, 64]",
                f"{m}.mixed {self.one(('=', '!='))} {self.value_of(m)}",
                f"{m}.mixed {no}like {self.pattern()}",
                f"{m}.creation_time {no}between {self.moment()} and {self.moment()}",
                f"{m}.net is {no}null",
            )
        )

    def identities(self, m: str) -> str:
        """Tags, parents, versions by reference, and lineage to them."""
        tag, reference = self.tag(), self.reference()
        no = self.one(("", "not "))
        within = self.one(("", " within 2", " within 3"))
        return self.one(
            (
                f"{m}.tag {self.one(('=', '!='))} {tag}",
                f"{m}.tag is {no}null",
                f"{m}.tag {no}like {self.one(_TAG_PATTERNS)}",
                f"{m}.tag {no}ilike {self.one(_TAG_PATTERNS)}",
                f"{m}.tag {no}in ({tag}, {self.tag()})",
                f"{m}.parents is {no}null",
                f"{m}.parents {self.one(('=', '!='))} {reference}",
                f"{m} {self.one(('=', '!='))} {reference}",
                f"{m} {no}in [{reference}, {self.reference()}]",
                f"{m}.id {no}in ({reference}, {self.reference()})",
                f"{m}.id {self.one(('=', '!='))} {reference}",
                f"{m} derived_from {reference}{within}",
                f"{m} ancestor_of {reference}{within}",
                f"{reference} ancestor_of {m}{within}",
                f"{m} child_of {reference}",
                f"{reference} child_of {m}",
                f"{m} parent_of {reference}",
                f"{m} sibling_of {reference}{within}",
            )
        )

    def of_nodes(self, m: str) -> str:
        which = self.one(("", "", "any ", "every ", "no "))
        no = self.one(("", "not "))
        templates = self.template()
        if self.rarely():
            templates += f" | {self.template()}"
        return self.one(
            (
                f"{which}{self.nodes(m)} {no}has {templates}",
                f"{which}{self.nodes(m)} {no}has {templates}",
                f"{which}{self.node_test(m)}",
                f"{which}{self.captured(m)}",
                f"exists {self.nodes(m)}",
                f"{no}exists {self.nodes(m)}",
                f"{self.nodes(m)}.count {self.one(_SIGNS)} {self.whole(0, 4)}",
            )
        )

    def captured(self, m: str) -> str:
        """Nodes beside those that are numbered alike."""
        kind = self.one(("conv*", "conv?", "relu*", "fc*", "pool?", "features.?"))
        way = self.one((".next", ".next", ".prev", ".next.next", "", ".next_raw"))
        other = self.one(
            ('RELU("relu$1")', 'POOL("MAX", "pool$1")', 'CONV(name = "conv$1")', 'RELU("*$1")')
        )
        more = self.one(("", "", ' | POOL("AVG")'))
        return f'{m}["{kind}($1)"]{way} {self.one(("", "not "))}has {other}{more}'

    def subqueries(self, m: str) -> str:
        n, no = self.variable(), self.one(("", "not "))
        where = self.condition([n], 1)
        return self.one(
            (
                f"{m} {no}in (select {n} where {where})",
                f"{m}.id {no}in (select {n} from {n} where {where})",
                f"{m}.lr {no}in (select {n}.lr where {where})",
                f"{m}.name {no}in (select {n}.name where {where} limit 3)",
                f"{m} {no}in {self.one(tuple(_quoted(name) for name in list(SAVED)[:2]))}",
                f'{m}.lr {no}in "rates"',
                f"{no}exists (select {n} where {self.join(n, m)} and {where})",
                f"exists (select {n} from {n} where {self.condition([n, m], 1)})",
                f"{self.metric_of(m)} {no}in (select {self.metric_of(n)} where {where})",
                self.best(m, n),
                f"{m}.batch_size {no}in (select max({n}.batch_size) where {where})",
                f"{m} {no}in (select {n} where {where} union select {n} where {n}.number = 1)",
            )
        )

    def best(self, m: str, n: str) -> str:
        """That no other version of its name is better."""
        metric, sign = self.metric_of(m), self.one(("<", ">", "<=", "!="))
        other = f"{n}{metric.removeprefix(m)}"
        known = self.one(("", f" and {metric} is not nan"))
        alike = f"{n}.name = {m}.name and {other} {sign} {metric}"
        return f"not exists (select {n} where {alike}){known}"

    def join(self, a: str, b: str) -> str:
        number, text = self.number_of(a, 0), self.text_of(a)
        relation = self.one(("derived_from", "ancestor_of", "child_of", "parent_of", "sibling_of"))
        within = self.one(("", " within 2")) if relation[-2:] != "of" or relation[0] in "as" else ""
        tail = number.removeprefix(a)
        return self.one(
            (
                f"{a} {relation} {b}{within}",
                f"{number} {self.one(_SIGNS)} {b}{tail}",
                f"{text} {self.one(('=', '!=', '<'))} {self.text_of(b)}",
                f"{a}.net {self.one(('=', '!='))} {b}.net",
                f"{a} {self.one(('=', '!='))} {b}",
                f"{a}.id < {b}.id",
                f"{a}.creation_time {self.one(('<', '>=', '='))} {b}.creation_time",
                f"{a}.mixed {self.one(('=', '!='))} {b}.mixed",
                f"{a}.layers {self.one(('=', '!='))} {b}.layers",
                f"{a}.use_bn = {b}.frozen",
                f"{a}.name like {b}.name",
                f"{self.nodes(a)}.count > {self.nodes(b)}.count",
            )
        )

    # What differs between two versions

    def change_test(self) -> str:
        value = self.one(("c.before", "c.after"))
        layers = self.one(('"conv1.out"', '"fc1"', '"pool1.variant"'))
        return self.one(
            (
                f"c.kind {self.one(('=', '!='))} {self.one(_KINDS)}",
                f'c.name in ({layers}, {self.metric()}, "lr", "mixed", "layers")',
                f"c.name like {self.pattern()}",
                f"{value} is {self.one(('', 'not '))}{self.one(('null', 'nan'))}",
                f"{value} {self.one(_SIGNS)} {self.one((self.number(), self.text()))}",
                f'c.before {self.one(_SIGNS)} c.after and c.kind = "metric"',
                f"c.before {self.one(('=', '!='))} c.after",
                f"{value} {self.one(_SIGNS)} {self.number_of('b', 0)}",
                f"abs({value}) > {self.number()}",
                self.test("b", 0),
            )
        )

    def changed(self) -> str:
        ends = self.one(("a, b", "b, a", f"b, {self.reference()}"))
        source = "a, b, c" if "a" in ends.split(", ") else "b, c"
        where = f"{self.join('a', 'b')} and {self.change_test()}"
        if source == "b, c":
            where = self.change_test()
        columns = self.one(("b, c.kind, c.name, c.before, c.after", "c.name, c.after, b.number"))
        text = f"{source} in changes({ends}) where {where}"
        if self.rarely():
            grouped = "select c.name, count(*), count(distinct c.after) from"
            return f"{grouped} {text} group by c.name order by count(*) desc"
        if self.rarely():
            nested = f"select b from {text}"
            return f"select m where m in ({nested})"
        keys = ["c.name", "c.before", "c.after", "b.number"]
        return f"select {columns} from {text}{self.order(keys)}"

    # Queries

    def query(self) -> str:
        return self.one(
            (
                self.versions,
                self.versions,
                self.values,
                self.joined,
                self.grouped,
                self.combined,
                self.nested,
                self.distinct,
                self.changed,
            )
        )()

    def where(self, variables: Sequence[str], depth: int = 3) -> str:
        return "" if self.rarely(6) else f" where {self.condition(variables, depth)}"

    def order(self, keys: Sequence[str]) -> str:
        """`order by` some of the keys, and `limit`, which is only fair where an order is full."""
        found = ""
        if keys and self.rarely(1):
            direction = self.one(("", " asc", " desc", " desc nulls first", " nulls first"))
            found = f" order by {self.one(keys)}{direction}"
            if self.rarely(3):
                found += f", {self.one(keys)} desc nulls last"
        if self.rarely(2):
            found += f" limit {self.one((0, 1, 3, 10, '$three'))}"
            if self.rarely():
                found += f" offset {self.one((1, 2, 30))}"
        return found

    def keys(self, m: str) -> list[str]:
        known = [self.number_of(m), self.text_of(m), f"{m}.creation_time", self.boolean_of(m)]
        return [*known, self.one((self.metric_of(m), f"{m}.mixed"))]

    def versions(self) -> str:
        source = self.one(("", "", " from m"))
        return f"select m{source}{self.where(['m'])}{self.order(self.keys('m'))}"

    def column(self, m: str) -> str:
        # As columns, `m["conv*"]` is nodes, and `m["loss"]` is that metric.
        return self.one(
            (
                m,
                self.value_of(m),
                f"{m}.creation_time",
                f"{m}.id",
                f"{m}.net",
                f"{m}.mixed",
                f"{m}.layers",
                f"{m}.tag",
                f"{m}.parents",
                f"{self.nodes(m)}.next",
                f'{m}["conv*"]',
                f'{m}["loss"]',
            )
        )

    def values(self) -> str:
        columns = [self.column("m") for _ in range(self.whole(1, 4))]
        keys = self.keys("m")
        if self.rarely():
            columns.append(f"{self.number_of('m')} as best")
            keys.append("best")
        if self.rarely(8):
            columns = ["*"]
            return f"select * from m{self.where(['m'])}{self.order(keys[:4])}"
        return f"select {', '.join(columns)} from m{self.where(['m'])}{self.order(keys)}"

    def joined(self) -> str:
        source = self.one(("", " from a, b", " from a, b in (inner)", ' from a in "good", b'))
        if "inner" in source:
            n = self.variable()
            source = source.replace("inner", f"select {n}{self.where([n], 1)} limit 5")
        condition = self.join("a", "b")
        if self.rarely(1):
            condition += f" and {self.condition(['a', 'b'], 2)}"
        if self.rarely(6):
            condition = f"({condition} or {self.condition(['a', 'b'], 1)})"
        columns = self.one(("a, b", "a.name, b.name, a.lr", "a, b.number", "a, b, a.lr - b.lr"))
        if not source and columns != "a, b":
            columns = "a, b"
        keys = [self.number_of("a"), self.text_of("b"), "b.creation_time"]
        return f"select {columns}{source} where {condition}{self.order(keys)}"

    def aggregate(self, m: str) -> str:
        function = self.one(("count", "avg", "sum", "min", "max", "median", "count"))
        metric = f"{function}({self.metric_of(m)})"
        forms = (
            f"{function}({self.number_of(m)})",
            metric,
            "count(*)",
            f"count({m})",
            f"count({m}.mixed)",
        )
        more = (f"stddev({self.number_of(m, 0)})", f"min({self.text_of(m)})", f"avg({m}.mixed)")
        return self.one((*forms, *more))

    def grouped(self) -> str:
        by = [
            self.one((self.text_of("m"), self.boolean_of("m"), self.number_of("m"), "m.net"))
            for _ in range(self.whole(0, 2))
        ]
        aggregates = [self.aggregate("m") for _ in range(self.whole(1, 2))]
        columns = [*by, *aggregates]
        if self.rarely(3):
            columns = columns[::-1]
        if self.rarely():
            columns.append(f"{aggregates[0]} * 2 as twice" if "min(" not in aggregates[0] else "2")
        text = f"select {', '.join(columns)} from m{self.where(['m'], 2)}"
        if by:
            text += f" group by {', '.join(by)}"
            if self.rarely(2):
                text += f" having {self.one(_OF_GROUPS)}"
                text += f" {self.one(('>', '>=', '<'))} {self.one(('1', '2', '0.25'))}"
        keys = [*by, "count(*)", "max(m.number)", "max(m.lr)", "coalesce(min(m.lr), 0)"]
        keys = keys if by else []
        return text + self.order(keys)

    def distinct(self) -> str:
        columns = [
            self.one((self.text_of("m"), self.boolean_of("m"), self.number_of("m"), "m.net"))
        ]
        if self.rarely(2):
            columns.append(self.one(("m.lr", "m.number", "m.optimizer")))
        if self.rarely(6):
            columns = ["m"]
        source = self.one((" from m", " from m", " from m, k", ' from m in "good", k'))
        text = f"select distinct {', '.join(columns)}{source}{self.where(['m'], 2)}"
        return text + self.order([c for c in columns if c != "m"])

    def combined(self) -> str:
        columns = self.one(("{}", "{}", "{}.name", "{}.lr, {}.name", "{}, {}.lr", "{}.mixed"))
        sides = []
        for m in ("a", "b", "c")[: self.whole(2, 3)]:
            side = f"select {columns.format(m, m)} from {m}{self.where([m], 2)}"
            limited = self.order([f"{m}.number", f"{m}.name"]) if self.rarely() else ""
            sides.append(f"({side}{limited})" if limited else side)
        text = sides[0]
        for side in sides[1:]:
            text += f" {self.one(('union', 'union all', 'intersect', 'except'))} {side}"
        if "union all" in text:  # a version may stand there twice
            return text + self.order([])
        keys = ["a.name", "a.lr", 'a["loss"].min', "a.creation_time"]
        if columns == "{}.mixed":
            return text
        return text + self.order(keys if columns == "{}" else [])

    def nested(self) -> str:
        n = self.variable()
        inner = f"select {n} from {n}{self.where([n], 2)}{self.order(self.keys(n))}"
        form = self.one(
            ("from m in (inner)", "from (inner) as m", "from (inner)", 'from m in "two words"')
        )
        if form.endswith("(inner)") and self.rarely(3):
            inner += (
                f" union select {n} from {n}{self.where([n], 1)}" if "limit" not in inner else ""
            )
            if "order by" in inner:
                inner = f"select {n} from {n}"
        source = form.replace("inner", inner)
        return f"select m {source}{self.where(['m'], 2)}{self.order(self.keys('m'))}"


def _quoted(name: str) -> str:
    return f'"{name}"'


# Lots may fall so that a name means two things, an operation is asked what it never has, or 1 / 0
# is compared.
REFUSED = ("is both a metric and a node", "has no attribute", "nothing equals null", "was removed")
