"""What `explain` tells of a statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from dlv.dql import execute
from dlv.dql.outcome import Explained
from dlv.metadata import versions
from dlv.repository.handle import Repository
from tests.dql.brute_networks import alexnet


@pytest.fixture(scope="module")
def repository(
    tmp_path_factory: pytest.TempPathFactory, commit_model: Callable[..., str]
) -> Iterator[Repository]:
    with Repository.init(tmp_path_factory.mktemp("plans"))[0] as made:
        nodes = alexnet("AVG", relu=False)
        commit_model(made, "alexnet-avgv1", {}, nodes, root=True, shape=[4, 8, 8])
        yield made


def explained(repository: Repository, text: str) -> Explained:
    (found,) = execute.run(repository, text)
    assert isinstance(found, Explained)
    return found


QUERY3 = """construct m2 from m1
where m1.name like "alexnet-avgv1%" and
m1["conv*($1)"].next has POOL("AVG")
mutate m1["conv*($1)"].insert = RELU("relu$1")"""


def test_a_plan_names_what_is_read_and_what_is_done(repository: Repository) -> None:
    lines = list(explained(repository, f"explain {QUERY3}").lines)
    assert lines[:2] == [
        "Construct m2 of m1",
        '  insert relu$1 behind m1["conv*($1)"] where m1["conv*($1)"].next has POOL("AVG")',
    ]
    assert any("Scan m1" in line and "alexnet-avgv1%" in line for line in lines)
    assert any("Match" in line for line in lines)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ('m["conv1"].insert(to=m["pool1"]) = [RELU, DROPOUT("x")]',
         'insert RELU, x behind m["conv1"], on the edge to m["pool1"]'),
        ('each m["conv*"].insert_before = RELU', 'each insert RELU before m["conv*"]'),
        ('m[re"^fc"].replace = ACT("GELU")', 'replace m[re"^fc"] by ACT'),
        ('m["conv1"].delete', 'delete m["conv1"]'),
        ('m["conv1"].delete = m["pool1"]', 'delete the edge to m["pool1"] of m["conv1"]'),
        ('m["conv*"].out in [4, 8]', 'set m["conv*"].out = 4, 8'),
    ],
)  # fmt: skip
def test_each_change_is_told(repository: Repository, change: str, told: str) -> None:
    found = explained(repository, f"explain construct d from m mutate {change}")
    assert found.document["steps"][0]["changes"] == [told]


def test_a_slice_tells_its_ends_and_where_it_goes(repository: Repository) -> None:
    found = explained(
        repository,
        'explain slice s from m mutate s.input = m["conv1"] and s.output = m["fc7"] into "part"',
    )
    assert list(found.lines)[:3] == [
        "Slice s of m",
        '  from m["conv1"] to m["fc7"]',
        '  into "part"',
    ]


def test_only_analyze_does_the_work_and_never_commits(repository: Repository) -> None:
    text = (
        'select d from (construct d from m mutate m["conv1"].out in [4, 8]) where d["fc7"].out > 1'
    )
    plain = explained(repository, f"explain {text}")
    assert [step["step"] for step in plain.document["steps"]] == ["construct", "select"]
    assert "networks" not in plain.document["steps"][0]
    real = explained(repository, f"explain analyze {text}")
    assert real.document["analyzed"] is True
    assert real.document["steps"][0]["networks"] == 2
    committed = explained(
        repository, 'explain analyze construct d from m mutate m["conv1"].out = 6 into "new"'
    )
    assert committed.document["steps"][0]["into"] == "new"
    assert not versions.is_name(repository.database, "new")


def test_the_rules_that_changed_something_are_named(repository: Repository) -> None:
    found = explained(repository, 'explain select m where not (m.name = "a" or m.name = "b")')
    assert found.document["rules"] == ["push_not_down"]
    assert next(iter(found.lines)) == "Rewritten  push_not_down"
