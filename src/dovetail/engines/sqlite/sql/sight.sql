-- name: errors_of
-- takes run
SELECT attempt, at, worker, type, message, traceback FROM dovetail_error WHERE run = ? ORDER BY number

-- name: parents_of
-- takes children as JSON
SELECT edge.child, COALESCE(
    (SELECT id FROM dovetail_run WHERE seq = edge.parent), (SELECT id FROM dovetail_archive WHERE seq = edge.parent)
) FROM dovetail_edge AS edge WHERE edge.child IN (SELECT value FROM json_each(?)) ORDER BY edge.child, edge.parent

-- name: counts
-- takes docket, now
-- What has become due joins the others only when somebody claims.
SELECT queue, CASE WHEN state = 'scheduled' AND parked_on IS NULL AND due <= ?2 THEN 'queued' ELSE state END,
    COUNT(*), MIN(due)
FROM dovetail_run
WHERE docket = ?1 AND (expires IS NULL OR expires > ?2)
GROUP BY 1, 2 ORDER BY 1, 2

-- name: workers
-- takes docket
SELECT id, last_seen, info FROM dovetail_worker WHERE docket = ? ORDER BY last_seen DESC

-- name: live_place
-- takes id, docket; the place of a live run in its order
SELECT state, epoch, parked_on, queue, priority, place, due, id, limits FROM dovetail_run
WHERE id = ?1 AND docket = ?2 AND expires IS NULL

-- name: ready_before
-- takes docket, queue, priority, place, due, id, at most
SELECT COUNT(*) FROM (
    SELECT 1 FROM dovetail_run
    WHERE docket = ?1 AND state = 'queued' AND queue = ?2 AND (priority, place, due, id) < (?3, ?4, ?5, ?6) LIMIT ?7
)

-- name: parked_before
-- takes docket, limit, priority, place, due, id, at most
SELECT COUNT(*) FROM (
    SELECT 1 FROM dovetail_run
    WHERE docket = ?1 AND parked_on = ?2 AND (priority, place, due, id) < (?3, ?4, ?5, ?6) LIMIT ?7
)

-- name: due_before
-- takes docket, queue, priority, due, at most: what is ready, or became due before, and will have a place by then
SELECT (
    SELECT COUNT(*) FROM (
        SELECT 1 FROM dovetail_run
        WHERE docket = ?1 AND state = 'queued' AND queue = ?2 AND priority <= ?3 LIMIT ?5
    )
) + (
    SELECT COUNT(*) FROM (
        SELECT queue FROM dovetail_run
        WHERE docket = ?1 AND state = 'scheduled' AND parked_on IS NULL AND due < ?4 ORDER BY due LIMIT ?5
    ) WHERE queue = ?2
)

-- name: slot_holders
-- takes docket, limit, at most
SELECT run.id FROM dovetail_slot AS slot CROSS JOIN dovetail_run AS run ON run.seq = slot.run
WHERE slot.docket = ?1 AND slot.limit_key = ?2 ORDER BY slot.run LIMIT ?3
