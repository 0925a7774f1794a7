-- A bounded look: each statement reads one index, or a bounded part of the table.

-- name: glance_queued
-- takes docket
SELECT queue, COUNT(*), MIN(due) FROM dovetail_run WHERE docket = ?1 AND state = 'queued' GROUP BY queue

-- name: glance_scheduled
-- takes docket
SELECT queue, COUNT(*), MIN(due) FROM dovetail_run
WHERE docket = ?1 AND state = 'scheduled' AND parked_on IS NULL GROUP BY queue

-- name: glance_running
-- takes docket
SELECT queue, COUNT(*) FROM dovetail_run WHERE docket = ?1 AND state = 'running' GROUP BY queue

-- name: glance_waiting
-- takes docket
SELECT COUNT(DISTINCT run.seq) FROM dovetail_edge AS edge CROSS JOIN dovetail_run AS run ON run.seq = edge.child
WHERE edge.met = 0 AND run.docket = ?1 AND run.state = 'waiting'

-- name: glance_parked
-- takes docket
SELECT COUNT(*) FROM dovetail_run WHERE docket = ?1 AND parked_on IS NOT NULL

-- name: glance_kept
-- takes docket, now, at most
SELECT COUNT(*) FROM (SELECT 1 FROM dovetail_run WHERE docket = ?1 AND expires > ?2 LIMIT ?3)

-- name: glance_leases
-- takes docket, at most
SELECT id, COALESCE(key, id), task, queue, state, attempt, worker, started, finished, lease, error FROM dovetail_run
WHERE docket = ?1 AND state = 'running' ORDER BY lease LIMIT ?2

-- name: glance_failures
-- takes docket, now, how many records to look at, at most; those that are kept longest
SELECT id, COALESCE(key, id), task, queue, state, attempt, worker, started, finished, lease, error FROM (
    SELECT * FROM dovetail_run WHERE docket = ?1 AND expires > ?2 ORDER BY expires DESC LIMIT ?3
)
WHERE state = 'failed' ORDER BY finished DESC LIMIT ?4

-- name: orphans
-- takes docket, at most: runs that wait, and for no run that is there and not over
SELECT COALESCE(run.key, run.id) FROM dovetail_run AS run
WHERE run.docket = ?1 AND run.state = 'waiting' AND NOT EXISTS (
    SELECT 1 FROM dovetail_edge AS edge JOIN dovetail_run AS parent ON parent.seq = edge.parent
    WHERE edge.child = run.seq AND edge.met = 0 AND parent.state IN ('scheduled', 'queued', 'waiting', 'running')
)
LIMIT ?2
