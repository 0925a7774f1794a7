-- Everything a docket keeps. Times are microseconds since 1970 and durations are microseconds, as in every engine: sums
-- and comparisons come out alike everywhere, no session's time zone matters, and a far end of the calendar is a number.
--
-- Three tables hold the runs. `run` is small and hot: what waits and what runs. `ended` is what is kept of those that are
-- over, and `archive` what is kept of them for longer; only a sweep ever looks through these. Text is compared byte by byte, as in Python.

CREATE TABLE docket (
    id    bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name  text COLLATE "C" NOT NULL UNIQUE,
    token uuid NOT NULL DEFAULT gen_random_uuid(), -- tells the docket from one of its name and number elsewhere
    holds bigint NOT NULL DEFAULT 0,        -- changes with every hold laid or lifted
    lapse bigint                            -- no lease ends before this; NULL: nobody knows
);

CREATE TABLE run (
    docket         bigint NOT NULL,
    due            bigint NOT NULL,
    created        bigint NOT NULL,
    epoch          bigint NOT NULL DEFAULT 0,
    priority       bigint NOT NULL,         -- negated: the index then reads upwards, highest first
    place          double precision NOT NULL DEFAULT 0, -- fair share: see the contract
    keep_completed bigint NOT NULL,
    keep_failed    bigint NOT NULL,
    keep_cancelled bigint NOT NULL,
    lease          bigint,                  -- in no index, so that a heartbeat writes no index
    started        bigint,
    keep_archived  bigint,                  -- how long it lies in the archive after that; NULL: not at all
    keep_most      integer,                 -- how many of its task and ending are kept; NULL: it is not counted
    attempt        integer NOT NULL,
    crashes        integer NOT NULL DEFAULT 0,
    crash_limit    integer NOT NULL,
    waits_for      integer NOT NULL DEFAULT 0,  -- parents that are not over yet
    children       integer NOT NULL DEFAULT 0,  -- 0 until a run is made to wait for this one
    failures       integer NOT NULL DEFAULT 0,  -- rows of its error history, ever written
    after_failure  boolean NOT NULL DEFAULT false,
    wants_results  boolean NOT NULL DEFAULT false, -- its claim brings along what its parents have returned
    stop           boolean NOT NULL DEFAULT false,
    state          text COLLATE "C" NOT NULL,
    id             text COLLATE "C" NOT NULL,
    key            text COLLATE "C",        -- NULL: the id is the key, and no index entry is spent on it
    task           text COLLATE "C" NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    tribe          text COLLATE "C",        -- the group; GROUP is a word of SQL
    weight         double precision,
    limits         jsonb,                   -- NULL for none, which is the fast path
    headers        text,
    postponed_by   text COLLATE "C",        -- the id of the request that moved it last, which makes that repeatable
    parked_on      text COLLATE "C",        -- the full limit it waits for
    turn           text COLLATE "C",        -- the limit it was woken for, until it starts
    worker         text COLLATE "C",
    error          text COLLATE "C",
    progress       bigint,
    total          bigint,
    message        text,
    reported       bigint,
    payload        bytea NOT NULL,          -- beyond a few hundred bytes it lies apart, and no update copies it
    PRIMARY KEY (docket, id)
) WITH (
    fillfactor = 70, toast_tuple_target = 512,
    autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0,
    autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 20000
);
ALTER TABLE run ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE INDEX run_key ON run (docket, key) WHERE key IS NOT NULL;
-- What may be claimed, in claim order.
CREATE INDEX run_ready ON run (docket, queue, priority, place, due, id) WHERE state = 'queued';
-- What becomes due.
CREATE INDEX run_due ON run (docket, due) WHERE state = 'scheduled' AND parked_on IS NULL;
-- What waits for a limit, in claim order.
CREATE INDEX run_parked ON run (docket, parked_on, priority, place, due, id) WHERE parked_on IS NOT NULL;
-- What may have lost its worker. It goes by the worker, not by the state: a look-up by id that asks for the state too
-- must not be taken for one that this index could serve.
CREATE INDEX run_running ON run (docket, queue) WHERE worker IS NOT NULL;

CREATE TABLE ended (
    docket         bigint NOT NULL,
    due            bigint NOT NULL,
    created        bigint NOT NULL,
    epoch          bigint NOT NULL,
    priority       bigint NOT NULL,
    keep_completed bigint NOT NULL,
    keep_failed    bigint NOT NULL,
    keep_cancelled bigint NOT NULL,
    started        bigint,
    finished       bigint NOT NULL,
    expires        bigint NOT NULL,         -- the end of its retention, and of its time in the archive
    keep_archived  bigint,
    keep_most      integer,
    attempt        integer NOT NULL,
    crashes        integer NOT NULL,
    crash_limit    integer NOT NULL,
    children       integer NOT NULL,
    failures       integer NOT NULL,
    after_failure  boolean NOT NULL,
    wants_results  boolean NOT NULL DEFAULT false,
    state          text COLLATE "C" NOT NULL,
    id             text COLLATE "C" NOT NULL,
    key            text COLLATE "C",
    task           text COLLATE "C" NOT NULL,
    queue          text COLLATE "C" NOT NULL,
    tribe          text COLLATE "C",
    weight         double precision,
    limits         jsonb,
    headers        text,
    worker         text COLLATE "C",
    doomed_by      text COLLATE "C",        -- the parent whose end cancelled it
    error          text COLLATE "C",
    payload        bytea NOT NULL,
    result         bytea,
    PRIMARY KEY (docket, id)
) WITH (
    toast_tuple_target = 512, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 20000,
    autovacuum_vacuum_cost_delay = 0
);
ALTER TABLE ended ALTER COLUMN payload SET STORAGE EXTERNAL;
ALTER TABLE ended ALTER COLUMN result SET STORAGE EXTERNAL;

