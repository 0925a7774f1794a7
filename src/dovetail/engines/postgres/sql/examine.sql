-- Looking a server over. $1 is the docket, unless it says otherwise. Times are counted in microseconds.

-- name: examine_orphans
-- runs that wait, and for no run that is there and not over
SELECT COALESCE(run.key, run.id) FROM {schema}.run AS run
WHERE run.docket = $1 AND run.state = 'waiting' AND NOT EXISTS (
    SELECT FROM {schema}.edge JOIN {schema}.run AS parent ON parent.docket = edge.docket AND parent.id = edge.parent
    WHERE edge.docket = $1 AND edge.child = run.id AND NOT edge.met
)
LIMIT $2

-- name: examine_limits
-- limits that runs are parked on, each with the limits of one of them, and how many were woken for it and have not
-- started
SELECT DISTINCT ON (run.parked_on) run.parked_on, run.limits::text,
    (SELECT COUNT(*) FROM {schema}.slot WHERE docket = $1 AND limit_key = run.parked_on),
    (SELECT COUNT(*) FROM {schema}.run AS woken WHERE docket = $1 AND state = 'queued' AND turn = run.parked_on)
FROM {schema}.run AS run WHERE run.docket = $1 AND run.parked_on IS NOT NULL
ORDER BY run.parked_on, run.priority, run.place, run.due, run.id LIMIT $2

-- name: examine_starts
SELECT COUNT(*) FROM {schema}.start WHERE docket = $1 AND limit_key = $2 AND at > $3

-- name: examine_server
SELECT name, setting FROM pg_settings WHERE name = ANY (ARRAY[
    'fsync', 'full_page_writes', 'max_connections', 'superuser_reserved_connections', 'server_version',
    'autovacuum', 'track_counts', 'synchronous_standby_names', 'server_encoding'
])

-- name: examine_session
-- what this user's sessions begin with, whatever has been set since
SELECT name, reset_val FROM pg_settings
WHERE name IN ('synchronous_commit', 'statement_timeout', 'idle_session_timeout', 'transaction_timeout')

-- name: examine_activity
SELECT
    (SELECT SUM(numbackends) FROM pg_stat_database)::bigint,
    (SELECT COUNT(*) FROM pg_prepared_xacts WHERE database = current_database() AND prepared < now() - $1::interval),
    pg_notification_queue_usage(),
    pg_has_role(current_user, 'pg_read_all_stats', 'USAGE')

-- name: examine_idle
SELECT pid, usename, EXTRACT(epoch FROM now() - xact_start)::bigint FROM pg_stat_activity
WHERE datname = current_database() AND state LIKE 'idle in transaction%' AND xact_start < now() - $1::interval
ORDER BY xact_start LIMIT 20

-- name: examine_tables
SELECT relname, n_live_tup, n_dead_tup, pg_total_relation_size(relid),
    EXTRACT(epoch FROM now() - GREATEST(last_autovacuum, last_vacuum))::bigint
FROM pg_stat_user_tables WHERE schemaname = $1 AND relname = ANY ($2::text[])

-- name: examine_rights
-- this user, and of our functions those that every worker calls and it may not
SELECT current_user::text, ARRAY(
    SELECT proname::text FROM pg_proc
    WHERE pronamespace = $1::regnamespace AND obj_description(oid, 'pg_proc') = 'Dovetail' AND proname = ANY ($2::text[])
        AND NOT has_function_privilege(oid, 'EXECUTE')
    ORDER BY 1
)
