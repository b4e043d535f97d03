"""Cards, the index of a remote, and the search over it."""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dlv.hub.index as index
import dlv.hub.searching as searching
import dlv.versions.card as cards
from dlv.errors import NotFound, RemoteError, UsageError
from dlv.hub.index import Index, Segment, decode_segment
from dlv.metadata import cards as card_rows
from dlv.metadata.database import Database
from dlv.pas.coders.zstd import ZstdCodec
from tests.hub.stores import MemoryStore

WORDS = ["vision", "speech", "small", "large", "fast"]


def record(number: int, rng: random.Random) -> dict[str, object]:
    metric = {"run": "", "tag": "accuracy", "hash": "ab" * 32, "n": 1, "last_step": 1}
    last = rng.choice([rng.random(), "NaN", "-Infinity"])
    metric |= {"last": last, "min": last, "min_step": 1, "max": last, "max_step": 1}
    return {
        "id": f"{number:064x}",
        "name": f"{rng.choice(WORDS)}-{number}",
        "number": 1,
        "author": "Ada",
        "created": f"2026-01-01T00:00:{number % 60:02}.000000Z",
        "message": " ".join(rng.sample(WORDS, 2)),
        "framework": None,
        "parents": [],
        "hyperparameters": {"lr": rng.random()},
        "metrics": [{**metric, "nonfinite": 0}],
        "network": None,
        "layers": ["CONV"],
        "task": rng.choice(["Vision", "text", None]),
        "license": rng.choice(["mit", None]),
        "tags": rng.sample(WORDS, 2),
        "bytes": number,
        "parameters": number,
        "text": " ".join(rng.choices(WORDS, k=5)),
    }


def segment_of(*numbers: int) -> Segment:
    segment = Segment()
    for number in numbers:
        card = record(number, random.Random(number))
        segment.cards[str(card["id"])] = card
    return segment


def test_few_segments_hold_everything() -> None:
    """A reader that knows the first segments needs few others to get all cards."""
    store = MemoryStore()
    writer = Index(store)
    for number in range(1, 301):
        writer.append(segment_of(number))
    for known in (0, 1, 15, 16, 17, 100, 255, 256, 257, 299, 300):
        store.calls = 0
        found: set[str] = set()
        segments = list(Index(store).segments(known, Index(store).last(known)))
        for segment in segments:
            found |= segment.cards.keys()
        assert found >= {f"{number:064x}" for number in range(known + 1, 301)}
        assert len(segments) <= 31
    assert Index(MemoryStore()).last() == 0
    store.objects[index.HINT] = b'{"seq": 900}'
    assert Index(store).last() == 300
    store.objects[index.HINT] = b'{"seq": 7}'
    assert Index(store).last() == 300


def test_two_writers_lose_nothing() -> None:
    class Slow(MemoryStore):
        def _create(self, key: str, data: bytes) -> bool:
            if key not in self.objects and key.startswith("index/") and self.other:
                self.other = False
                Index(MemoryStore(self.objects)).append(segment_of(2))
            return super()._create(key, data)

        other = True

    store = Slow()
    Index(store).append(segment_of(1))
    assert len(Index(store).segment(1).cards) == len(Index(store).segment(2).cards) == 1
    assert Index(store).segment(1).cards.keys() != Index(store).segment(2).cards.keys()