CREATE INDEX ended_key ON ended (docket, key) WHERE key IS NOT NULL;
-- What may be forgotten.
-- The condition always holds, and says that the index is for those who ask for times: by their ids, runs are found without.
CREATE INDEX ended_expires ON ended (docket, expires) WHERE expires IS NOT NULL;

-- What goes to the archive.
CREATE INDEX ended_moves ON ended (docket, (expires - keep_archived)) WHERE keep_archived IS NOT NULL;
-- What is kept by count: the runs of a task that ended alike, the newest last.
CREATE INDEX ended_counted ON ended (docket, task, state, finished, id) WHERE keep_most IS NOT NULL;

-- Runs past their retention that are kept all the same. What belongs to them stays where it is.
CREATE TABLE archive (LIKE ended INCLUDING STORAGE, PRIMARY KEY (docket, id)) WITH (toast_tuple_target = 512);
CREATE INDEX archive_key ON archive (docket, key) WHERE key IS NOT NULL;
CREATE INDEX archive_expires ON archive (docket, expires) WHERE expires IS NOT NULL;

-- What waits and what runs; that and what is over; and every run that is kept, the archive included.
CREATE VIEW live_run AS
    SELECT docket, id, key, task, state, queue, priority, due, created, attempt, epoch, payload, crashes, crash_limit,
        tribe, worker, started, NULL::bigint AS finished, lease, stop, parked_on, limits, NULL::text COLLATE "C" AS doomed_by,
        NULL::bytea AS result, error, failures, progress, total, message, reported, headers, NULL::bigint AS expires
    FROM run;
CREATE VIEW present_run AS
    SELECT * FROM live_run
    UNION ALL
    SELECT docket, id, key, task, state, queue, priority, due, created, attempt, epoch, payload, crashes, crash_limit,
        tribe, worker, started, finished, NULL::bigint, false, NULL::text COLLATE "C", limits, doomed_by,
        result, error, failures, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, headers, expires
    FROM ended;
CREATE VIEW every_run AS
    SELECT * FROM present_run
    UNION ALL
    SELECT docket, id, key, task, state, queue, priority, due, created, attempt, epoch, payload, crashes, crash_limit,
        tribe, worker, started, finished, NULL::bigint, false, NULL::text COLLATE "C", limits, doomed_by,
        result, error, failures, NULL::bigint, NULL::bigint, NULL::text, NULL::bigint, headers, expires
    FROM archive;

-- The error history, bounded.
CREATE TABLE error (
    docket    bigint NOT NULL,
    run       text COLLATE "C" NOT NULL,
    number    integer NOT NULL,
    attempt   integer NOT NULL,
    at        bigint NOT NULL,
    worker    text,
    type      text NOT NULL,
    message   text NOT NULL,
    traceback text NOT NULL,
    PRIMARY KEY (docket, run, number)
);

-- Who waits for whom. Kept until either is forgotten, so that a revived parent finds its dependents.
CREATE TABLE edge (
    docket bigint NOT NULL,
    parent text COLLATE "C" NOT NULL,
    child  text COLLATE "C" NOT NULL,
    met    boolean NOT NULL,                -- the parent is over, and the child has counted it
    PRIMARY KEY (docket, parent, child)
);
CREATE INDEX edge_child ON edge (docket, child);

-- A slot belongs to a run that is running.
CREATE TABLE slot (
    docket    bigint NOT NULL,
    limit_key text COLLATE "C" NOT NULL,
    run       text COLLATE "C" NOT NULL,
    PRIMARY KEY (docket, limit_key, run)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0);

-- Recent starts under a windowed limit.
CREATE TABLE start (
    docket    bigint NOT NULL,
    limit_key text COLLATE "C" NOT NULL,
    at        bigint NOT NULL,
    expires   bigint NOT NULL,
    run       text COLLATE "C" NOT NULL
);
CREATE INDEX start_recent ON start (docket, limit_key, at);
CREATE INDEX start_expires ON start (docket, expires);

-- When a window opens for those parked on it.
CREATE TABLE opening (
    docket    bigint NOT NULL,
    limit_key text COLLATE "C" NOT NULL,
    at        bigint NOT NULL,
    PRIMARY KEY (docket, limit_key)
);
CREATE INDEX opening_at ON opening (docket, at);

-- The last place given to a group of a queue; to the empty group: the queue's virtual time.
CREATE TABLE share (
    docket bigint NOT NULL,
    queue  text COLLATE "C" NOT NULL,
    tribe  text COLLATE "C" NOT NULL,
    place  double precision NOT NULL,
    PRIMARY KEY (docket, queue, tribe)
) WITH (fillfactor = 50);

CREATE TABLE hold (
    docket    bigint NOT NULL,
    identity  bytea NOT NULL,
    kind      text NOT NULL,
    queue     text COLLATE "C",
    task      text,
    parameter text,
    operator  text NOT NULL,
    value     bytea,
    reason    text,
    owner     text,
    since     bigint NOT NULL,
    until     bigint,
    PRIMARY KEY (docket, identity)
);

CREATE TABLE worker (
    docket    bigint NOT NULL,
    id        text COLLATE "C" NOT NULL,
    last_seen bigint NOT NULL,
    info      bytea NOT NULL,
    PRIMARY KEY (docket, id)
) WITH (fillfactor = 50);
