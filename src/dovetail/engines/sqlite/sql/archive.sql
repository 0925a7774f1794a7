-- The archive: moving there, coming back, and discarding.

-- name: archive
-- takes seqs as JSON
INSERT INTO dovetail_archive SELECT * FROM dovetail_run WHERE seq IN (SELECT value FROM json_each(?))

-- name: forget_runs
-- takes seqs as JSON
DELETE FROM dovetail_run WHERE seq IN (SELECT value FROM json_each(?))

-- name: forget_all_archived
-- takes seqs as JSON
DELETE FROM dovetail_archive WHERE seq IN (SELECT value FROM json_each(?))

-- name: forget_all_errors
-- takes seqs as JSON
DELETE FROM dovetail_error WHERE run IN (SELECT value FROM json_each(?))

-- name: forget_all_children
-- takes seqs as JSON
DELETE FROM dovetail_edge WHERE parent IN (SELECT value FROM json_each(?))

-- name: forget_all_parents
-- takes seqs as JSON
DELETE FROM dovetail_edge WHERE child IN (SELECT value FROM json_each(?))

-- name: mark_last
-- Numbers are given by the last row of the table. One row that is no docket's stays behind those that leave it, so that
-- no number is given twice.
INSERT INTO dovetail_run (
    docket, id, task, queue, priority, state, due, created, attempt, crash_limit,
    keep_completed, keep_failed, keep_cancelled, payload
)
VALUES (0, 'last', '', '', 0, '', 0, 0, 0, 0, 0, 0, 0, x'')
ON CONFLICT (id, docket) DO UPDATE SET seq = (SELECT MAX(seq) + 1 FROM dovetail_run)

-- name: has_archive
-- takes docket
SELECT 1 FROM dovetail_archive WHERE docket = ? LIMIT 1

-- name: archived
-- takes id, docket, now
SELECT seq FROM dovetail_archive WHERE id = ?1 AND docket = ?2 AND +expires > ?3

-- name: archived_children
-- takes parent, its id: those in the archive that its end had cancelled
SELECT run.seq FROM dovetail_edge AS edge CROSS JOIN dovetail_archive AS run ON run.seq = edge.child
WHERE edge.parent = ?1 AND run.doomed_by = ?2

-- name: bring_back
INSERT INTO dovetail_run SELECT * FROM dovetail_archive WHERE seq = ?

-- name: forget_archived
DELETE FROM dovetail_archive WHERE seq = ?

-- name: count_archived
-- takes docket
SELECT COUNT(*) FROM dovetail_archive WHERE docket = ?
