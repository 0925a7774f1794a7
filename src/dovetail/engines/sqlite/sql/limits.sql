-- Limits: who holds room, who waits for it, and waking the next.

-- name: slots_held
-- takes docket, limit
SELECT COUNT(*) FROM dovetail_slot WHERE docket = ?1 AND limit_key = ?2

-- name: recent_starts
-- takes docket, limit, at most; the latest first
SELECT at FROM dovetail_start WHERE docket = ?1 AND limit_key = ?2 ORDER BY at DESC LIMIT ?3

-- name: hold_slot
INSERT OR IGNORE INTO dovetail_slot (docket, limit_key, run) VALUES (?, ?, ?)

-- name: free_slot
DELETE FROM dovetail_slot WHERE docket = ?1 AND limit_key = ?2 AND run = ?3

-- name: note_start
INSERT INTO dovetail_start (docket, limit_key, at, expires, run) VALUES (?, ?, ?, ?, ?)

-- name: forget_start
-- takes docket, limit, when, run: one of them, if it has several of that moment
DELETE FROM dovetail_start WHERE rowid = (
    SELECT rowid FROM dovetail_start WHERE docket = ?1 AND limit_key = ?2 AND at = ?3 AND run = ?4 LIMIT 1
)

-- name: park
-- takes seq, limit
UPDATE dovetail_run SET state = 'scheduled', parked_on = ?2, turn = NULL WHERE seq = ?1

-- name: first_parked
-- takes docket, limit, at most
SELECT seq, id, COALESCE(key, id), queue, due, limits FROM dovetail_run
WHERE docket = ?1 AND parked_on = ?2
ORDER BY priority, place, due, id LIMIT ?3

-- name: wake
-- takes seq, limit
UPDATE dovetail_run SET state = 'queued', parked_on = NULL, turn = ?2 WHERE seq = ?1

-- name: set_opening
INSERT INTO dovetail_opening (docket, limit_key, at) VALUES (?1, ?2, ?3)
ON CONFLICT (docket, limit_key) DO UPDATE SET at = excluded.at

-- name: forget_opening
DELETE FROM dovetail_opening WHERE docket = ?1 AND limit_key = ?2

-- name: openings_due
-- takes docket, now, at most
SELECT limit_key FROM dovetail_opening WHERE docket = ?1 AND at <= ?2 ORDER BY at LIMIT ?3

-- name: limits_with_parked
-- takes docket, the limit before
SELECT MIN(parked_on) FROM dovetail_run WHERE docket = ?1 AND parked_on > ?2

-- name: turns_given
-- takes docket, limit: runs that were woken for it, and have not started
SELECT COUNT(*) FROM dovetail_run WHERE docket = ?1 AND state = 'queued' AND turn = ?2