@given(
    st.dictionaries(
        st.sampled_from(sorted(record(1, random.Random(1)))),
        st.one_of(
            st.none(),
            st.integers(-(2**66), 2**66),
            st.text(max_size=5),
            st.just("\ud800"),
            st.lists(st.integers(-9, 9), max_size=2),
            st.dictionaries(st.text(max_size=2), st.none(), max_size=2),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_cards_of_any_shape_do_no_harm(changes: dict[str, object]) -> None:
    segment = segment_of(1, 2)
    first = next(iter(segment.cards))
    segment.cards[first] = {**segment.cards[first], **changes}
    # As a hostile remote could write it, which is not bound to what dlv writes.
    text = json.dumps({"format": index.FORMAT, "cards": list(segment.cards.values())})
    read = decode_segment(ZstdCodec("text").encode(text.encode()), "segment")
    assert f"{2:064x}" in read.cards
    with tempfile.TemporaryDirectory() as folder:
        db = Database(Path(folder, "cards.sqlite"), wal=False)
        try:
            card_rows.prepare(db)
            index.load(db, read)
        finally:
            db.close()


@pytest.mark.parametrize("data", [b"", b"junk", ZstdCodec("text").encode(b'{"format": "x"}')])
def test_segments_that_are_none(data: bytes) -> None:
    with pytest.raises((RemoteError, Exception)):
        decode_segment(data, "segment")


@pytest.fixture
def catalogue(tmp_path: Path) -> Database:
    db = Database(tmp_path / "cards.sqlite", wal=False)
    card_rows.prepare(db)
    index.load(db, decode_segment(segment_of(*range(1, 400)).encode(), "segment"))
    return db


def _expected(number: int, word: str | None, task: str | None, least: float | None) -> bool:
    card: Any = record(number, random.Random(number))
    words = [card["name"], card["message"], card["text"], *card["tags"], str(card["task"])]
    last = card["metrics"][0]["last"]
    return (
        (word is None or word in " ".join(words).lower())
        and (task is None or str(card["task"]).lower() == task)
        and (least is None or (isinstance(last, float) and last > least))
    )


@pytest.mark.parametrize("word", [None, "vision", "fast"])
@pytest.mark.parametrize("task", [None, "vision", "text"])
@pytest.mark.parametrize("least", [None, 0.1, 0.5, 0.99])
@pytest.mark.parametrize("few", [0, 50, 2000])
def test_every_match_is_found(
    catalogue: Database,
    monkeypatch: pytest.MonkeyPatch,
    word: str | None,
    task: str | None,
    least: float | None,
    few: int,
) -> None:
    """Against a plain loop over the cards, whichever clause gives the candidates."""
    monkeypatch.setattr(card_rows, "FEW", few)
    monkeypatch.setattr(card_rows, "COUNTED", 1000)
    terms = [word or "", f"task:{task}" if task else "", f"accuracy>{least}" if least else ""]
    found = searching.search(catalogue, " ".join(filter(None, terms)), most=1000)
    wanted = {f"{n:064x}" for n in range(1, 400) if _expected(n, word, task, least)}
    assert {hit.id for hit in found.hits} == wanted
    assert found.count == len(wanted)


def test_order(catalogue: Database) -> None:
    best = searching.search(catalogue, "accuracy>=0", sort="accuracy", most=5).hits
    values = [hit.metrics["accuracy"] for hit in best]
    assert values == sorted(values, key=lambda value: -(value or 0))
    sizes = [hit.bytes for hit in searching.search(catalogue, "", sort="bytes", most=5).hits]
    assert sizes == [399, 398, 397, 396, 395]
    named = searching.search(catalogue, "speech", most=3).hits
    assert all(hit.name.startswith("speech") for hit in named)
    for text in ("colour:red", "accuracy>high"):
        with pytest.raises(UsageError):
            searching.search(catalogue, text)
    with pytest.raises(NotFound, match="no version has the metric"):
        searching.search(catalogue, "acuracy>1")
    for text in ('a "b', "-- ;", "(*", "name:[", "NOT AND OR", "é*", "net:*"):
        assert searching.search(catalogue, text).count >= 0


@pytest.mark.parametrize(
    ("text", "front", "rest"),
    [
        ("plain", {}, "plain"),
        ("---\nlicense: mit\ntags: [a]\n---\n# T\n", {"license": "mit", "tags": ["a"]}, "# T"),
        ("\ufeff---\r\ntask: x\r\n---\r\nrest", {"task": "x"}, "rest"),
        ("---\n- a list\n---\nrest", {}, "---\n- a list\n---\nrest"),
        ("---\nnever: ended", {}, "---\nnever: ended"),
        ("---\n---\nrest", {}, "rest"),
        ("---\n!!python/name:os.system\n---\nx", {}, "---\n!!python/name:os.system\n---\nx"),
    ],
)
def test_front_matter(text: str, front: dict[str, object], rest: str) -> None:
    own = cards.split(text, "CARD.md")
    assert (own.front, own.text) == (front, rest)


def test_figures_that_json_lacks() -> None:
    summary = {"last": float("nan"), "min": float("-inf"), "max": 1.0, "tag": "x"}
    plain = json.loads(json.dumps(index._plain(summary)))
    assert (plain["last"], plain["min"], plain["max"]) == ("NaN", "-Infinity", 1.0)
