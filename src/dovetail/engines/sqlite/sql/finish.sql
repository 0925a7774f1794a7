-- Finishing: the end of a run, or its next attempt.

-- name: settle
-- takes id, docket, epoch, state, now, result, error
UPDATE dovetail_run SET
    state = ?4, finished = ?5, result = ?6, error = ?7, lease = NULL, stop = 0,
    expires = ?5 + COALESCE(keep_archived, 0) + CASE ?4
        WHEN 'completed' THEN keep_completed WHEN 'failed' THEN keep_failed ELSE keep_cancelled END,
    progress = NULL, total = NULL, message = NULL, reported = NULL
WHERE id = ?1 AND docket = ?2 AND epoch = ?3 AND state = 'running'
RETURNING seq, COALESCE(key, id), limits, children, expires, worker, attempt, failures, started

-- name: settle_many
-- takes pairs of id and epoch as JSON, docket, state, now: runs that end alike, with nothing to keep of each
UPDATE dovetail_run SET
    state = ?3, finished = ?4, result = NULL, error = NULL, lease = NULL, stop = 0,
    expires = ?4 + COALESCE(keep_archived, 0) + CASE ?3
        WHEN 'completed' THEN keep_completed WHEN 'failed' THEN keep_failed ELSE keep_cancelled END,
    progress = NULL, total = NULL, message = NULL, reported = NULL
WHERE seq IN (
    -- CROSS keeps the order: a look-up by id for each pair, not a scan of all that runs.
    SELECT run.seq FROM json_each(?1) AS pair
    CROSS JOIN dovetail_run AS run ON run.id = json_extract(pair.value, '$[0]') AND run.docket = ?2
    WHERE run.epoch = json_extract(pair.value, '$[1]') AND run.state = 'running'
)
RETURNING seq, id, COALESCE(key, id), limits, children, expires, worker

-- name: requeue
-- takes id, docket, epoch, state, due, attempt, payload, error, place, crashes to add
UPDATE dovetail_run SET
    state = ?4, due = ?5, attempt = ?6, payload = COALESCE(?7, payload), error = COALESCE(?8, error), place = ?9,
    crashes = crashes + ?10,
    worker = NULL, lease = NULL, started = NULL, stop = 0,
    progress = NULL, total = NULL, message = NULL, reported = NULL
WHERE id = ?1 AND docket = ?2 AND epoch = ?3 AND state = 'running'
RETURNING seq, COALESCE(key, id), limits, failures

-- name: standing
-- takes id, docket, epoch
SELECT state, attempt, queue, tribe, weight, worker, stop, seq, crashes, crash_limit, started FROM dovetail_run
WHERE id = ?1 AND docket = ?2 AND epoch = ?3

-- name: standing_in_archive
-- takes id, docket, epoch
SELECT state, attempt, queue, tribe, weight, worker, stop, seq, crashes, crash_limit, started FROM dovetail_archive
WHERE id = ?1 AND docket = ?2 AND epoch = ?3

-- name: other_pending
-- takes docket, key, seq
SELECT 1 FROM dovetail_run
WHERE seq IN (
    SELECT seq FROM dovetail_run WHERE docket = ?1 AND key = ?2
    UNION ALL
    SELECT seq FROM dovetail_run WHERE id = ?2 AND docket = ?1 AND key IS NULL
)
AND seq <> ?3 AND state IN ('scheduled', 'queued', 'waiting')

-- name: add_error
INSERT INTO dovetail_error (run, number, attempt, at, worker, type, message, traceback) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: trim_errors
-- takes run, the greatest number to go
DELETE FROM dovetail_error WHERE run = ?1 AND number <= ?2

-- name: count_failure
UPDATE dovetail_run SET failures = failures + 1 WHERE seq = ?

-- name: end_by_store
-- takes seq, state, now, error, doomed by: an end that no worker reported
UPDATE dovetail_run SET
    state = ?2, finished = ?3, error = ?4, doomed_by = ?5, epoch = epoch + 1,
    expires = ?3 + COALESCE(keep_archived, 0) + CASE ?2 WHEN 'failed' THEN keep_failed ELSE keep_cancelled END,
    lease = NULL, parked_on = NULL, turn = NULL, waits_for = 0, stop = 0,
    progress = NULL, total = NULL, message = NULL, reported = NULL
WHERE seq = ?1
RETURNING id, COALESCE(key, id), limits, children, expires, attempt, failures, worker

-- name: waiting_children
-- takes parent
SELECT run.seq, run.waits_for, run.after_failure, run.due, run.queue, run.tribe, run.weight, run.turn
FROM dovetail_edge AS edge JOIN dovetail_run AS run ON run.seq = edge.child
WHERE edge.parent = ?1 AND edge.met = 0 AND run.state = 'waiting'

-- name: meet
-- takes parent, child: a parent that ends twice counts once
UPDATE dovetail_edge SET met = 1 WHERE parent = ?1 AND child = ?2

-- name: parent_is_over
-- takes child
UPDATE dovetail_run SET waits_for = waits_for - 1 WHERE seq = ?1

-- name: end_waiting
-- takes seq, state, place
UPDATE dovetail_run SET state = ?2, place = ?3, waits_for = 0 WHERE seq = ?1
