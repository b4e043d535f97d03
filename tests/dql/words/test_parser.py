"""The language: what parses and what does not, trees, and what is said of faults."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lark import Lark

from dlv.dql.words import ast, tables
from dlv.dql.words.diagnosis import SyntaxFault
from dlv.dql.words.parser import parse
from dlv.dql.words.tables import grammar_text

FOLDER = Path(__file__).parents[1]


def lines(name: str) -> list[str]:
    """One query per line; a line break in a query is written as a backslash and an n."""
    text = (FOLDER / name).read_text(encoding="utf-8")
    return [line.replace("\\n", "\n") for line in text.splitlines()]


VALID, INVALID = lines("valid.txt"), lines("invalid.txt")


@pytest.mark.parametrize("text", VALID)
def test_valid(text: str) -> None:
    assert parse(text)


@pytest.mark.parametrize("text", INVALID)
def test_invalid(text: str) -> None:
    with pytest.raises(SyntaxFault) as caught:
        parse(text)
    fault = caught.value
    assert 0 <= fault.start <= len(text)
    assert fault.message.startswith(f"dql:{fault.line}:{fault.column}: ")
    shown, mark = fault.caret()
    assert set(mark) <= {" ", "^"}
    assert "^" in mark
    assert len(shown) >= mark.index("^")


def test_the_grammar_is_unambiguous() -> None:
    pytest.importorskip("interegular", reason="lark needs it to look for collisions")
    Lark(grammar_text(), parser="lalr", strict=True)


def test_no_sign_is_hidden_by_another() -> None:
    """A literal that another terminal matches too would lose what it says."""
    grammar = Lark(grammar_text(), parser="lalr")
    signs = [t for t in grammar.terminals if t.pattern.type == "str"]
    for sign in signs:
        value = sign.pattern.value
        for other in grammar.terminals:
            if other is not sign:
                assert not re.fullmatch(other.pattern.to_regexp(), value), (sign, other)


def only(text: str) -> ast.Query:
    (found,) = parse(text)
    assert isinstance(found, ast.Query)
    return found


def condition(text: str) -> ast.Expression:
    body = only(f"select m where {text}").body
    assert isinstance(body, ast.Select)
    assert body.where is not None
    return body.where


def m(*trailers: ast.Trailer) -> ast.Path:
    return ast.Path("m", trailers)


ID, A = ast.Attribute("id"), ast.Attribute("a")
ONE, TWO = ast.Number(1), ast.Number(2)


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("m.id = 1", ast.Compare("=", m(ID), ONE)),
        ("m.id == 1", ast.Compare("=", m(ID), ONE)),
        ("m.id <> 1", ast.Compare("!=", m(ID), ONE)),
        ("m.a = 2--1", ast.Compare("=", m(A), ast.Binary("-", TWO, ast.Unary("-", ONE)))),
        (
            "m.a + 1 * 2 > 1",
            ast.Compare(">", ast.Binary("+", m(A), ast.Binary("*", ONE, TWO)), ONE),
        ),
        (
            "not m.a = 1 and m.a = 2 or m.id = 1",
            ast.Or(
                (
                    ast.And(
                        (ast.Unary("not", ast.Compare("=", m(A), ONE)), ast.Compare("=", m(A), TWO))
                    ),
                    ast.Compare("=", m(ID), ONE),
                )
            ),
        ),
        (
            'every m["c*"].next has A | B(1, x=2, y>=1)',
            ast.Quantified(
                "every",
                ast.Has(
                    m(ast.Selector("c*"), ast.Attribute("next")),
                    False,
                    (
                        ast.Template("A", (), False),
                        ast.Template(
                            "B",
                            (
                                ast.Argument(ONE),
                                ast.Argument(TWO, "x"),
                                ast.Argument(ast.Compare(">=", ast.Path("y"), ONE)),
                            ),
                            True,
                        ),
                    ),
                ),
            ),
        ),
        (
            'm.a not like "x\\%" escape "\\\\"',
            ast.Like(m(A), True, ast.Text("x\\%"), False, "\\"),
        ),
        ("m.a between 1 and 2", ast.Between(m(A), False, ONE, TWO)),
        ("m.a is not null", ast.IsNull(m(A), True)),
        ("m.a in (1, 2)", ast.In(m(A), False, ast.Group((ONE, TWO)))),
        ("m.a in (1)", ast.In(m(A), False, ast.Group((ONE,)))),
        ("m.a not in $p", ast.In(m(A), True, ast.Parameter("p"))),
        ('m in "q"', ast.In(m(), False, ast.Saved("q"))),
        ("m.a in [-1, 1..2:.5]", ast.In(
            m(A), False, ast.Listing((ast.Unary("-", ONE), ast.Stretch(1, 2, 0.5))))),
        ('m derived_from "x" within 3', ast.Lineage("derived_from", m(), ast.Text("x"), 3)),
        ("exists m[CONV]", ast.Exists(m(ast.TypeSelector(ast.Template("CONV", (), False))))),
        ('m[re"a\\.b"][0].a = true', ast.Compare(
            "=", m(ast.Selector("a\\.b", True), ast.Index(0), A), ast.Boolean(True))),
        ('m["l"].at(100) < 1', ast.Compare(
            "<", m(ast.Selector("l"), ast.Method("at", (ast.Argument(ast.Number(100)),))), ONE)),
        ("count(*) > 1", ast.Compare(">", ast.Call("count", (ast.Argument(ast.Star()),)), ONE)),
    ],
)  # fmt: skip
def test_trees_of_conditions(text: str, tree: ast.Expression) -> None:
    assert condition(text) == tree


def test_trees_of_statements() -> None:
    defined, explained = parse('define "two words" as select *; explain analyze select m limit $n')
    assert defined == ast.Define("two words", ast.Query(ast.Select((ast.Item(ast.Star(), None),))))
    assert isinstance(explained, ast.Explain)
    assert explained.analyze
    assert explained.query.limit == ast.Parameter("n")
    found = only("select a union all select b except select c order by a.id desc nulls first").body
    assert isinstance(found, ast.SetOperation)
    assert found.operator == "except"
    assert isinstance(found.left, ast.SetOperation)
    assert found.left.operator == "union all"
    order = only("select m order by m.id desc nulls first, m.a").order_by
    assert [(o.descending, o.nulls_first) for o in order] == [(True, True), (False, None)]
    built = only('construct d from "q" as m mutate each m["c"].out in 1..2 and m["r"].delete').body
    assert isinstance(built, ast.Construct)
    assert built.one_per_match is True
    assert built.sources == (ast.Source("m", ast.Saved("q")),)
    assert built.actions[0].domain == ast.Stretch(1, 2, None)
    assert built.actions[1].value is None
    tried = only('evaluate m from "q" vary (c.a, c.b) in [(1, 2)] keep top(5, m.a desc) on local')
    assert isinstance(tried.body, ast.Evaluate)
    assert tried.body.vary[0].linked
    assert tried.body.keep[0].args[1].direction == "desc"
    assert tried.body.on == ast.Call("local", ())


def test_every_part_knows_where_it_stands() -> None:
    text = 'select m where m["conv*"].next has POOL("MAX") and m.lr > 0.1'
    body = only(text).body
    assert isinstance(body, ast.Select)
    assert isinstance(body.where, ast.And)
    spans = [text[part.span.start : part.span.end] for part in body.where.parts]
    assert spans == ['m["conv*"].next has POOL("MAX")', "m.lr > 0.1"]


def fault_of(text: str) -> SyntaxFault:
    with pytest.raises(SyntaxFault) as caught:
        parse(text)
    return caught.value


@pytest.mark.parametrize(
    ("text", "marked", "meant", "hint"),
    [
        ("selct m", "selct", "select", None),
        ('select m1 where m1["conv1"].next hsa POOL("MAX")', "hsa", "has", None),
        ('select m where evry m["a"] has B', "evry", "every", None),
        ("select disinct m", "disinct", "distinct", None),
        ('select m where m["conv1].next has POOL', '"', None, "ends on its line"),
        ('select m where m.name = "a#b', '"', None, "ends on its line"),
        ("select m where m.name = “x”", "“", None, "pasted"),
        ("select\u00a0m", "\u00a0", None, "pasted"),
        ("select m where m.a => 3", ">", None, "write >="),
        ("select m where m.a & m.b", "&", None, "write `and`"),
        ('slice s from m where m.a = "b"', "", None, "mutate"),
        ('slice s from m mutate s.a = m["a"], s.b = 1', ",", None, "joined by `and`"),
        ("select m limit 3 where m.a = 1", "where", None, "the order of clauses"),
        ("select m where m.a = $1", "$1", None, "inside strings"),
    ],
)
def test_faults_say_what_was_meant(
    text: str, marked: str, meant: str | None, hint: str | None
) -> None:
    fault = fault_of(text)
    assert text[fault.start : fault.start + fault.length] == marked
    assert fault.did_you_mean[:1] == ([] if meant is None else [meant])
    assert (hint or "") in (fault.hint or "")


def test_the_caret_stands_under_the_word() -> None:
    shown, mark = fault_of("select m\r\nwhere\tm.名前 = 1").caret()
    assert shown == "where    m.名前 = 1"
    assert mark == " " * 11 + "^^"
    at_end = fault_of("select m where")
    assert at_end.caret() == ["select m where", " " * 14 + "^"]
    assert at_end.as_json()["error"]["column"] == 15  # type: ignore[index]
    assert (fault_of("select m\nwhere m.a = ").line) == 2


def test_nesting_has_an_end() -> None:
    assert parse("select m where " + "(" * 5000 + "m.a = 1" + ")" * 5000)
    assert parse("select m where " + " and ".join(["m.a = 1"] * 5000))
    for deep in ("not " * 3000 + "m.a = 1", "m.a = " + "+".join(["1"] * 3000)):
        with pytest.raises(SyntaxFault, match="nested too deeply"):
            parse(f"select m where {deep}")
    with pytest.raises(SyntaxFault, match="too long"):
        parse("select m " + " " * (1 << 20))


def keywords() -> list[str]:
    found = re.findall(r"^_?[A-Z_]+\.2: /([a-z_]+)\\b/i", grammar_text(), re.MULTILINE)
    assert len(found) > 40
    return found


def test_misspelt_keywords_are_found() -> None:
    """One letter dropped, doubled, swapped or substituted, in every keyword of the valid ones."""
    source = random.Random(7)
    refused = on_word = right = 0
    wanted = set(keywords())
    for text in VALID:
        bare = re.sub(r'"[^"]*"|\'[^\']*\'|--.*|#.*', lambda found: "\0" * len(found[0]), text)
        for found in re.finditer(r"(?<![.\w])[A-Za-z_]+", bare):
            word = found[0].lower()
            if word not in wanted or len(word) < 4 or source.random() < 0.5:
                continue
            at = source.randrange(len(word))
            wrong = source.choice(
                [
                    word[:at] + word[at + 1 :],
                    word[: at + 1] + word[at:],
                    word[:at] + word[at + 1 : at + 2] + word[at : at + 1] + word[at + 2 :],
                    word[:at] + "q" + word[at + 1 :],
                ]
            )
            if wrong in wanted or wrong == word:
                continue
            try:
                parse(text[: found.start()] + wrong + text[found.end() :])
            except SyntaxFault as fault:
                refused += 1
                on_word += fault.start == found.start()
                right += word in fault.did_you_mean
    assert refused > 150
    assert on_word >= 0.97 * refused
    assert right >= 0.95 * refused


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_whatever_is_typed_gives_a_tree_or_a_fault(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from(VALID))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        end = min(len(text), at + data.draw(st.integers(0, 6)))
        text = text[:at] + data.draw(st.text(max_size=3) | st.sampled_from(VALID)) + text[end:]
    try:
        found = bool(parse(text))
    except SyntaxFault as fault:
        found = len(fault.caret()) == 2 and fault.line >= 1
    assert found


def test_tables_are_kept_by_the_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    assert parse("select m", folder)
    (kept,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    before = kept.read_bytes()
    tables.tables.cache_clear()
    assert parse("select m", folder)
    assert kept.read_bytes() == before
    assert tables.read(kept) is not None
    kept.write_bytes(before[:-1] + b"x")
    assert tables.read(kept) is None, "damaged"
    kept.write_bytes(before)
    kept.chmod(0o666)
    assert tables.read(kept) is None, "anyone could have written it"
    assert parse("select m", folder)
