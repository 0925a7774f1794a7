CREATE TABLE dovetail_archive(
  seq INT,
  docket INT,
  id TEXT,
  "key" TEXT,
  task TEXT,
  queue TEXT,
  priority INT,
  state TEXT,
  due INT,
  created INT,
  attempt INT,
  epoch INT,
  crashes INT,
  crash_limit INT,
  place REAL,
  keep_completed INT,
  keep_failed INT,
  keep_cancelled INT,
  keep_most INT,
  keep_archived INT,
  payload,
  tribe TEXT,
  weight REAL,
  limits TEXT,
  headers TEXT,
  postponed_by TEXT,
  waits_for INT,
  after_failure INT,
  wants_results INT,
  children INT,
  doomed_by TEXT,
  parked_on TEXT,
  turn TEXT,
  worker TEXT,
  lease INT,
  started INT,
  stop INT,
  finished INT,
  expires INT,
  result,
  error TEXT,
  failures INT,
  progress INT,
  total INT,
  message TEXT,
  reported INT
);

CREATE INDEX dovetail_archive_expires ON dovetail_archive (docket, expires);

CREATE UNIQUE INDEX dovetail_archive_id ON dovetail_archive (id, docket);

CREATE INDEX dovetail_archive_key ON dovetail_archive (docket, key) WHERE key IS NOT NULL;

CREATE UNIQUE INDEX dovetail_archive_seq ON dovetail_archive (seq);

CREATE TABLE dovetail_docket (
    id    INTEGER PRIMARY KEY,
    name  TEXT NOT NULL UNIQUE,
    holds INTEGER NOT NULL DEFAULT 0,       -- changes with every hold laid or lifted
    mark  INTEGER NOT NULL DEFAULT 0        -- the latest time any process went by: the clock never falls behind it
);

CREATE TABLE dovetail_edge (
    parent INTEGER NOT NULL,
    child  INTEGER NOT NULL,
    met    INTEGER NOT NULL,                -- the parent is over, and the child has counted it
    PRIMARY KEY (parent, child)
) WITHOUT ROWID;

CREATE INDEX dovetail_edge_child ON dovetail_edge (child);

CREATE TABLE dovetail_error (
    run       INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    attempt   INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    worker    TEXT,
    type      TEXT NOT NULL,
    message   TEXT NOT NULL,
    traceback TEXT NOT NULL,
    PRIMARY KEY (run, number)
) WITHOUT ROWID;

CREATE TABLE dovetail_hold (
    docket    INTEGER NOT NULL,
    identity  BLOB NOT NULL,
    kind      TEXT NOT NULL,
    queue     TEXT,
    task      TEXT,
    parameter TEXT,
    operator  TEXT NOT NULL,
    value     BLOB,
    reason    TEXT,
    owner     TEXT,
    since     INTEGER NOT NULL,
    until     INTEGER,
    PRIMARY KEY (docket, identity)
) WITHOUT ROWID;

CREATE TABLE dovetail_opening (
    docket    INTEGER NOT NULL,
    limit_key TEXT NOT NULL,
    at        INTEGER NOT NULL,
    PRIMARY KEY (docket, limit_key)
) WITHOUT ROWID;

CREATE INDEX dovetail_opening_at ON dovetail_opening (docket, at);

