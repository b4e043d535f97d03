"""Who needs which chunks: SQL against a walk in Python over random catalogues."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from dlv.metadata import usage
from dlv.metadata.database import Database

small = st.integers(0, 5)


@st.composite
def catalogues(draw: st.DrawFn) -> tuple[list[int | None], list[set[int]], list[set[int]]]:
    """Bases of matrices (an earlier one or none), chunks of matrices, matrices of snapshots."""
    bases = [
        draw(st.one_of(st.none(), st.integers(0, i - 1))) if i else None
        for i in range(draw(st.integers(1, 6)))
    ]
    places = [draw(st.sets(st.integers(1, 4), min_size=1)) for _ in bases]
    held = draw(st.lists(st.sets(st.integers(0, len(bases) - 1)), min_size=1, max_size=4))
    return bases, places, held


def fill(
    db: Database, bases: list[int | None], places: list[set[int]], held: list[set[int]]
) -> None:
    db.execute("PRAGMA foreign_keys = OFF")
    for chunk in range(1, 6):
        db.execute(
            "INSERT INTO chunk VALUES (?, 1, 'plane', 0, ?, ?, 10, 'x', '{\"id\":\"raw\"}')",
            (chunk, chunk, 10 * chunk),
        )
    for i, base in enumerate(bases):
        db.execute("INSERT INTO matrix VALUES (?, ?, 'float32', '[1]')", (i, f"m{i}"))
        db.execute(
            'INSERT INTO encoding VALUES (?, ?, \'{"id":"ieee"}\', NULL, ?, 1)',
            (i, i, None if base is None else f"m{base}"),
        )
        for chunk in places[i]:
            db.execute("INSERT INTO member VALUES (?, ?, ?, NULL, 0, 0, 5)", (chunk, i, i))
    db.execute("INSERT INTO named_object VALUES (1, 'series', 's')")
    db.execute("INSERT INTO member VALUES (5, 99, NULL, 1, 0, 0, 10)")
    for snapshot, matrices in enumerate(held):
        for pos, matrix in enumerate(sorted(matrices)):
            db.execute("INSERT INTO snapshot_matrix VALUES (?, ?, ?)", (snapshot, pos, matrix))


@given(
    catalogues(),
    st.lists(st.tuples(small, st.integers(0, 3)), max_size=6),
    st.lists(st.tuples(small, st.integers(0, 6)), max_size=3),
    st.sets(small),
)
@settings(max_examples=40, deadline=None)
def test_chunks_needed(
    catalogue: tuple[list[int | None], list[set[int]], list[set[int]]],
    holdings: list[tuple[int, int]],
    constants: list[tuple[int, int]],
    watchers: set[int],
) -> None:
    bases, places, held = catalogue
    expected: set[tuple[int, int]] = {(owner, 5) for owner in watchers}
    wanted = [(o, m) for o, s in holdings if s < len(held) for m in held[s]]
    for owner, matrix in [*wanted, *((o, m) for o, m in constants if m < len(bases))]:
        link: int | None = matrix
        while link is not None:
            expected |= {(owner, chunk) for chunk in places[link]}
            link = bases[link]
    needs = [(owner, "matrix", f"m{m}") for owner, m in constants]
    needs += [(owner, "series", "s") for owner in watchers]
    with tempfile.TemporaryDirectory() as folder:
        db = Database(Path(folder) / "dlv.db")
        fill(db, bases, places, held)
        found = usage.chunks_needed(db, holdings, needs)
        assert usage.chunk_lengths(db) == {chunk: 10 * chunk for chunk in range(1, 6)}
        db.close()
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_rests_on(tmp_path: Path) -> None:
    """Version 1 holds matrix 2, a delta to 1, a delta to 0, which version 2 holds."""
    db = Database(tmp_path / "dlv.db")
    fill(db, [None, 0, 1], [{1}, {2}, {3}], [{2}, {0}, {2, 0}])
    for key in range(3):
        db.execute(
            "INSERT INTO snapshot(id, version_id, pos, step, own) VALUES (?, ?, 0, 1, 1)",
            (key, key + 1),
        )
    assert usage.rests_on(db, 1, 2)
    assert not usage.rests_on(db, 2, 1)
    assert not usage.rests_on(db, 3, 2), "what it holds itself it needs of nobody"
    db.execute("UPDATE snapshot SET removed = 1 WHERE version_id = 1")
    assert not usage.rests_on(db, 1, 2)
    db.close()


def test_parts_of_shared_chunks(tmp_path: Path) -> None:
    db = Database(tmp_path / "dlv.db")
    fill(db, [None, 0], [{1}, {1, 2}], [])
    parts = {(part.kind, part.hash): part for part in usage.parts(db)}
    assert parts["matrix", "m0"].stored == 10 * 5 / 10
    assert parts["matrix", "m1"].stored == 10 * 5 / 10 + 20 * 5 / 10
    assert (parts["series", "s"].stored, parts["series", "s"].layout) == (50, None)
    assert parts["matrix", "m1"].raw == 10
    db.close()
