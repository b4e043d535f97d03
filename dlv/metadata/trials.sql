-- The ledger of trials, a file of its own: .dlv/trials.db.

CREATE TABLE token (last INTEGER NOT NULL);  -- of all claims: none is ever given twice
INSERT INTO token VALUES (0);

CREATE TABLE run (
  seq INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  text TEXT NOT NULL,
  parameters TEXT NOT NULL,
  rules TEXT NOT NULL,
  budget TEXT NOT NULL,
  sampler TEXT NOT NULL,
  steps INTEGER NOT NULL,
  growing INTEGER NOT NULL,            -- more trials may join
  state TEXT NOT NULL,                 -- running, over, stopped, failed
  why TEXT NOT NULL DEFAULT '',
  created REAL NOT NULL,
  alive REAL NOT NULL,                 -- when a worker was last heard of
  active_seconds REAL NOT NULL DEFAULT 0,
  spent_steps INTEGER NOT NULL DEFAULT 0,
  changed INTEGER NOT NULL DEFAULT 1   -- something to decide since the last time
);

CREATE TABLE trial (
  id TEXT PRIMARY KEY,
  network TEXT NOT NULL,
  config TEXT NOT NULL,
  seed INTEGER NOT NULL,
  log_every INTEGER NOT NULL,
  state TEXT NOT NULL DEFAULT 'ready', -- ready, running, done, diverged, failed
  step INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0, -- claims since the last new step
  token INTEGER NOT NULL DEFAULT 0,
  owner TEXT,
  lease REAL NOT NULL DEFAULT 0,
  seconds REAL NOT NULL DEFAULT 0,
  error TEXT,
  unlike TEXT                          -- what came out otherwise when it was trained again
) WITHOUT ROWID;
CREATE INDEX trial_running ON trial(state) WHERE state = 'running';

CREATE TABLE run_trial (
  run_id TEXT NOT NULL REFERENCES run(id),
  trial_id TEXT NOT NULL REFERENCES trial(id),
  ordinal INTEGER NOT NULL,
  label TEXT NOT NULL,
  varied TEXT NOT NULL,
  steps INTEGER NOT NULL,              -- where it ends in this run
  target INTEGER NOT NULL,             -- how far it may go before the next verdict
  stopped INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (run_id, trial_id)
) WITHOUT ROWID;
CREATE INDEX run_trial_of ON run_trial(trial_id, run_id);

CREATE TABLE mark (
  run_id TEXT NOT NULL REFERENCES run(id),
  trial_id TEXT NOT NULL,
  rule INTEGER NOT NULL,
  step INTEGER NOT NULL,
  value REAL,
  finite INTEGER NOT NULL,
  cut REAL,
  kept INTEGER NOT NULL,
  why TEXT NOT NULL,
  closing INTEGER NOT NULL,            -- given because the run ended before its time
  PRIMARY KEY (run_id, trial_id, rule, step)
) WITHOUT ROWID;

CREATE TABLE log (
  trial_id TEXT NOT NULL REFERENCES trial(id),
  metric TEXT NOT NULL,
  step INTEGER NOT NULL,
  value REAL,                          -- NULL: not a number
  finite INTEGER NOT NULL,
  wall REAL NOT NULL,
  PRIMARY KEY (trial_id, metric, step)
) WITHOUT ROWID;
