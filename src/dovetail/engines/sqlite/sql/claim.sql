-- Claiming: leases that lapsed, what became due, what is ready, and starting it.

-- name: lapsed
-- takes docket, now, at most, the queues as JSON or NULL for all, the paused ones as JSON
SELECT seq, crashes, crash_limit, stop FROM dovetail_run
WHERE docket = ?1 AND state = 'running' AND lease <= ?2
  AND (?4 IS NULL OR queue IN (SELECT value FROM json_each(?4)))
  AND queue NOT IN (SELECT value FROM json_each(?5))
ORDER BY lease LIMIT ?3

-- name: count_crash
UPDATE dovetail_run SET crashes = crashes + 1 WHERE seq = ?

-- name: take_over
-- takes seq, worker, lease, now
UPDATE dovetail_run SET epoch = epoch + 1, crashes = crashes + 1, worker = ?2, lease = ?3, started = ?4,
    progress = NULL, total = NULL, message = NULL, reported = NULL
WHERE seq = ?1
RETURNING id, epoch, COALESCE(key, id), task, payload, attempt, due, queue, -priority, tribe, crashes, headers

-- name: became_due
-- takes docket, now, at most
SELECT seq, queue, tribe, weight FROM dovetail_run
WHERE docket = ?1 AND state = 'scheduled' AND parked_on IS NULL AND due <= ?2
ORDER BY due LIMIT ?3

-- name: make_ready
-- takes seq, place
UPDATE dovetail_run SET state = 'queued', place = ?2 WHERE seq = ?1

-- name: first_ready_queue
-- takes docket, the queue before
SELECT MIN(queue) FROM dovetail_run WHERE docket = ?1 AND state = 'queued' AND queue > ?2

-- name: ready
-- takes docket, queue, at most
SELECT seq, priority, place, due, id, limits, turn FROM dovetail_run
WHERE docket = ?1 AND state = 'queued' AND queue = ?2
ORDER BY priority, place, due, id LIMIT ?3

-- name: start
-- takes the seqs as JSON, worker, lease, now
UPDATE dovetail_run SET state = 'running', epoch = epoch + 1, worker = ?2, lease = ?3, started = ?4, turn = NULL
WHERE seq IN (SELECT value FROM json_each(?1))
RETURNING id, epoch, COALESCE(key, id), task, payload, attempt, due, queue, -priority, tribe, crashes, headers, seq

-- name: next_due
-- takes docket
SELECT MIN(due) FROM dovetail_run WHERE docket = ?1 AND state = 'scheduled' AND parked_on IS NULL

-- name: next_lapse
-- takes docket, now; what has lapsed already and was left is not for this worker
SELECT MIN(lease) FROM dovetail_run WHERE docket = ?1 AND state = 'running' AND lease > ?2

-- name: next_opening
-- takes docket
SELECT MIN(at) FROM dovetail_opening WHERE docket = ?1

-- name: paused
-- takes docket, now
SELECT queue FROM dovetail_hold WHERE docket = ?1 AND kind = 'pause' AND (until IS NULL OR until > ?2)
