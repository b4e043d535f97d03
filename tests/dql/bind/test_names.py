"""What names in queries are bound to, and what is said where they cannot be.

`python -m tests.dql.bind.test_names` writes the files of expected lines anew.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dlv.dql.bind.queries as queries
from dlv.dql.bind.binder import Faults, MissingReferences, WrongQuery
from dlv.dql.bind.bound import Bound, ConfigFile
from dlv.dql.words import ast
from dlv.dql.words.diagnosis import SyntaxFault
from dlv.dql.words.parser import parse
from dlv.errors import DlvError, NotFound, UsageError
from dlv.metadata.database import Database
from dlv.metadata.usage import KnownNames
from tests.dql import bound_text, name_catalogue

FOLDER = Path(__file__).parents[1]
BOUND, WRONG = FOLDER / "names" / "bound.txt", FOLDER / "names" / "faults.txt"
PARAMETERS = {
    "lr": 0.1,
    "ids": ["lenet@1"],
    "lo": 0,
    "hi": 1,
    "pattern": "a%",
    "n": 3,
    "skip": 1,
    "lrs": [0.1, 0.2],
    "half": 1.5,
    "object": {"a": 1},
}
LABELS = name_catalogue.labels()


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with tempfile.TemporaryDirectory() as folder:
        database = name_catalogue.made(Path(folder))
        yield database
        database.close()


def resolve(db: Database, text: str, defining: str | None = None) -> Bound:
    (statement,) = parse(text)
    query = statement if isinstance(statement, ast.Query) else statement.query
    return queries.resolve(
        *(text, query, KnownNames(db), PARAMETERS), defining=defining, config_file=config_file
    )


def config_file(where: str) -> ConfigFile:
    if where.startswith("no"):
        raise NotFound(f"no configuration file {where}", did_you_mean=["base.toml"])
    trainer = "torch" if where == "base.toml" else ["python", "train.py"]
    return ConfigFile(where, {"trainer": trainer, "steps": 1000})


def lines(db: Database, text: str) -> str:
    try:
        found = bound_text.of_bound(resolve(db, text), LABELS)
    except DlvError as error:
        found = bound_text.of_fault(error)
    return "\n".join(found)


@pytest.mark.parametrize(("text", "expected"), bound_text.read(BOUND))
def test_what_is_bound(db: Database, text: str, expected: str) -> None:
    assert not expected.startswith("exit ")
    assert lines(db, text) == expected


@pytest.mark.parametrize(("text", "expected"), bound_text.read(WRONG))
def test_what_is_wrong(db: Database, text: str, expected: str) -> None:
    assert expected.startswith("exit ")
    assert lines(db, text) == expected


VALID = [
    line.replace("\\n", "\n")
    for line in (FOLDER / "valid.txt").read_text(encoding="utf-8").splitlines()
]
# What some of them say that no catalogue could make right.
SENSIBLE = (
    *("the trainer is torch", "is a string, and", "names no version", "no version matches"),
    *("the list makes no node", "`y` is not an attribute", "has no value", "have no values"),
    *(
        "has no default values",
        "looks at step",
        "$file names no file",
        'no saved query "q"',
        '"good_lrs"',
    ),
)


@pytest.mark.parametrize("text", VALID)
def test_every_valid_query_binds_or_says_why_not(db: Database, text: str) -> None:
    for statement in parse(text):
        query = statement if isinstance(statement, ast.Query) else statement.query
        try:
            bound = queries.resolve(
                *(text, query, KnownNames(db), PARAMETERS), config_file=config_file
            )
            assert bound.query is not None or bound.derivations or bound.evaluation is not None
        except Faults as error:
            for fault in error.faults:
                assert any(word in " ".join([fault.message, fault.why or ""]) for word in SENSIBLE)


def test_all_faults_come_at_once(db: Database) -> None:
    with pytest.raises(WrongQuery) as caught:
        resolve(db, 'select m where m.lr = "a" and m.nothing = 1\nand m = "nope@9" limit $half')
    error = caught.value
    assert isinstance(error, UsageError)
    assert [(f.line, f.column, f.length) for f in error.faults] == [
        *((1, 16, 10), (1, 33, 7), (2, 9, 8), (2, 24, 5))
    ]
    assert len(error.spots) == 4
    found = error.as_json()["error"]
    assert isinstance(found, dict)
    assert (found["code"], found["line"], found["column"]) == (2, 1, 16)
    assert [each["line"] for each in found["errors"]] == [1, 1, 2, 2]
    assert "(and 3 more)" in error.message


def test_what_is_only_missing_is_not_found(db: Database) -> None:
    with pytest.raises(MissingReferences) as caught:
        resolve(db, 'select m where m = "lenat@3" or m in "goood"')
    error = caught.value
    assert isinstance(error, NotFound)
    assert error.exit_code == 4
    assert [fault.did_you_mean for fault in error.faults] == [["lenet@3"], ["good"]]


def test_a_query_to_be_saved_may_leave_parameters_open(db: Database) -> None:
    assert resolve(db, "select m where m.lr < $most limit $many", defining="cheap")
    with pytest.raises(WrongQuery, match="an attribute,"):
        resolve(db, "select m where m.nothing < $most", defining="cheap")
    for inner in ('"cheap"', '(select m from m in "cheap")'):
        with pytest.raises(WrongQuery, match="contains itself"):
            resolve(db, f"select m from m in {inner}", defining="cheap")
    with pytest.raises(WrongQuery, match="contains itself") as caught:
        resolve(db, 'select m from m in "my good ones"', defining="good")
    assert caught.value.faults[0].why == '"good" -> "my good ones" -> "good"'


def test_no_two_variables_are_alike(db: Database) -> None:
    text = (
        "select m from m in (select m where exists (select m where m.lr = 1))"
        ' where m in (select m where m in "good")'
    )
    found = bound_text.of_bound(resolve(db, text), LABELS)
    ranges = [line for line in found if "Source(" in line]
    assert len(ranges) >= 4
    assert len(set(ranges)) == len(ranges)


@pytest.mark.parametrize(
    "text",
    [
        "select m where " + "not " * 180 + "m.lr = 1",
        "select m where m.lr = " + "+".join(["m.lr"] * 180),
        "select m where m.lr = " + "1-(" * 180 + "m.lr" + ")" * 180,
        "select m where m.lr = " + "-" * 180 + "m.lr",
        "select m where m.lr = " + "coalesce(" * 60 + "m.lr" + ")" * 60,
        "select m where " + "exists (select m where " * 40 + "m.lr = 1" + ")" * 40,
        "select m from " + "m in (select m from " * 30 + "m" + ")" * 30,
        "select m where " + " or ".join(["m.lr = 1"] * 3000),
        " union ".join(["select m"] * 100),
        "(" * 90 + "select m" + ")" * 90,
    ],
)
def test_deep_and_long_queries(db: Database, text: str) -> None:
    assert resolve(db, text).query is not None


@given(st.data())
@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_whatever_is_asked_gives_a_tree_or_faults(db: Database, data: st.DataObject) -> None:
    pieces = st.sampled_from([*WORDS, *WORDS, *VALID])
    text = data.draw(st.sampled_from(VALID))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        end = min(len(text), at + data.draw(st.integers(0, 6)))
        text = text[:at] + data.draw(st.text(max_size=2) | pieces) + text[end:]
    check(db, text)


@given(st.data())
@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_conditions_by_lot(db: Database, data: st.DataObject) -> None:
    """Words that go together by grammar far more often than by sense."""
    operand = st.sampled_from(OPERANDS)
    parts = []
    for _ in range(data.draw(st.integers(1, 3))):
        left, right, low = data.draw(operand), data.draw(operand), data.draw(operand)
        form = data.draw(st.sampled_from(FORMS))
        parts.append(form.format(left, right, low))
    joined = data.draw(st.sampled_from([" and ", " or ", " and not "])).join(parts)
    first, last = data.draw(operand), data.draw(operand)
    check(db, f"select m, {first} as c where {joined} group by {last} order by {first}, {last}")


WORDS = (
    *(" m ", " n", '["conv1"]', ".next", ".min", ".at(3)", " = 1", ' like "x"', " in ", " has "),
    *(" every ", " and ", " not ", " null", ' "lenet@3"', "(select m)", ' "good"', "[CONV]", "[0]"),
    *("count(*)", " group by m.lr", " order by ", " derived_from ", "$lr", "$none", " union "),
    *(".lr", ".tag", ".parents", ".creation_time", "[1..3]", "1..3:0.5", "(1, 2)", " within 2"),
)
OPERANDS = (
    *(
        "m",
        "n",
        "m.lr",
        "m.optimizer",
        "m.tag",
        "m.parents",
        "m.creation_time",
        "m.id",
        "m.nothing",
    ),
    *(
        'm["loss"]',
        'm["conv*"]',
        'm["conv*"].next',
        'm["conv*"].out',
        'm["conv*"].count',
        "m[CONV]",
    ),
    *('m["loss"].min.step', 'm["loss"].at(3)', "1", '"text"', '"lenet@3"', "true", "null", "$lr"),
    *(
        "$none",
        "[1, 2]",
        "count(*)",
        "avg(m.lr)",
        "coalesce(m.lr, 1)",
        "(select m)",
        '"2026-01-01"',
    ),
    *("-m.lr", "1 + 2", "m.lr * n.lr", "m.use_bn", "m.mixed", "m.shape", 'm[re"^c"].kernel'),
    *('m["conv1"].next["relu*"]', 'm[OP("x")].variant', "nto(1)", "tre", "m.net", "n.net"),
)
FORMS = (
    *("{} = {}", "{} < {}", "{} != {}", "{} in [{}, {}]", "{} between {} and {}", "{} is null"),
    *("not {} = {}", "every {} = {}", "no {} > {}", "{} has CONV", "every {} has POOL(kernel={})"),
    *("{} like {}", "{} derived_from {}", "{} sibling_of {} within 2", "{}", "{} not in ({}, 3)"),
    *('{} matches "a*"', "{} in (select {} where {} = 1)", 'm in "good"', "{} is not null"),
)


def check(db: Database, text: str) -> None:
    try:
        statements = parse(text)
    except SyntaxFault:
        return
    for statement in statements:
        query = statement if isinstance(statement, ast.Query) else statement.query
        try:
            bound = queries.resolve(
                *(text, query, KnownNames(db), PARAMETERS), config_file=config_file
            )
        except Faults as error:
            for fault in error.faults:
                assert 0 <= fault.start <= len(fault.text)
                assert fault.line >= 1
                assert len(fault.caret()) == 2
        else:
            assert bound.query is not None or bound.derivations or bound.evaluation is not None


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        database = name_catalogue.made(Path(place))
        for path in (BOUND, WRONG):
            pairs = [(text, lines(database, text)) for text, _ in bound_text.read(path)]
            bound_text.write(path, pairs)
