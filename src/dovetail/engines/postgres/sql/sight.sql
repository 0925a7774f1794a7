-- Reading back. These are statements, not functions: they are for readers too. $2 is the time, NULL for the store's own.

-- name: time
SELECT {schema}.time_of(NULL)

-- name: parents_of
SELECT edge.child, edge.parent FROM {schema}.edge WHERE docket = $1 AND child = ANY ($2::text[]) ORDER BY child, parent

-- name: errors_of
SELECT run, attempt, at, worker, type, message, traceback FROM {schema}.error
WHERE docket = $1 AND run = ANY ($2::text[]) ORDER BY run, number

-- name: counts
SELECT queue, state, COUNT(*), MIN(due) FROM {schema}.present_run
WHERE docket = $1 AND (expires IS NULL OR expires > $2)
GROUP BY queue, state ORDER BY queue, state

-- name: archived
SELECT COUNT(*) FROM {schema}.archive WHERE docket = $1

-- name: workers
SELECT last_seen, info FROM {schema}.worker WHERE docket = $1 ORDER BY last_seen DESC

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
