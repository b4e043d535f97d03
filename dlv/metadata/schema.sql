-- The catalogue: an index over manifests, packs and facts, and the commit point.
-- Everything but the tables at the end can be filled again from those files.

CREATE TABLE net (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  structure TEXT NOT NULL,
  n_nodes INTEGER NOT NULL,
  n_params INTEGER,
  depth INTEGER NOT NULL
);
CREATE INDEX net_structure ON net(structure);

-- One row per distinct layer definition: many networks share few of them.
CREATE TABLE layer (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  alias TEXT NOT NULL,
  op TEXT NOT NULL,
  variant TEXT NOT NULL,
  attrs TEXT NOT NULL,
  UNIQUE (name, alias, op, variant, attrs)
);
CREATE INDEX layer_alias ON layer(alias, op, variant);
CREATE INDEX layer_op ON layer(op, variant);

-- Shapes of outputs, as JSON.
CREATE TABLE shape (
  id INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
);

CREATE TABLE node (
  net_id INTEGER NOT NULL REFERENCES net(id),
  pos INTEGER NOT NULL,
  layer_id INTEGER NOT NULL REFERENCES layer(id),
  out_shape INTEGER REFERENCES shape(id),
  n_params INTEGER NOT NULL,
  PRIMARY KEY (net_id, pos)
) WITHOUT ROWID;
CREATE INDEX node_layer ON node(layer_id, net_id);

-- Which layers any edge joins, and how many do: what edges are looked for by.
CREATE TABLE layer_pair (
  src_layer INTEGER NOT NULL REFERENCES layer(id),
  dst_layer INTEGER NOT NULL REFERENCES layer(id),
  n INTEGER NOT NULL,
  PRIMARY KEY (src_layer, dst_layer)
) WITHOUT ROWID;
CREATE INDEX layer_pair_back ON layer_pair(dst_layer, src_layer);

-- Logical edges: plumbing such as flatten is skipped. `direct` = no plumbing lay between.
CREATE TABLE edge (
  net_id INTEGER NOT NULL REFERENCES net(id),
  src INTEGER NOT NULL,
  dst INTEGER NOT NULL,
  dst_port INTEGER NOT NULL,
  src_layer INTEGER NOT NULL,
  dst_layer INTEGER NOT NULL,
  direct INTEGER NOT NULL,
  PRIMARY KEY (net_id, src, dst, dst_port),
  FOREIGN KEY (src_layer, dst_layer) REFERENCES layer_pair(src_layer, dst_layer)
) WITHOUT ROWID;
CREATE INDEX edge_pair ON edge(src_layer, dst_layer, net_id);

-- The edges that `edge` does not show as direct: those at plumbing nodes.
CREATE TABLE raw_edge (
  net_id INTEGER NOT NULL REFERENCES net(id),
  src INTEGER NOT NULL,
  dst INTEGER NOT NULL,
  dst_port INTEGER NOT NULL,
  src_layer INTEGER NOT NULL REFERENCES layer(id),
  dst_layer INTEGER NOT NULL REFERENCES layer(id),
  PRIMARY KEY (net_id, src, dst, dst_port)
) WITHOUT ROWID;

CREATE TABLE net_pair (
  src_op TEXT NOT NULL,
  src_variant TEXT NOT NULL,
  dst_op TEXT NOT NULL,
  dst_variant TEXT NOT NULL,
  net_id INTEGER NOT NULL REFERENCES net(id),
  n INTEGER NOT NULL,
  PRIMARY KEY (dst_op, dst_variant, src_op, src_variant, net_id)
) WITHOUT ROWID;

CREATE TABLE layer_stat (
  layer_id INTEGER PRIMARY KEY REFERENCES layer(id),
  n_nets INTEGER NOT NULL,
  n_out INTEGER NOT NULL,
  n_in INTEGER NOT NULL
);

