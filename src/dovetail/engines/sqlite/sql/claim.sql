-- Claiming: leases that lapsed, what became due, what is ready, and starting it.

-- name: lapsed
-- takes docket, queue, now, at most
SELECT seq, crashes, crash_limit, stop FROM dovetail_run
WHERE docket = ?1 AND state = 'running' AND queue = ?2 AND lease <= ?3
ORDER BY lease LIMIT ?4

-- name: count_crash
UPDATE dovetail_run SET crashes = crashes + 1 WHERE seq = ? RETURNING task

-- name: take_over
-- takes seq, worker, lease, now
UPDATE dovetail_run SET epoch = epoch + 1, crashes = crashes + 1, worker = ?2, lease = ?3, started = ?4,
    progress = NULL, total = NULL, message = NULL, reported = NULL
WHERE seq = ?1
RETURNING id, epoch, COALESCE(key, id), task, payload, attempt, due, queue, -priority, tribe, crashes, headers, wants_results,
    seq

-- name: became_due
-- takes docket, now, at most
SELECT seq, queue, tribe, weight FROM dovetail_run
WHERE docket = ?1 AND state = 'scheduled' AND parked_on IS NULL AND due <= ?2
ORDER BY due LIMIT ?3

-- name: named
-- takes seq
SELECT id, COALESCE(key, id), due FROM dovetail_run WHERE seq = ?

-- name: make_ready
-- takes seq, place
UPDATE dovetail_run SET state = 'queued', place = ?2 WHERE seq = ?1

-- name: first_running_queue
-- takes docket, the queue before
SELECT MIN(queue) FROM dovetail_run WHERE docket = ?1 AND state = 'running' AND queue > ?2

-- name: first_ready_queue
-- takes docket, the queue before
SELECT MIN(queue) FROM dovetail_run WHERE docket = ?1 AND state = 'queued' AND queue > ?2

-- name: ready
-- takes docket, queue, at most
SELECT seq, priority, place, due, id, limits, turn FROM dovetail_run
WHERE docket = ?1 AND state = 'queued' AND queue = ?2
ORDER BY priority, place, due, id LIMIT ?3

-- name: level_after
-- takes docket, queue, the priority before
SELECT MIN(priority) FROM dovetail_run WHERE docket = ?1 AND state = 'queued' AND queue = ?2 AND priority > ?3

-- name: level
-- takes docket, queue, priority, at most
SELECT seq, place, due, id, limits, turn FROM dovetail_run
WHERE docket = ?1 AND state = 'queued' AND queue = ?2 AND priority = ?3
ORDER BY place, due, id LIMIT ?4

-- name: start
-- takes the seqs as JSON, worker, lease, now
UPDATE dovetail_run SET state = 'running', epoch = epoch + 1, worker = ?2, lease = ?3, started = ?4, turn = NULL
WHERE seq IN (SELECT value FROM json_each(?1))
RETURNING id, epoch, COALESCE(key, id), task, payload, attempt, due, queue, -priority, tribe, crashes, headers, wants_results,
    seq

-- name: results_of_parents
-- takes child, now, the largest that is wanted; past its retention a run is kept for its children alone, and can be had
-- in no other way, whatever its size
SELECT run.id, run.task, run.result FROM dovetail_edge AS edge CROSS JOIN dovetail_run AS run ON run.seq = edge.parent
WHERE edge.child = ?1 AND run.state = 'completed' AND run.error IS NULL
    AND (COALESCE(LENGTH(run.result), 0) <= ?3 OR +run.expires <= ?2)

-- name: next_due
-- takes docket
SELECT MIN(due) FROM dovetail_run WHERE docket = ?1 AND state = 'scheduled' AND parked_on IS NULL

-- name: next_lapse
-- takes docket, queue, now
SELECT MIN(lease) FROM dovetail_run WHERE docket = ?1 AND state = 'running' AND queue = ?2 AND lease > ?3

-- name: next_opening
-- takes docket
SELECT MIN(at) FROM dovetail_opening WHERE docket = ?1

-- name: paused
-- takes docket, now
SELECT queue, until FROM dovetail_hold WHERE docket = ?1 AND kind = 'pause' AND (until IS NULL OR until > ?2)

-- name: candidates
-- takes docket, now, at most: what a claim would look at first
SELECT seq FROM (
    SELECT seq FROM dovetail_run WHERE docket = ?1 AND state = 'queued' ORDER BY priority, place LIMIT ?3
)
UNION SELECT seq FROM (
    SELECT seq FROM dovetail_run WHERE docket = ?1 AND state = 'running' AND lease <= ?2 LIMIT ?3
)
UNION SELECT seq FROM (
    SELECT seq FROM dovetail_run WHERE docket = ?1 AND state = 'scheduled' AND parked_on IS NULL AND due <= ?2 LIMIT ?3
)
UNION SELECT seq FROM (
    SELECT seq FROM dovetail_run WHERE docket = ?1 AND parked_on IS NOT NULL LIMIT ?3
)

-- name: readable
-- takes seq
SELECT task, queue, priority, place, due, limits, headers FROM dovetail_run WHERE seq = ?

-- name: set_aside
-- takes seq, now, expires
UPDATE dovetail_run SET
    state = 'failed', error = 'DamagedRecord: the record of this run cannot be read; it was set aside',
    finished = ?2, due = ?2, expires = ?3, priority = 0, place = 0, epoch = 1, attempt = 1, task = '(damaged)',
    limits = NULL, headers = NULL, message = NULL, worker = NULL, lease = NULL, parked_on = NULL, turn = NULL, stop = 0
WHERE seq = ?1
