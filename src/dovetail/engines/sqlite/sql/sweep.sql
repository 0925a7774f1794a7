-- name: expired
-- takes docket, now, at most; a run that others still wait on is kept for them
SELECT seq FROM dovetail_run AS run
WHERE docket = ?1 AND expires <= ?2 AND (
    children = 0 OR NOT EXISTS (
        SELECT 1 FROM dovetail_edge AS edge JOIN dovetail_run AS child ON child.seq = edge.child
        WHERE edge.parent = run.seq AND child.state IN ('waiting', 'scheduled', 'queued', 'running')
    )
)
ORDER BY expires LIMIT ?3

-- name: expired_in_archive
-- takes docket, now, at most; the same
SELECT seq FROM dovetail_archive AS run
WHERE docket = ?1 AND expires <= ?2 AND (
    children = 0 OR NOT EXISTS (
        SELECT 1 FROM dovetail_edge AS edge JOIN dovetail_run AS child ON child.seq = edge.child
        WHERE edge.parent = run.seq AND child.state IN ('waiting', 'scheduled', 'queued', 'running')
    )
)
ORDER BY expires LIMIT ?3

-- name: ripe
-- takes docket, now, at most: what goes to the archive
SELECT seq FROM dovetail_run
WHERE docket = ?1 AND keep_archived IS NOT NULL AND expires IS NOT NULL AND expires - keep_archived <= ?2
ORDER BY expires - keep_archived LIMIT ?3

-- name: next_counted
-- takes docket, task, ending: the next after these of which runs are counted
SELECT task, state FROM dovetail_run
WHERE docket = ?1 AND (task, state) > (?2, ?3) AND keep_most IS NOT NULL AND finished IS NOT NULL
ORDER BY task, state LIMIT 1

-- name: most_kept
-- takes docket, task, ending: how many stay, as the run says that ended last
SELECT keep_most FROM dovetail_run
WHERE docket = ?1 AND task = ?2 AND state = ?3 AND keep_most IS NOT NULL AND finished IS NOT NULL
ORDER BY finished DESC, id DESC LIMIT 1

-- name: surplus
-- takes docket, task, ending, how many stay, at most; a run that others still wait on is kept for them
SELECT seq, keep_archived IS NOT NULL FROM (
    SELECT seq, keep_archived, children FROM dovetail_run
    WHERE docket = ?1 AND task = ?2 AND state = ?3 AND keep_most IS NOT NULL AND finished IS NOT NULL
    ORDER BY finished DESC, id DESC LIMIT -1 OFFSET ?4
) AS run
WHERE children = 0 OR NOT EXISTS (
    SELECT 1 FROM dovetail_edge AS edge JOIN dovetail_run AS child ON child.seq = edge.child
    WHERE edge.parent = run.seq AND child.state IN ('waiting', 'scheduled', 'queued', 'running')
)
LIMIT ?5

-- name: forget_silent_workers
-- takes docket, seen before
DELETE FROM dovetail_worker WHERE docket = ?1 AND last_seen <= ?2

-- name: forget_past_holds
-- takes docket, now
DELETE FROM dovetail_hold WHERE docket = ?1 AND until <= ?2

-- name: forget_starts
-- takes docket, now, at most (roughly: those of one moment go together)
DELETE FROM dovetail_start WHERE docket = ?1 AND expires <= COALESCE(
    (SELECT expires FROM dovetail_start WHERE docket = ?1 AND expires <= ?2 ORDER BY expires LIMIT 1 OFFSET ?3), ?2
)

-- name: forget_idle_openings
-- takes docket
DELETE FROM dovetail_opening AS opening WHERE docket = ?1 AND NOT EXISTS (
    SELECT 1 FROM dovetail_run AS run WHERE run.docket = ?1 AND run.parked_on = opening.limit_key
)

-- name: forget_idle_shares
-- takes docket: a queue where nothing waits begins again at nought
DELETE FROM dovetail_share AS share WHERE docket = ?1 AND NOT EXISTS (
    SELECT 1 FROM dovetail_run AS run WHERE run.docket = ?1 AND run.state = 'queued' AND run.queue = share.queue
)

-- name: forget_orphaned_slots
-- takes docket
DELETE FROM dovetail_slot AS slot WHERE docket = ?1 AND NOT EXISTS (
    SELECT 1 FROM dovetail_run AS run WHERE run.seq = slot.run AND run.state = 'running'
) RETURNING limit_key
