-- name: errors_of
-- takes run
SELECT attempt, at, worker, type, message, traceback FROM dovetail_error WHERE run = ? ORDER BY number

-- name: parents_of
-- takes child
SELECT COALESCE(
    (SELECT id FROM dovetail_run WHERE seq = edge.parent), (SELECT id FROM dovetail_archive WHERE seq = edge.parent)
) FROM dovetail_edge AS edge WHERE edge.child = ? ORDER BY edge.parent

-- name: counts
-- takes docket, now
SELECT queue, state, COUNT(*), MIN(due) FROM dovetail_run
WHERE docket = ?1 AND (expires IS NULL OR expires > ?2)
GROUP BY queue, state ORDER BY queue, state

-- name: workers
-- takes docket
SELECT id, last_seen, info FROM dovetail_worker WHERE docket = ? ORDER BY last_seen DESC
