-- What several queries ask in the same words. Each connection makes these for itself, in memory:
-- the file of a catalogue has no views.

-- The matrix that another one is stored against, one step.
CREATE TEMP VIEW delta_base AS
  SELECT encoding.matrix_id, base.id AS base_id
  FROM encoding JOIN matrix base ON base.hash = encoding.base_hash;

-- What an encoding or an object takes of a chunk: bytes decoded (n), and its share of those stored.
CREATE TEMP VIEW chunk_share AS
  SELECT encoding_id, object_id, chunk_id, pack_id, codec, raw, n,
    CASE WHEN raw > 0 THEN length * 1.0 * n / raw ELSE length END AS stored
  FROM member JOIN chunk ON chunk.id = chunk_id;
