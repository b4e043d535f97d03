"""Matrices that the catalogue takes for differences, without a pack that says so."""

from __future__ import annotations

from itertools import pairwise

from dlv.metadata.database import Database


def chain(db: Database) -> list[str]:
    """Each matrix is from now on a difference to the one before it: their hashes, in order."""
    names = [row[0] for row in db.rows("SELECT hash FROM matrix ORDER BY id")]
    for base, matrix in pairwise(names):
        db.execute(
            "UPDATE encoding SET base_hash = ?"
            " WHERE matrix_id = (SELECT id FROM matrix WHERE hash = ?)",
            (base, matrix),
        )
    return names
