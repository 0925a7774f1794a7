-- Scheduling: who holds a key, placing a run, and moving or removing the one that waits.

-- name: any_key_held
-- takes docket, keys as JSON: whether one is a key that another run was given, or the id of one in the archive
SELECT 1 FROM dovetail_run WHERE docket = ?1 AND key IN (SELECT value FROM json_each(?2))
UNION ALL
SELECT 1 FROM dovetail_archive WHERE id IN (SELECT value FROM json_each(?2)) AND docket = ?1
LIMIT 1

-- name: known
-- takes docket, id
SELECT state FROM dovetail_run WHERE id = ?2 AND docket = ?1
UNION ALL
SELECT state FROM dovetail_archive WHERE id = ?2 AND docket = ?1

-- name: live_of_key
-- takes docket, key; the newest first
SELECT seq, id, state, turn, queue, tribe, weight, postponed_by, children FROM dovetail_run
WHERE seq IN (
    SELECT seq FROM dovetail_run WHERE docket = ?1 AND key = ?2
    UNION ALL
    SELECT seq FROM dovetail_run WHERE id = ?2 AND docket = ?1 AND key IS NULL
)
AND state IN ('scheduled', 'queued', 'waiting', 'running')
ORDER BY seq DESC

-- name: place
INSERT INTO dovetail_run (
    docket, id, key, task, queue, priority, state, due, created, attempt, crash_limit, place,
    keep_completed, keep_failed, keep_cancelled, keep_most, keep_archived, payload, tribe, weight, limits, headers,
    waits_for, after_failure, wants_results, doomed_by, finished, expires, error
)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: place_alike
-- takes what the runs have in common (docket, task, queue, priority, state, created, attempt, crash limit, place and the
-- five of its retention), then id, due and payload of each; the rows are added by `bulk`
INSERT INTO dovetail_run (
    docket, task, queue, priority, state, created, attempt, crash_limit, place,
    keep_completed, keep_failed, keep_cancelled, keep_most, keep_archived, id, due, payload
)
VALUES {rows}
ON CONFLICT (id, docket) DO NOTHING

-- name: linger
-- takes docket, key, until: what is over gives way to the newcomer soon; failures keep their retention, and so does
-- what is kept by count or goes to the archive
UPDATE dovetail_run SET expires = ?3
WHERE docket = ?1 AND key = ?2 AND state IN ('completed', 'cancelled') AND +expires > ?3
    AND keep_most IS NULL AND keep_archived IS NULL

-- name: postpone
-- takes seq, due, state, place, id of the request
UPDATE dovetail_run SET due = ?2, state = ?3, place = ?4, postponed_by = ?5, turn = NULL, parked_on = NULL
WHERE seq = ?1

-- name: move_due_of_waiting
-- takes seq, due, id of the request
UPDATE dovetail_run SET due = ?2, postponed_by = ?3 WHERE seq = ?1

-- name: parent_of
-- takes docket, id or key, now; the newest that is kept
SELECT seq, id, state FROM (
    SELECT seq, id, state, expires FROM dovetail_run WHERE id = ?2 AND docket = ?1
    UNION ALL
    SELECT seq, id, state, expires FROM dovetail_run WHERE docket = ?1 AND key = ?2
    UNION ALL
    SELECT seq, id, state, expires FROM dovetail_archive WHERE id = ?2 AND docket = ?1
    UNION ALL
    SELECT seq, id, state, expires FROM dovetail_archive WHERE docket = ?1 AND key = ?2
)
WHERE +expires IS NULL OR +expires > ?3
ORDER BY id = ?2 DESC, seq DESC
LIMIT 1

-- name: add_edge
INSERT OR IGNORE INTO dovetail_edge (parent, child, met) VALUES (?, ?, ?)

-- name: count_child
UPDATE dovetail_run SET children = children + 1 WHERE seq = ?

-- name: count_child_of_archived
UPDATE dovetail_archive SET children = children + 1 WHERE seq = ?

-- name: inherit_edges
-- takes the new parent, the old one: what hung on a run hangs on the one that replaced it
UPDATE dovetail_edge SET parent = ?1 WHERE parent = ?2

-- name: waits_for_itself
-- takes a run that has taken over what hung on another
WITH RECURSIVE awaited (run) AS (
    SELECT parent FROM dovetail_edge WHERE child = ?1 AND NOT met
    UNION
    SELECT edge.parent FROM awaited JOIN dovetail_edge AS edge ON edge.child = awaited.run AND NOT edge.met
)
SELECT 1 FROM awaited WHERE run = ?1

-- name: inherit_children
UPDATE dovetail_run SET children = ?2 WHERE seq = ?1

-- name: forget_run
DELETE FROM dovetail_run WHERE seq = ?

-- name: forget_errors
DELETE FROM dovetail_error WHERE run = ?

-- name: forget_edges
DELETE FROM dovetail_edge WHERE parent = ?1 OR child = ?1

-- name: forget_parents
DELETE FROM dovetail_edge WHERE child = ?
