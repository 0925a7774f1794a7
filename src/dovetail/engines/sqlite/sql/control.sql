-- Heartbeats, cancelling, progress and reviving.

-- name: renew
-- takes id, docket, epoch, lease
UPDATE dovetail_run SET lease = ?4 WHERE id = ?1 AND docket = ?2 AND epoch = ?3 AND state = 'running'
RETURNING stop

-- name: see_worker
INSERT INTO dovetail_worker (docket, id, last_seen, info) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (docket, id) DO UPDATE SET last_seen = excluded.last_seen, info = excluded.info

-- name: forget_worker
DELETE FROM dovetail_worker WHERE docket = ?1 AND id = ?2

-- name: note_time
-- takes docket, now; the latest time that any process went by, and the version of the holds
UPDATE dovetail_docket SET mark = MAX(mark, ?2) WHERE id = ?1 RETURNING mark, holds

-- name: ask_to_stop
UPDATE dovetail_run SET stop = 1 WHERE seq = ?

-- name: is_pending
SELECT 1 FROM dovetail_run WHERE seq = ? AND state IN ('scheduled', 'queued', 'waiting')

-- name: cancel_all
-- takes seqs as JSON, now: pending runs that none hang on
UPDATE dovetail_run SET
    state = 'cancelled', finished = ?2, error = NULL, doomed_by = NULL, epoch = epoch + 1,
    expires = ?2 + COALESCE(keep_archived, 0) + keep_cancelled, parked_on = NULL, turn = NULL, waits_for = 0
WHERE seq IN (SELECT value FROM json_each(?1)) AND state IN ('scheduled', 'queued', 'waiting')
RETURNING seq, id, COALESCE(key, id), expires

-- name: over_of_key
-- takes docket, key, now
SELECT 1 FROM (
    SELECT seq FROM dovetail_run WHERE docket = ?1 AND key = ?2
    UNION ALL
    SELECT seq FROM dovetail_run WHERE id = ?2 AND docket = ?1 AND key IS NULL
) AS held
CROSS JOIN dovetail_run AS run ON run.seq = held.seq
WHERE run.expires > ?3
UNION ALL
SELECT 1 FROM dovetail_archive WHERE docket = ?1 AND key = ?2 AND +expires > ?3
UNION ALL
SELECT 1 FROM dovetail_archive WHERE id = ?2 AND docket = ?1 AND key IS NULL AND +expires > ?3
LIMIT 1

-- name: report
-- takes docket, key, id or NULL, epoch or NULL, increment, total, message, whether to clear the message, now
UPDATE dovetail_run SET
    progress = COALESCE(progress, 0) + ?5, total = COALESCE(?6, total, 100),
    message = CASE WHEN ?8 THEN NULL ELSE COALESCE(?7, message) END, reported = ?9
WHERE seq = (
    SELECT seq FROM dovetail_run
    WHERE seq IN (
        SELECT seq FROM dovetail_run WHERE docket = ?1 AND key = ?2
        UNION ALL
        SELECT seq FROM dovetail_run WHERE id = ?2 AND docket = ?1 AND key IS NULL
    )
    AND (?3 IS NULL OR id = ?3)
    ORDER BY seq DESC LIMIT 1
)
AND state = 'running' AND (?4 IS NULL OR epoch = ?4)
RETURNING id, progress, total, message

-- name: terminal
-- takes id, docket
SELECT seq, COALESCE(key, id), queue, tribe, weight FROM dovetail_run
WHERE id = ?1 AND docket = ?2 AND state IN ('completed', 'failed', 'cancelled') AND expires > ?3

-- name: revive
-- takes seq, state, due, payload, place, waits for
UPDATE dovetail_run SET
    state = ?2, due = ?3, payload = COALESCE(?4, payload), place = ?5, waits_for = ?6, attempt = 1, crashes = 0,
    epoch = epoch + 1, doomed_by = NULL, finished = NULL, expires = NULL, result = NULL, error = NULL,
    worker = NULL, started = NULL, stop = 0
WHERE seq = ?1

-- name: parents_not_over
-- takes child
SELECT COUNT(*) FROM dovetail_edge AS edge JOIN dovetail_run AS run ON run.seq = edge.parent
WHERE edge.child = ?1 AND run.state NOT IN ('completed', 'failed', 'cancelled')

-- name: part
-- takes child: it waits again for those of its parents that are not over
UPDATE dovetail_edge SET met = COALESCE((
    SELECT run.state IN ('completed', 'failed', 'cancelled') FROM dovetail_run AS run WHERE run.seq = dovetail_edge.parent
), 1)
WHERE child = ?1

-- name: parent_that_failed
-- takes child
SELECT run.id FROM dovetail_edge AS edge JOIN dovetail_run AS run ON run.seq = edge.parent
WHERE edge.child = ?1 AND run.state IN ('failed', 'cancelled')
UNION ALL
SELECT run.id FROM dovetail_edge AS edge JOIN dovetail_archive AS run ON run.seq = edge.parent
WHERE edge.child = ?1 AND run.state IN ('failed', 'cancelled')
LIMIT 1

-- name: blame
UPDATE dovetail_run SET doomed_by = ?2 WHERE seq = ?1

-- name: doomed_children
-- takes parent, its id
SELECT run.seq, run.id, COALESCE(run.key, run.id), run.queue, run.tribe, run.weight, run.after_failure
FROM dovetail_edge AS edge JOIN dovetail_run AS run ON run.seq = edge.child
WHERE edge.parent = ?1 AND run.state = 'cancelled' AND run.doomed_by = ?2
