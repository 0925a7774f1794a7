-- Reading back. These are statements, not functions: they are for readers too. $2 is the time, NULL for the store's own.

-- name: time
SELECT {schema}.time_of(NULL)

-- name: parents_of
SELECT edge.child, edge.parent FROM {schema}.edge WHERE docket = $1 AND child = ANY ($2::text[]) ORDER BY child, parent

-- name: errors_of
SELECT run, attempt, at, worker, type, message, traceback FROM {schema}.error
WHERE docket = $1 AND run = ANY ($2::text[]) ORDER BY run, number

-- name: counts
-- What has become due joins the others only when somebody claims.
SELECT queue, CASE WHEN state = 'scheduled' AND parked_on IS NULL AND due <= $2 THEN 'queued' ELSE state END,
    COUNT(*), MIN(due)
FROM {schema}.present_run
WHERE docket = $1 AND (expires IS NULL OR expires > $2)
GROUP BY 1, 2 ORDER BY 1, 2

-- name: archived
SELECT COUNT(*) FROM {schema}.archive WHERE docket = $1

-- name: workers
SELECT last_seen, info FROM {schema}.worker WHERE docket = $1 ORDER BY last_seen DESC

-- name: standing
-- takes docket, time, id, how many are counted before it, how many who hold a slot are named; one statement, one moment
SELECT run.state, run.epoch, run.parked_on, CASE
    WHEN run.parked_on IS NOT NULL THEN (
        SELECT COUNT(*) FROM (
            SELECT FROM {schema}.run AS other WHERE other.docket = $1 AND other.parked_on = run.parked_on
            AND (other.priority, other.place, other.due, other.id) < (run.priority, run.place, run.due, run.id) LIMIT $4
        ) AS parked
    )
    WHEN run.state = 'queued' THEN (
        SELECT COUNT(*) FROM (
            SELECT FROM {schema}.run AS other WHERE other.docket = $1 AND other.state = 'queued' AND other.queue = run.queue
            AND (other.priority, other.place, other.due, other.id) < (run.priority, run.place, run.due, run.id) LIMIT $4
        ) AS ready
    )
    -- What is ready, or became due before: that will have a place by the time this run has one.
    WHEN run.state = 'scheduled' AND run.due <= $2 THEN (
        SELECT COUNT(*) FROM (
            SELECT FROM {schema}.run AS other WHERE other.docket = $1 AND other.state = 'queued' AND other.queue = run.queue
            AND other.priority <= run.priority LIMIT $4
        ) AS ready
    ) + (
        SELECT COUNT(*) FROM (
            SELECT other.queue FROM {schema}.run AS other WHERE other.docket = $1 AND other.state = 'scheduled'
            AND other.parked_on IS NULL AND other.due < run.due ORDER BY other.due LIMIT $4
        ) AS due WHERE due.queue = run.queue
    )
    ELSE 0
END, (
    SELECT jsonb_agg(jsonb_build_object(
        'key', one.key, 'capacity', one.capacity, 'span', one.span, 'drop', one.drop, 'taken', CASE
            WHEN one.span IS NULL THEN (SELECT COUNT(*) FROM {schema}.slot WHERE docket = $1 AND limit_key = one.key)
            ELSE (
                SELECT COUNT(*) FROM (
                    SELECT FROM {schema}.start WHERE docket = $1 AND limit_key = one.key AND at > $2 - one.span
                    ORDER BY at DESC LIMIT one.capacity
                ) AS recent
            )
        END, 'holders', (
            SELECT jsonb_agg(run) FROM (
                SELECT run FROM {schema}.slot WHERE docket = $1 AND limit_key = one.key AND one.span IS NULL
                ORDER BY run LIMIT $5
            ) AS named
        ), 'opens', (
            SELECT at + one.span FROM {schema}.start
            WHERE docket = $1 AND limit_key = one.key AND one.span IS NOT NULL AND one.capacity > 0
            ORDER BY at DESC OFFSET GREATEST(one.capacity - 1, 0) LIMIT 1
        )
    ) ORDER BY one.number)::text
    FROM ROWS FROM (
        jsonb_to_recordset(run.limits) AS (key text, capacity bigint, span bigint, drop boolean)
    ) WITH ORDINALITY AS one (key, capacity, span, drop, number)
)
FROM {schema}.run WHERE run.docket = $1 AND run.id = $3

-- name: holds
SELECT kind, queue, task, parameter, operator, value, reason, owner, since, until FROM {schema}.hold
WHERE docket = $1 AND (until IS NULL OR until > $2) ORDER BY since, identity

-- name: residue
SELECT kind, count FROM (
    SELECT 'run' AS kind, COUNT(*) AS count FROM {schema}.run WHERE docket = $1
    UNION ALL SELECT 'ended', COUNT(*) FROM {schema}.ended WHERE docket = $1
    UNION ALL SELECT 'archive', COUNT(*) FROM {schema}.archive WHERE docket = $1
    UNION ALL SELECT 'error', COUNT(*) FROM {schema}.error WHERE docket = $1
    UNION ALL SELECT 'edge', COUNT(*) FROM {schema}.edge WHERE docket = $1
    UNION ALL SELECT 'slot', COUNT(*) FROM {schema}.slot WHERE docket = $1
    UNION ALL SELECT 'start', COUNT(*) FROM {schema}.start WHERE docket = $1
    UNION ALL SELECT 'opening', COUNT(*) FROM {schema}.opening WHERE docket = $1
    UNION ALL SELECT 'share', COUNT(*) FROM {schema}.share WHERE docket = $1
    UNION ALL SELECT 'hold', COUNT(*) FROM {schema}.hold WHERE docket = $1
    UNION ALL SELECT 'worker', COUNT(*) FROM {schema}.worker WHERE docket = $1
) AS counted WHERE count > 0
