"""Search over the cards of a hub: equal to plain loops, on both databases, for every caller."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import dlv.hub.server.catalogues as catalogues
import dlv.hub.server.search as searching
from benchmarks.hub.sample_cards import Sample, some_caller, some_search
from dlv.errors import NotFound, UsageError
from dlv.hub.server import card_rows, tables, words
from dlv.hub.server.access import Caller, Role
from dlv.hub.server.card_rows import NewCard
from dlv.hub.server.database import HubDatabase, open_database
from dlv.hub.server.refusal import Refused
from dlv.hub.server.search import Figure, Wanted, parse, search
from dlv.network.graph import Input, Network
from dlv.network.ops.op import Node
from dlv.network.vocabulary import complete
from tests.hub.server.postgres import PROGRAMS, postgres_server
from tests.hub.server.site import Site

CARDS = 350
EVERYBODY = Caller()
HOSTILE = [
    '"', "'", '"" OR ""', "a OR b", "NOT a", "NEAR(a b)", "words:a", "a - b", "^a", "a + b", "(*",
    "*", "**", "a*b*", "\0", "a\0b", "\u202eabc", "\ud800".encode("utf-16", "surrogatepass").hex(),
    "'; DROP TABLE card; --", "a' & 'b", "a:*", "!a", "a<->b", "\\", "%", "_", ":p0", ":match",
    "accuracy>", ">0.9", "=", "a==b", "accuracy>nan", "accuracy>1e999", "accuracy>-inf", "x.min<1",
    "net:", "net:*", "tag:'", 'name:"', "author:*", "task:\0", "Ａ", "ﬁ", "ß", "İ", "z", "zz*",
    "é" * 400, "a " * 31, "日本", "🦥", "\u0301", "license:" + "x" * 500, "a" * 1000,
]  # fmt: skip


class Both:
    """The same cards in a database of each kind that is installed."""

    def __init__(self, databases: list[HubDatabase], few: int) -> None:
        self.databases = databases
        self.sample = Sample(few, CARDS, users=8, repositories=40)
        self.sample.fill(*databases)

    def check(self, text: str, sort: str | None, caller: Caller, **options: Any) -> int:
        """Compare all databases with a plain loop; return how many cards match."""
        wanted = parse(text, sort)
        offset = options.get("offset", 0)
        place = options.get("repository_id")
        known = self.sample.expected(caller, wanted, place)
        expected = [each.record["id"] for each in known[offset : offset + 20]]
        for database in self.databases:
            if self._names_nothing(wanted, caller, place):
                with pytest.raises(NotFound, match="no version has the metric"):
                    search(database, caller, wanted, **options)
                continue
            found = search(database, caller, wanted, **options)
            ids = [hit.record["id"] for hit in found.hits]
            count = min(len(known), found.count) if found.more else len(known)
            assert (ids, found.count) == (expected, count), (text, sort, caller)
        return len(known)

    def _names_nothing(self, wanted: Wanted, caller: Caller, place: int | None) -> bool:
        """Whether no card that the caller may read has one of the figures."""
        figures = [(name, kind) for name, kind, _, _ in wanted.compared]
        if isinstance(wanted.order, Figure):
            figures.append((wanted.order.name, wanted.order.kind))
        return not all(
            self.sample.expected(caller, Wanted(order=Figure(*figure, ascending=True)), place)
            for figure in figures
        )


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("search")
    lite = open_database(f"sqlite:///{folder / 'hub.db'}")
    if PROGRAMS is None:
        yield Both([lite], 1)
        lite.close()
        return
    with postgres_server() as server, server.database() as url:
        postgres = open_database(url)
        yield Both([lite, postgres], 1)
        postgres.close()
        lite.close()


@pytest.mark.parametrize("seed", range(4))
def test_databases_find_what_a_plain_loop_finds(both: Both, seed: int) -> None:
    rng = random.Random(seed)
    total = 0
    for _ in range(25):
        text, sort = some_search(rng, CARDS)
        place = rng.choice([None, None, rng.choice(both.sample.places)["id"]])
        offset = rng.choice([0, 0, 7, 290])
        caller = some_caller(rng, both.sample.users)
        total += both.check(text, sort, caller, repository_id=place, offset=offset)
    assert total > 100


def test_who_may_read_what(both: Both) -> None:
    """Against the rules written down a second time, for every kind of caller."""
    counts = set()
    for user in range(0, both.sample.users + 1, 3):
        for namespace in (None, f"user{user}", "user3"):
            for repository in (None, "repo5"):
                for operator in (False, True):
                    caller = Caller(
                        user_id=user or None,
                        operator=operator and user > 0,
                        namespace=namespace if user else None,
                        repository=repository if user else None,
                    )
                    counts.add(both.check("tiny", "created", caller))
    assert len(counts) > 3


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts(both: Both, text: str) -> None:
    for term in (text, f"vision {text}", f"name:{text}", f"{text}>0.5"):
        for sort in (None, text or None):
            try:
                wanted = parse(term, sort)
            except UsageError:
                continue
            both.check(term, sort, EVERYBODY)
            assert wanted is not None


def test_a_figure_that_no_version_has(both: Both) -> None:
    for text, sort in (("acuracy>3", None), ("", "acuracy"), ("tiny", "acuracy:min")):
        for database in both.databases:
            with pytest.raises(NotFound, match="`acuracy`") as refused:
                search(database, EVERYBODY, parse(text, sort))
            assert refused.value.did_you_mean[0] == "accuracy"


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.one_of(st.text(max_size=40), st.lists(st.sampled_from(HOSTILE), max_size=3).map(" ".join))
)
def test_any_text_is_found_or_refused(both: Both, text: str) -> None:
    text = text.encode("utf-8", "replace").decode()
    try:
        parse(text)
    except UsageError:
        return
    both.check(text, None, EVERYBODY)


@given(st.text(max_size=8), st.text(max_size=8))
def test_codes_of_words_keep_prefixes(one: str, other: str) -> None:
    """So that a prefix of a code is the code of a prefix."""
    codes = [words._code(text) for text in (one, other)]
    assert codes[0].startswith(codes[1]) == one.startswith(other)
    assert all(code.isalnum() and code.isascii() for code in codes if code)
    assert (codes[0] == codes[1]) == (one == other)


def test_words() -> None:
    assert list(words.split("Conv-1_bias, ÉTÉ e\u0301te\u0301")) == [
        "conv", "1", "bias", *["z0000e9tz0000e9"] * 2
    ]  # fmt: skip
    assert list(words.split("日本 zoo")) == ["z0065e5", "z00672c", "zzoo"]
    assert words.wanted("Conv*") == [words.Word("conv", prefix=True)]
    assert words.wanted("foo.bar*") == [words.Word("foo"), words.Word("bar", prefix=True)]


def test_what_is_not_understood() -> None:
    for text, part in (
        ("colour:red", "not a field"),
        ("accuracy>high", "does not compare"),
        ("acc>>3", "not a condition"),
        ("accuracy<", "not a condition"),
        ("name:a*b", "cannot be looked up"),
        ("net:[ab]", "cannot be looked up"),
        ("a " * 33, "at most 32"),
        ("a" * 1001, "at most 1000"),
    ):
        with pytest.raises(UsageError, match=part):
            parse(text)
    with pytest.raises(UsageError, match="not an order"):
        parse("a", "accuracy:best")
    assert parse("a", "loss").order == searching.Figure("loss", "last", ascending=True)
    assert parse("a", "accuracy").order == searching.Figure("accuracy", "last", ascending=False)


def test_deleted_repositories_leave_nothing(hub_database: HubDatabase) -> None:
    sample = Sample(3, 60, users=3, repositories=6)
    sample.fill(hub_database)
    assert search(hub_database, Caller(user_id=1, operator=True), parse("")).count == 60
    with hub_database.writing() as connection:
        connection.execute(sa.delete(tables.repository))
    assert search(hub_database, Caller(user_id=1, operator=True), parse("")).count == 0
    with hub_database.reading() as connection:
        for table in (tables.card, tables.card_text, tables.card_figure):
            assert connection.execute(sa.select(sa.func.count()).select_from(table)).scalar() == 0


def test_the_index_follows_the_database(hub_database: HubDatabase) -> None:
    """Cards that are added, deleted, or written by a transaction that ends after a later one."""
    sample = Sample(4, 40, users=3, repositories=4)
    sample.fill(hub_database)
    operator = Caller(user_id=1, operator=True)
    table = tables.card

    def shown() -> int:
        return search(hub_database, operator, parse(""), most=100).count

    def change(statement: Any) -> None:
        with hub_database.writing() as connection:
            connection.execute(statement)
            changes = tables.repository.c.cards + 1
            connection.execute(sa.update(tables.repository).values(cards=changes))

    with hub_database.reading() as connection:
        keys = list(connection.execute(sa.select(table.c.id).order_by(table.c.id)).scalars())
        row = dict(
            connection.execute(sa.select(table).where(table.c.id == keys[5])).mappings().one()
        )
        text = dict(
            connection.execute(
                sa.select(tables.card_text).where(tables.card_text.c.card_id == keys[5])
            )
            .mappings()
            .one()
        )
    assert shown() == 40
    change(sa.delete(table).where(table.c.id.in_(keys[5:8])))
    assert shown() == 37
    with hub_database.writing() as connection:  # a key below those that are known
        connection.execute(sa.insert(table).values(**row))
        connection.execute(sa.insert(tables.card_text).values(**text))
        changes = tables.repository.c.cards + 1
        connection.execute(sa.update(tables.repository).values(cards=changes))
    assert shown() == 38
    change(sa.delete(table))
    assert shown() == 0


# Routes, and conditions of DQL


def network(name: str) -> Network:
    attrs = complete("SOFTMAX", None, {"axis": 1})
    first = Node(f"{name}1", "SOFTMAX", attrs=attrs, inputs=(("x", 0),))
    second = Node(f"{name}2", "RELU", attrs=complete("RELU", None, {}), inputs=((f"{name}1", 0),))
    return Network((Input("x", ("B", 4)),), (first, second), ((f"{name}2", 0),))


@pytest.fixture
def site(tmp_path: Path, hub_database_url: str) -> Iterator[Site]:
    site = Site(tmp_path / "hub", hub_database_url)
    for user in ("ada", "eve"):
        site.user(user)
    yield site
    site.close()


def add(site: Site, label: str, visibility: str, **fields: Any) -> str:
    """Write a card into a repository, which is created first; return the id of the version."""
    user = label.partition("/")[0]
    try:
        place = site.repository(label, visibility, user)
    except Refused:
        place = site.place(label, user)
    record = Sample(1, 1).record(hash(label) % 1000) | {"metrics": [], "network": None}
    net = network(fields.pop("net", "conv"))
    record |= {"name": "lenet", "number": 1, "network": net.id, **fields}
    with site.hub.database.writing() as connection:
        card_rows.insert_networks(connection, [net])
        rows = card_rows.rows_of(NewCard(record, "0" * 64, True, net))
        card_rows.insert(connection, [(place.id, rows)])
        table = tables.repository
        query = sa.update(table).where(table.c.id == place.id)
        connection.execute(query.values(cards=table.c.cards + 1))
    return str(record["id"])


def ids(site: Site, path: str = "/v1/search", user: str | None = None, **body: Any) -> set[str]:
    token = None if user is None else site.token(user)
    reply = site.send("POST", path, token=token, body=body)
    assert reply.status == 200, reply.body
    found = reply.json
    assert found["count"] == len(found["results"])
    return {result["id"] for result in found["results"]}


def test_search_by_routes(site: Site) -> None:
    public = add(site, "ada/open", "public", id="a" * 64, message="shared words")
    private = add(site, "ada/secret", "private", id="b" * 64, message="shared words")
    assert ids(site, text="shared") == {public}
    assert ids(site, text="shared", user="eve") == {public}
    assert ids(site, text="shared", user="ada") == {public, private}
    assert ids(site, "/v1/ada/open/search", text="shared") == {public}
    assert ids(site, "/v1/ada/secret/search", text="shared", user="ada") == {private}
    scoped = site.token("ada", namespace="ada", repository="open", role=Role.READER)
    reply = site.send("POST", "/v1/search", token=scoped, body={"text": "shared"})
    assert reply.json["count"] == 1
    hidden = site.send("POST", "/v1/ada/secret/search", body={"text": ""})
    absent = site.send("POST", "/v1/ada/absent/search", body={"text": ""})
    assert hidden.status == absent.status == 404
    assert hidden.body == absent.body
    for body in ({"most": -1}, {"most": 101}, {"offset": 10**9}, {"text": "colour:red"}):
        assert site.send("POST", "/v1/search", body=body).status == 422, body
    reply = site.send("POST", "/v1/search", body={"text": "shared"})
    (result,) = reply.json["results"]
    assert (result["repository"], result["version"]) == ("ada/open", "lenet@1")


def test_models_and_cards(site: Site) -> None:
    for number in (1, 2, 3):
        add(site, "ada/open", "public", id=f"{number:064x}", number=number)
    add(site, "ada/open", "public", id="f" * 64, name="other")
    models = site.send("GET", "/v1/ada/open/models").json["models"]
    shown = [(model["name"], model["number"], model["versions"]) for model in models]
    assert shown == [("lenet", 3, 3), ("other", 1, 1)]
    path = "/v1/ada/open/cards"
    assert site.send("GET", path).json["count"] == 4
    newest = site.send("GET", f"{path}?model=lenet&most=2").json
    assert [card["number"] for card in newest["cards"]] == [3, 2]
    assert newest["count"] == 3
    (one,) = site.send("GET", f"{path}?model=lenet&number=2").json["cards"]
    assert one["id"] == f"{2:064x}"
    assert site.send("GET", f"{path}?model=absent").status == 404
    assert site.send("GET", f"{path}?model=%00").status == 404
    assert site.send("GET", f"{path}?number=x").status == 400


CONDITION = 'm["conv1"].next has RELU'


def test_conditions_of_dql(site: Site) -> None:
    public = add(site, "ada/open", "public", id="a" * 64)
    add(site, "ada/other", "public", id="c" * 64, net="pool")
    private = add(site, "ada/secret", "private", id="b" * 64)
    assert ids(site, where=CONDITION) == {public}
    assert ids(site, where=CONDITION, user="ada") == {public, private}
    assert ids(site, "/v1/ada/secret/search", where=CONDITION, user="ada") == {private}
    assert ids(site, where='m.name = "lenet"', text="net:pool*") == {"c" * 64}
    # The same version in two repositories, of which one is made private.
    add(site, "eve/copy", "public", id="a" * 64)
    assert ids_of(site, CONDITION) == ["ada/open", "eve/copy"]
    visible(site, "open", "private")
    assert ids_of(site, CONDITION) == ["eve/copy"]
    visible(site, "copy", "private")
    assert ids_of(site, CONDITION) == []
    visible(site, "open", "public")
    assert ids_of(site, CONDITION) == ["ada/open"]
    with site.hub.database.writing() as connection:
        connection.execute(sa.delete(tables.card).where(tables.card.c.manifest == "a" * 64))
        connection.execute(sa.update(tables.repository).values(cards=tables.repository.c.cards + 1))
    assert ids_of(site, CONDITION) == []


def ids_of(site: Site, condition: str) -> list[str]:
    reply = site.send("POST", "/v1/search", body={"where": condition}).json
    return sorted(result["repository"] for result in reply["results"])


def visible(site: Site, name: str, visibility: str) -> None:
    table = tables.repository
    with site.hub.database.writing() as connection:
        query = sa.update(table).where(table.c.name == name)
        connection.execute(query.values(visibility=visibility))


def test_conditions_see_nothing_private(site: Site) -> None:
    """Not by comparing with other versions, nor through parents."""
    add(site, "ada/secret", "private", id="b" * 64, hyperparameters={"lr": 9.0})
    child = add(
        site, "eve/open", "public", id="a" * 64, name="child", parents=[["b" * 64, "commit"]],
        hyperparameters={"lr": 1.0},
    )  # fmt: skip
    for condition in (
        "exists (select n from n where n.lr > 5)",
        "m.lr < (select max(n.lr) from n)",
        "m.parent.lr > 5",
    ):
        for user in (None, "eve", "ada"):
            token = None if user is None else site.token(user)
            reply = site.send("POST", "/v1/search", token=token, body={"where": condition})
            results = reply.json.get("results", [])
            assert child not in {result["id"] for result in results}, (condition, reply.json)
            assert user == "ada" or not results


def test_conditions_that_are_refused(site: Site) -> None:
    add(site, "ada/open", "public")
    for condition, part in (
        ("m.name = ", "expected"),
        ("true) ; select m where (true", "not one condition"),
        ('true) union select n from n where (n.name = "x"', "not one condition"),
        ('m["conv*"', ""),
        ('m[re"(a+)+$"].next has RELU', "regular expressions"),
        ("x" * 3000, "at most"),
        ('m in (evaluate m from m with "x.toml" vary m.lr in (1,2))', ""),
        ("m.nothing.at(1) > 2", ""),
    ):
        reply = site.send("POST", "/v1/search", body={"where": condition})
        assert reply.status == 422, (condition, reply.body)
        error = reply.json["error"]
        assert part in error["message"] + str(error["why"]), (condition, error)
    reply = site.send("POST", "/v1/search", body={"where": "m.nam = 1"})
    assert "condition:1:3:" in reply.json["error"]["message"], reply.json
    assert "m.nam = 1\n  ^^^\n" in reply.json["error"]["why"], reply.json


def test_a_catalogue_that_is_not_ready(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = add(site, "ada/open", "public")
    refreshed: list[Any] = []
    monkeypatch.setattr(
        catalogues._Catalogue, "refresh_later", lambda catalogue: refreshed.append(catalogue)
    )
    with monkeypatch.context() as patch:
        patch.setattr(catalogues, "SECONDS", 0.0)
        reply = site.send("POST", "/v1/search", body={"where": CONDITION})
        assert reply.status == 503
        assert reply.header("retry-after")
    refreshed[0]._refresh_fully()
    assert ids(site, where=CONDITION) == {wanted}


def test_catalogues_are_closed_when_there_are_many(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogues, "MOST_OPEN", 1)
    first, second = (add(site, f"ada/repo{i}", "public", id=f"{i:064x}") for i in (1, 2))
    for _ in range(2):
        assert ids(site, "/v1/ada/repo1/search", where=CONDITION) == {first}
        assert ids(site, "/v1/ada/repo2/search", where=CONDITION) == {second}