CREATE TABLE dovetail_run (
    seq            INTEGER PRIMARY KEY,     -- the order of arrival; of the runs of a key the greatest is the newest
    docket         INTEGER NOT NULL,
    id             TEXT NOT NULL,
    key            TEXT,                    -- NULL: the id is the key, and no index entry is spent on it
    task           TEXT NOT NULL,
    queue          TEXT NOT NULL,
    priority       INTEGER NOT NULL,        -- negated: the index then reads upwards, highest first
    state          TEXT NOT NULL,
    due            INTEGER NOT NULL,
    created        INTEGER NOT NULL,
    attempt        INTEGER NOT NULL,
    epoch          INTEGER NOT NULL DEFAULT 0,
    crashes        INTEGER NOT NULL DEFAULT 0,
    crash_limit    INTEGER NOT NULL,
    place          REAL NOT NULL DEFAULT 0, -- fair share: see the contract
    keep_completed INTEGER NOT NULL,
    keep_failed    INTEGER NOT NULL,
    keep_cancelled INTEGER NOT NULL,
    keep_most      INTEGER,                 -- how many of its task and ending are kept; NULL: it is not counted
    keep_archived  INTEGER,                 -- how long it lies in the archive after that; NULL: not at all
    payload        BLOB NOT NULL,
    tribe          TEXT,                    -- the group; GROUP is a word of SQL
    weight         REAL,
    limits         TEXT,                    -- JSON; NULL for none, which is the fast path
    headers        TEXT,                    -- JSON
    postponed_by   TEXT,                    -- the id of the request that moved it last, which makes that repeatable
    waits_for      INTEGER NOT NULL DEFAULT 0,  -- parents that are not over yet
    after_failure  INTEGER NOT NULL DEFAULT 0,
    wants_results  INTEGER NOT NULL DEFAULT 0,  -- its claim brings along what its parents have returned
    children       INTEGER NOT NULL DEFAULT 0,  -- runs that were ever made to wait for this one
    doomed_by      TEXT,                    -- the parent whose end cancelled it
    parked_on      TEXT,                    -- the full limit it waits for
    turn           TEXT,                    -- the limit it was woken for, until it starts
    worker         TEXT,
    lease          INTEGER,
    started        INTEGER,
    stop           INTEGER NOT NULL DEFAULT 0,
    finished       INTEGER,
    expires        INTEGER,                 -- the end of its retention and of its time in the archive, once it is over
    result         BLOB,
    error          TEXT,
    failures       INTEGER NOT NULL DEFAULT 0,  -- rows of its error history, ever written
    progress       INTEGER,
    total          INTEGER,
    message        TEXT,
    reported       INTEGER
);

CREATE INDEX dovetail_run_counted ON dovetail_run (docket, task, state, finished, id)
    WHERE keep_most IS NOT NULL AND finished IS NOT NULL;

CREATE INDEX dovetail_run_due ON dovetail_run (docket, due) WHERE state = 'scheduled' AND parked_on IS NULL;

CREATE INDEX dovetail_run_expires ON dovetail_run (docket, expires) WHERE expires IS NOT NULL;

CREATE UNIQUE INDEX dovetail_run_id ON dovetail_run (id, docket);

CREATE INDEX dovetail_run_key ON dovetail_run (docket, key) WHERE key IS NOT NULL;

CREATE INDEX dovetail_run_lease ON dovetail_run (docket, queue, lease) WHERE state = 'running';

CREATE INDEX dovetail_run_moves ON dovetail_run (docket, expires - keep_archived)
    WHERE keep_archived IS NOT NULL AND expires IS NOT NULL;

CREATE INDEX dovetail_run_parked ON dovetail_run (docket, parked_on, priority, place, due, id) WHERE parked_on IS NOT NULL;

CREATE INDEX dovetail_run_ready ON dovetail_run (docket, queue, priority, place, due, id) WHERE state = 'queued';

CREATE TABLE dovetail_schema (version INTEGER NOT NULL);

CREATE TABLE dovetail_share (
    docket INTEGER NOT NULL,
    queue  TEXT NOT NULL,
    tribe  TEXT NOT NULL,
    place  REAL NOT NULL,
    PRIMARY KEY (docket, queue, tribe)
) WITHOUT ROWID;

CREATE TABLE dovetail_slot (
    docket    INTEGER NOT NULL,
    limit_key TEXT NOT NULL,
    run       INTEGER NOT NULL,
    PRIMARY KEY (docket, limit_key, run)
) WITHOUT ROWID;

CREATE TABLE dovetail_start (
    docket    INTEGER NOT NULL,
    limit_key TEXT NOT NULL,
    at        INTEGER NOT NULL,
    expires   INTEGER NOT NULL,
    run       INTEGER NOT NULL
);

CREATE INDEX dovetail_start_expires ON dovetail_start (docket, expires);

CREATE INDEX dovetail_start_recent ON dovetail_start (docket, limit_key, at);

CREATE TABLE dovetail_worker (
    docket    INTEGER NOT NULL,
    id        TEXT NOT NULL,
    last_seen INTEGER NOT NULL,
    info      BLOB NOT NULL,
    PRIMARY KEY (docket, id)
) WITHOUT ROWID;

