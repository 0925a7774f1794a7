-- Roles for an administrator to make: each may do what its name says, and no more. The tables and functions are made
-- over to the owner, who may migrate them; all others go through the functions, which run with the owner's rights, and
-- may read. Run this again after a migration. Grant the roles to the users you have:
--
--     GRANT {prefix}_worker TO my_worker;

DO $$
BEGIN
    -- Roles are the whole server's: another database may have made them.
    CREATE ROLE {prefix}_owner NOLOGIN;
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;
DO $$
BEGIN
    CREATE ROLE {prefix}_enqueuer NOLOGIN;
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;
DO $$
BEGIN
    CREATE ROLE {prefix}_worker NOLOGIN;
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;
DO $$
BEGIN
    CREATE ROLE {prefix}_reader NOLOGIN;
EXCEPTION WHEN duplicate_object THEN NULL;
END $$;

GRANT USAGE ON SCHEMA {schema} TO {prefix}_enqueuer, {prefix}_worker, {prefix}_reader;
GRANT USAGE, CREATE ON SCHEMA {schema} TO {prefix}_owner;

-- Ours alone: the schema may hold more.
DO $$
DECLARE
    ours record;
BEGIN
    IF NOT pg_has_role(current_user, '{prefix}_owner', 'MEMBER') THEN
        GRANT {prefix}_owner TO CURRENT_USER;
    END IF;
    FOR ours IN
        SELECT pg_class.oid::regclass AS name FROM pg_class
        WHERE relnamespace = '{schema}'::regnamespace AND relkind IN ('r', 'v') AND relname = ANY ('{{tables}}'::text[])
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO {prefix}_owner', ours.name);
    END LOOP;
    FOR ours IN
        SELECT pg_proc.oid::regprocedure AS name FROM pg_proc
        WHERE pronamespace = '{schema}'::regnamespace AND obj_description(pg_proc.oid, 'pg_proc') = 'Dovetail'
    LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO {prefix}_owner', ours.name);
    END LOOP;
END $$;

-- Everybody who connects looks at the version, finds the docket, and asks for the time.
GRANT SELECT ON {schema}.schema_version TO {prefix}_enqueuer, {prefix}_worker, {prefix}_reader;
GRANT EXECUTE ON FUNCTION {schema}.docket_of(text) TO {prefix}_enqueuer, {prefix}_worker, {prefix}_reader;
GRANT EXECUTE ON FUNCTION {schema}.time_of(bigint) TO {prefix}_enqueuer, {prefix}_worker, {prefix}_reader;
GRANT EXECUTE ON FUNCTION {schema}.ear(bigint, text) TO {prefix}_enqueuer, {prefix}_worker, {prefix}_reader;

-- An enqueuer schedules, and cancels what it scheduled. It reads what must not be scheduled, and nothing else.
GRANT SELECT ON {schema}.hold TO {prefix}_enqueuer;
GRANT EXECUTE ON FUNCTION
    {schema}.schedule(bigint, bigint, jsonb, bytea, boolean),
    {schema}.schedule_plain(
        bigint, bigint, text, text, text, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bytea, text
    ),
    {schema}.schedule_within(bigint, uuid, bigint, jsonb, bytea),
    {schema}.cancel(bigint, bigint, text[], boolean)
TO {prefix}_enqueuer, {prefix}_worker;

-- A reader looks.
GRANT SELECT ON {names} TO {prefix}_reader, {prefix}_worker;

-- A worker does all that a run's life needs.
GRANT EXECUTE ON FUNCTION
    {schema}.claim(bigint, bigint, text, bigint, text[], bigint, jsonb, bigint),
    {schema}.finish(bigint, bigint, text[], bigint[], bigint[], bigint[], jsonb, bytea),
    {schema}.heartbeat(bigint, bigint, text[], bigint[], bigint, text, bytea, boolean),
    {schema}.clear(bigint, bigint, text[]),
    {schema}.report(bigint, bigint, jsonb),
    {schema}.revive(bigint, bigint, jsonb, bytea),
    {schema}.discard(bigint, bigint, text[]),
    {schema}.lay_holds(bigint, bigint, jsonb),
    {schema}.lift_holds(bigint, jsonb),
    {schema}.sweep(bigint, bigint, bigint, bigint)
TO {prefix}_worker;
