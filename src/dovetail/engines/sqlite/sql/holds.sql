-- name: lay_hold
INSERT INTO dovetail_hold (docket, identity, kind, queue, task, parameter, operator, value, reason, owner, since, until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (docket, identity) DO UPDATE SET reason = excluded.reason, owner = excluded.owner, until = excluded.until
WHERE reason IS NOT excluded.reason OR owner IS NOT excluded.owner OR until IS NOT excluded.until

-- name: lift_hold
DELETE FROM dovetail_hold WHERE docket = ?1 AND identity = ?2

-- name: holds_changed
UPDATE dovetail_docket SET holds = holds + 1 WHERE id = ?

-- name: all_holds
-- takes docket, now
SELECT kind, queue, task, parameter, operator, value, reason, owner, since, until FROM dovetail_hold
WHERE docket = ?1 AND (until IS NULL OR until > ?2) ORDER BY since, identity