-- One list of tensors (names, dtypes, shapes, roles, ties) is shared by the versions that have it.
CREATE TABLE tensor_list (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE
);
CREATE TABLE tensor (
  list_id INTEGER NOT NULL REFERENCES tensor_list(id),
  pos INTEGER NOT NULL,
  name TEXT NOT NULL,
  dtype TEXT NOT NULL,
  shape TEXT NOT NULL,
  role TEXT NOT NULL,
  tied TEXT,
  PRIMARY KEY (list_id, pos)
) WITHOUT ROWID;

CREATE TABLE version (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  number INTEGER,
  net_id INTEGER REFERENCES net(id),
  tensors_id INTEGER REFERENCES tensor_list(id),
  creation_time INTEGER NOT NULL,
  author TEXT NOT NULL,
  message TEXT NOT NULL,
  framework TEXT,
  dirty INTEGER,
  scheme TEXT,
  state TEXT NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'removed', 'undone', 'recovered')),
  UNIQUE (name, number)
);
CREATE INDEX version_name_time ON version(name, creation_time);
CREATE INDEX version_time ON version(creation_time);
CREATE INDEX version_net ON version(net_id);

CREATE TABLE parent (
  derived INTEGER NOT NULL REFERENCES version(id),
  pos INTEGER NOT NULL,
  base INTEGER REFERENCES version(id),
  base_hash TEXT,  -- of one that is not here
  kind TEXT NOT NULL,
  PRIMARY KEY (derived, pos),
  CHECK ((base IS NULL) != (base_hash IS NULL))
) WITHOUT ROWID;
CREATE INDEX parent_base ON parent(base, derived);
CREATE INDEX parent_base_hash ON parent(base_hash) WHERE base_hash IS NOT NULL;

CREATE TABLE matrix (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  dtype TEXT NOT NULL,
  shape TEXT NOT NULL
);
CREATE TABLE snapshot (
  id INTEGER PRIMARY KEY,
  version_id INTEGER NOT NULL REFERENCES version(id),
  pos INTEGER NOT NULL,
  step INTEGER,
  own INTEGER NOT NULL,
  removed INTEGER NOT NULL DEFAULT 0,
  UNIQUE (version_id, pos)
);
CREATE TABLE snapshot_matrix (
  snapshot_id INTEGER NOT NULL REFERENCES snapshot(id),
  pos INTEGER NOT NULL,
  matrix_id INTEGER NOT NULL REFERENCES matrix(id),
  PRIMARY KEY (snapshot_id, pos)
) WITHOUT ROWID;
CREATE INDEX snapshot_matrix_matrix ON snapshot_matrix(matrix_id);

CREATE TABLE hyperparameter (
  version_id INTEGER NOT NULL REFERENCES version(id),
  key TEXT NOT NULL,
  type TEXT NOT NULL,
  num REAL,
  txt TEXT,
  PRIMARY KEY (version_id, key)
) WITHOUT ROWID;
CREATE INDEX hyperparameter_num ON hyperparameter(key, num, version_id);
CREATE INDEX hyperparameter_txt ON hyperparameter(key, txt, version_id) WHERE type = 'str';

-- Summaries of series; the points themselves lie in packs.
CREATE TABLE metric (
  version_id INTEGER NOT NULL REFERENCES version(id),
  tag TEXT NOT NULL,
  run TEXT NOT NULL,
  series_hash BLOB NOT NULL,
  n INTEGER NOT NULL,
  last_step INTEGER,
  last REAL,
  min REAL,
  min_step INTEGER,
  max REAL,
  max_step INTEGER,
  nonfinite INTEGER NOT NULL,
  PRIMARY KEY (version_id, tag, run)
) WITHOUT ROWID;
CREATE INDEX metric_last ON metric(tag, last, version_id);
CREATE INDEX metric_min ON metric(tag, min, version_id);
CREATE INDEX metric_max ON metric(tag, max, version_id);

CREATE TABLE file (
  version_id INTEGER NOT NULL REFERENCES version(id),
  path TEXT NOT NULL,
  role TEXT NOT NULL,
  mode TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  blake3 TEXT NOT NULL,
  git TEXT NOT NULL,
  PRIMARY KEY (version_id, path)
) WITHOUT ROWID;

