-- A bounded look at a docket: the table of live runs, and a bounded part of what is over. $1 is the docket.

-- name: glance_live
SELECT queue, state, parked_on IS NOT NULL, COUNT(*), MIN(due) FROM {schema}.run WHERE docket = $1 GROUP BY 1, 2, 3

-- name: glance_kept
SELECT COUNT(*) FROM (SELECT FROM {schema}.ended WHERE docket = $1 AND expires > $2 LIMIT $3) AS kept

-- name: glance_leases
SELECT id, key, task, queue, state, attempt, worker, started, NULL, lease, error FROM {schema}.run
WHERE docket = $1 AND worker IS NOT NULL AND state = 'running' ORDER BY lease LIMIT $2

-- name: glance_failures
-- those that are kept longest
SELECT id, key, task, queue, state, attempt, worker, started, finished, NULL, error FROM (
    SELECT * FROM {schema}.ended WHERE docket = $1 AND expires > $2 ORDER BY expires DESC LIMIT $3
) AS latest
WHERE state = 'failed' ORDER BY finished DESC LIMIT $4
