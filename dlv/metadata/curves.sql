-- Curves as they are shown: `.dlv/live.db`. All of it can be filled again from logs and packs.

CREATE TABLE experiment (
  id INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE
);
CREATE TABLE run (
  id INTEGER PRIMARY KEY,
  experiment_id INTEGER NOT NULL REFERENCES experiment(id),
  name TEXT NOT NULL,
  version TEXT,
  start_time REAL,
  hyperparameters TEXT NOT NULL,
  state TEXT NOT NULL,  -- what the reader of its logs has to remember
  UNIQUE (experiment_id, name)
);
CREATE INDEX run_version ON run(version);
CREATE TABLE event_file (
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run(id),
  path TEXT NOT NULL,
  kind TEXT NOT NULL,
  size INTEGER NOT NULL,
  mtime_ns INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  head TEXT NOT NULL,
  offset INTEGER NOT NULL,
  status TEXT NOT NULL,
  error TEXT,
  UNIQUE (run_id, path)
);
CREATE TABLE series (
  id INTEGER PRIMARY KEY,
  run_id INTEGER NOT NULL REFERENCES run(id),
  tag TEXT NOT NULL,
  plugin TEXT NOT NULL,
  data_class INTEGER NOT NULL,
  content BLOB NOT NULL,
  display_name TEXT NOT NULL,
  description TEXT NOT NULL,
  written INTEGER NOT NULL DEFAULT 0,  -- points, hidden ones included
  n INTEGER NOT NULL DEFAULT 0,
  max_step INTEGER,
  max_wall REAL,
  max_length INTEGER NOT NULL DEFAULT 0,
  last REAL,
  min REAL,
  max REAL,
  error TEXT,
  UNIQUE (run_id, tag)
);
CREATE TABLE scalar_chunk (
  series_id INTEGER NOT NULL REFERENCES series(id),
  seq INTEGER NOT NULL,
  n INTEGER NOT NULL,
  step0 INTEGER NOT NULL,
  step1 INTEGER NOT NULL,
  vmin REAL,
  imin INTEGER,
  vmax REAL,
  imax INTEGER,
  nonfinite INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (series_id, seq)
);
-- The sample of n live points that is asked for most.
CREATE TABLE preview (
  series_id INTEGER PRIMARY KEY REFERENCES series(id),
  n INTEGER NOT NULL,
  data BLOB NOT NULL
);
-- A restart: of the points written before `seq`, those from `step` on are hidden.
CREATE TABLE purge (
  series_id INTEGER NOT NULL REFERENCES series(id),
  seq INTEGER NOT NULL,
  step INTEGER NOT NULL,
  policy TEXT NOT NULL,
  PRIMARY KEY (series_id, seq, step)
) WITHOUT ROWID;
-- What that comes to: points seq .. seq + n are hidden.
CREATE TABLE hidden (
  series_id INTEGER NOT NULL REFERENCES series(id),
  seq INTEGER NOT NULL,
  n INTEGER NOT NULL,
  PRIMARY KEY (series_id, seq)
) WITHOUT ROWID;
CREATE TABLE tensor (
  series_id INTEGER NOT NULL REFERENCES series(id),
  seq INTEGER NOT NULL,
  step INTEGER NOT NULL,
  wall REAL,
  dtype TEXT NOT NULL,
  shape TEXT NOT NULL,
  data BLOB NOT NULL,
  legacy BLOB NOT NULL,
  PRIMARY KEY (series_id, seq)
);
CREATE TABLE blob_point (
  series_id INTEGER NOT NULL REFERENCES series(id),
  seq INTEGER NOT NULL,
  step INTEGER NOT NULL,
  wall REAL,
  length INTEGER NOT NULL,  -- 0 is legal
  PRIMARY KEY (series_id, seq)
) WITHOUT ROWID;
CREATE TABLE blob_place (
  series_id INTEGER NOT NULL REFERENCES series(id),
  seq INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  blob_id INTEGER NOT NULL REFERENCES blob(id),
  PRIMARY KEY (series_id, seq, idx)
) WITHOUT ROWID;
CREATE INDEX blob_place_blob ON blob_place(blob_id);
CREATE TABLE blob (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,
  bytes INTEGER NOT NULL
);
CREATE TABLE blob_piece (
  blob_id INTEGER NOT NULL REFERENCES blob(id),
  pos INTEGER NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (blob_id, pos)
);