CREATE TABLE tag (
  name TEXT PRIMARY KEY,
  version_id INTEGER NOT NULL REFERENCES version(id)
) WITHOUT ROWID;

CREATE INDEX tag_version ON tag(version_id);

CREATE TABLE saved_query (
  name TEXT PRIMARY KEY,
  text TEXT NOT NULL,
  created TEXT NOT NULL
) WITHOUT ROWID;

-- Packs, footer by footer.
CREATE TABLE pack (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  bytes INTEGER NOT NULL
);
-- The encoding that counts for a matrix; there may be others in older packs.
CREATE TABLE encoding (
  id INTEGER PRIMARY KEY,
  matrix_id INTEGER NOT NULL UNIQUE REFERENCES matrix(id),
  layout TEXT NOT NULL,
  delta TEXT,
  base_hash TEXT,
  planes INTEGER NOT NULL
);
CREATE INDEX encoding_base ON encoding(base_hash);
CREATE TABLE chunk (
  id INTEGER PRIMARY KEY,
  pack_id INTEGER NOT NULL REFERENCES pack(id),
  kind TEXT NOT NULL,
  plane INTEGER,
  offset INTEGER NOT NULL,
  length INTEGER NOT NULL,
  raw INTEGER NOT NULL,
  blake3 TEXT NOT NULL,
  codec TEXT NOT NULL,
  UNIQUE (pack_id, offset)
);
CREATE TABLE named_object (
  id INTEGER PRIMARY KEY,
  kind TEXT NOT NULL,
  hash TEXT NOT NULL,
  UNIQUE (kind, hash)
);
-- What a decoded chunk holds, in order: from byte `at` on,
-- bytes `start` .. `start + n` of an encoding's plane or of an object.
CREATE TABLE member (
  chunk_id INTEGER NOT NULL REFERENCES chunk(id),
  pos INTEGER NOT NULL,
  encoding_id INTEGER REFERENCES encoding(id),
  object_id INTEGER REFERENCES named_object(id),
  at INTEGER NOT NULL,
  start INTEGER NOT NULL,
  n INTEGER NOT NULL,
  PRIMARY KEY (chunk_id, pos)
) WITHOUT ROWID;
CREATE INDEX member_encoding ON member(encoding_id) WHERE encoding_id IS NOT NULL;
CREATE INDEX member_object ON member(object_id) WHERE object_id IS NOT NULL;

-- Bounds records, and the matrices that each is about.
CREATE TABLE bounds (
  id INTEGER PRIMARY KEY,
  object_id INTEGER NOT NULL UNIQUE REFERENCES named_object(id),
  network TEXT NOT NULL
);
CREATE INDEX bounds_network ON bounds(network);
CREATE TABLE bounds_matrix (
  bounds_id INTEGER NOT NULL REFERENCES bounds(id),
  hash TEXT NOT NULL,
  PRIMARY KEY (bounds_id, hash)
) WITHOUT ROWID;

CREATE TABLE fact (
  hash TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  subject TEXT,
  created TEXT NOT NULL,
  data TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX fact_subject ON fact(kind, subject);

-- From here on: known to this database alone, and lost with it.
CREATE TABLE state (
  key TEXT PRIMARY KEY,
  value TEXT
) WITHOUT ROWID;
CREATE TABLE staged (
  path TEXT PRIMARY KEY,
  source TEXT NOT NULL,
  role TEXT NOT NULL,
  format TEXT NOT NULL,
  step INTEGER,
  bytes INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  hash TEXT NOT NULL,
  options TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE operation (
  id INTEGER PRIMARY KEY,
  created TEXT NOT NULL,
  verb TEXT NOT NULL,
  summary TEXT NOT NULL,
  facts TEXT NOT NULL,
  before TEXT NOT NULL,
  after TEXT NOT NULL,
  undoes INTEGER REFERENCES operation(id),
  consumed TEXT NOT NULL  -- staged files that went into it
);
-- Files as `commit` or `checkout` last saw them: unchanged size and time spare a hash.
CREATE TABLE seen (
  path TEXT PRIMARY KEY,
  bytes INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  hash TEXT NOT NULL
) WITHOUT ROWID;
