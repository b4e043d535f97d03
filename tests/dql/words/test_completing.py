"""What is offered while a query is typed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlv.dql.words import parser
from dlv.dql.words.completing import completions

NAMES = {
    "node": ["conv1", "conv2", "features.0", 'odd"name'],
    "metric": ["accuracy", "val/loss"],
    "reference": ["HEAD", "lenet", "lenet@3"],
    "name": ["lenet", "vgg"],
    "tag": ["paper-final"],
    "saved": ["good ones"],
    "hyperparameter": ["lr", "optimizer.name", "two words"],
}


def look(kind: str, begun: str) -> list[str]:
    return [name for name in NAMES[kind] if name.startswith(begun)]


def offered(text: str, grammar: bool = True) -> list[str]:
    found = completions(text, look, parser.accepted if grammar else None)
    return [text[: len(text) - each.replaced] + each.text for each in found]


def words(text: str, grammar: bool = True) -> list[str]:
    found = completions(text, look, parser.accepted if grammar else None)
    return [each.text for each in found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('select m where m["con', ['conv1"]', 'conv2"]']),
        ("select m where m['con", ["conv1']", "conv2']"]),
        ('select m where m["a', ['accuracy"]']),
        ('select m where m.metrics["', ['accuracy"]', 'val/loss"]']),
        ('select m where m.nodes["f', ['features.0"]']),
        ('select m where m.hparams["tw', ['two words"]']),
        ('select m where m["conv1"].next["conv', ['conv1"]', 'conv2"]']),
        ('select m where m derived_from "le', ['lenet"', 'lenet@3"']),
        ('select m where m = "H', ['HEAD"']),
        ('select m where m in ["lenet", "H', ['HEAD"']),
        ('select m where m.id in ("H', ['HEAD"']),
        ('select m where m.name = "v', ['vgg"']),
        ('select m where m.name not like "v', ['vgg"']),
        ('select m where m.tag = "', ['paper-final"']),
        ('select m from m in "', ['good ones"']),
        ('select m where m not in "', ['good ones"']),
        ('slice s from "g', ['good ones"']),
        ('select m where m["conv1"].next has POOL("', ['MAX"', 'AVG"', 'MEAN"']),
        ('select m where m["conv1"].next has POOL("a', ['AVG"']),
        ('construct d from m mutate m["conv1"].insert = RELU("', []),
        ('select m where m.optimizer = "', []),
        ('select m where m.lr = 1 # and m["con', []),
        ("select m where m.lr > 1.", []),
        ("select m where m.lr > 1", []),
    ],
)
def test_names_inside_strings(text: str, expected: list[str]) -> None:
    assert words(text) == expected


def test_attributes() -> None:
    assert words("select m where m.n") == ["name", "number", "net", "n_nodes", "n_params", "nodes"]
    assert words("select m where m.l") == ["lr"]
    assert words("select m where m.o") == ["optimizer.name"]
    assert words('select m where m["conv1"].ne') == ["next", "next_raw"]
    assert words('select m where m["conv1"].mi') == ["min"]
    assert words('select m where m["conv1"].ker') == ["kernel"]
    assert words('select m where m["conv1"].insert') == []
    assert words('construct d from m mutate m["conv1"].insert') == ["insert_before"]
    assert words('select m where m["conv1"].next.ne') == ["next", "next_raw"]


def test_keywords_that_the_grammar_takes() -> None:
    assert words("") == ["construct", "define", "evaluate", "explain", "select", "slice"]
    assert words("sel") == ["select"]
    assert words("select m wh") == ["where"]
    assert words("select m where m.lr > 1 o") == ["or", "order"]
    assert words("SELECT m WHERE m.lr > 1 ORD") == ["order"]
    assert words('select m where m["conv1"].next ha') == ["has", "having"]
    assert words("select m selec") == []


def test_templates_variables_and_functions() -> None:
    assert words('select m where m["conv1"].next has PO') == ["POOL"]
    assert words("select m where m[CO") == ["CONV", "CONCAT"]
    assert words('select model where model["conv1"].next has POOL("MAX") and mo') == ["model"]
    assert words("select av") == ["avg("]
    assert "POOL" not in words("select P")


def test_without_a_grammar_only_what_is_certain() -> None:
    assert words("sl", False) == ["slice"]
    assert words("select m wh", False) == []
    assert words('select m where m["con', False) == ['conv1"]', 'conv2"]']


def test_the_text_goes_on_where_it_was() -> None:
    text = 'select m where m["conv1"].next has RELU and m["co'
    assert offered(text)[0] == 'select m where m["conv1"].next has RELU and m["conv1"]'


@given(st.text("selct m.whr\"'[]()=<1#-\n", max_size=60))
def test_never_fails(text: str) -> None:
    for each in completions(text, look, parser.accepted):
        assert 0 <= each.replaced <= len(text)
        assert each.text


@pytest.mark.parametrize(
    ("text", "more"),
    [
        ("select m", False),
        ("select m where", True),
        ("select m where m.lr >", True),
        ("slice s from m", True),
        ("select m wher", False),
        ("select m where )", False),
        ('select m where m["con', False),
    ],
)
def test_what_is_to_go_on(text: str, more: bool) -> None:
    assert parser.unfinished(text) is more
