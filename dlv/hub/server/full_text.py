"""The index over the words of cards: FTS5 in SQLite, GIN over tsvector in PostgreSQL."""

from __future__ import annotations

from collections.abc import Sequence

import sqlalchemy as sa

from dlv.hub.server.words import Word

# The words are divided and folded before, so that the tokenizers have nothing to decide.
_SQLITE = (
    "CREATE VIRTUAL TABLE card_words USING fts5(words, content='card_text',"
    " content_rowid='card_id', detail=none, prefix='1 2 3', tokenize='ascii')",
    "CREATE TRIGGER card_text_insert AFTER INSERT ON card_text BEGIN"
    " INSERT INTO card_words(rowid, words) VALUES (new.card_id, new.words); END",
    "CREATE TRIGGER card_text_delete AFTER DELETE ON card_text BEGIN INSERT INTO"
    " card_words(card_words, rowid, words) VALUES ('delete', old.card_id, old.words); END",
    "CREATE TRIGGER card_text_update AFTER UPDATE ON card_text BEGIN INSERT INTO"
    " card_words(card_words, rowid, words) VALUES ('delete', old.card_id, old.words);"
    " INSERT INTO card_words(rowid, words) VALUES (new.card_id, new.words); END",
)
_POSTGRES = (
    # Rows without their long texts, which are stored apart: a search that finds many reads many.
    "ALTER TABLE card_text SET (toast_tuple_target = 128)",
    "ALTER TABLE card_text ADD COLUMN terms tsvector GENERATED ALWAYS AS"
    " (array_to_tsvector(array_remove(string_to_array(words, ' '), ''))) STORED",
    # Without a list of pending words, which each search would read.
    "CREATE INDEX card_text_terms ON card_text USING gin (terms) WITH (fastupdate = off)",
)


def create(connection: sa.Connection) -> None:
    """Create the index; the tables are there."""
    statements = _POSTGRES if connection.dialect.name == "postgresql" else _SQLITE
    for statement in statements:
        connection.exec_driver_sql(statement)


def sqlite_match(words: Sequence[Word]) -> str:
    """Return a query of FTS5. Words consist of ASCII letters and digits."""
    return " ".join(f'"{word.code}"{"*" if word.prefix else ""}' for word in words)


def postgres_match(words: Sequence[Word]) -> str:
    """Return a tsquery."""
    return " & ".join(f"'{word.code}'{':*' if word.prefix else ''}" for word in words)
