-- Roles for an administrator to make: each may do what its name says, and no more. The tables belong to the owner; all
-- others go through the functions, which run with the owner's rights, and may read. Grant them to the users you have:
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
GRANT ALL ON ALL TABLES IN SCHEMA {schema} TO {prefix}_owner;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA {schema} TO {prefix}_owner;

-- Everybody who connects looks at the version, finds the docket, and asks for the time.
GRANT SELECT ON {schema}.schema_version TO {prefix}_enqueuer, {prefix}_worker, {prefix}_reader;
GRANT EXECUTE ON FUNCTION {schema}.docket_of(text) TO {prefix}_enqueuer, {prefix}_worker, {prefix}_reader;
GRANT EXECUTE ON FUNCTION {schema}.time_of(bigint) TO {prefix}_enqueuer, {prefix}_worker, {prefix}_reader;
GRANT EXECUTE ON FUNCTION {schema}.ear(bigint, text) TO {prefix}_enqueuer, {prefix}_worker, {prefix}_reader;

-- An enqueuer schedules, and cancels what it scheduled. It reads nothing.
GRANT EXECUTE ON FUNCTION
    {schema}.schedule(bigint, bigint, jsonb, bytea, boolean),
    {schema}.schedule_plain(
        bigint, bigint, text, text, text, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bigint, bytea, text
    ),
    {schema}.schedule_within(bigint, uuid, bigint, jsonb, bytea),
    {schema}.cancel(bigint, bigint, text[], boolean)
TO {prefix}_enqueuer, {prefix}_worker;

-- A reader looks.
GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {prefix}_reader, {prefix}_worker;

-- A worker does all that a run's life needs.
GRANT EXECUTE ON FUNCTION
    {schema}.claim(bigint, bigint, text, bigint, text[], bigint, jsonb),
    {schema}.finish(bigint, bigint, text[], bigint[], bigint[], bigint[], jsonb, bytea),
    {schema}.heartbeat(bigint, bigint, text[], bigint[], bigint, text, bytea, boolean),
    {schema}.report(bigint, bigint, jsonb),
    {schema}.revive(bigint, bigint, jsonb, bytea),
    {schema}.lay_holds(bigint, bigint, jsonb),
    {schema}.lift_holds(bigint, jsonb),
    {schema}.sweep(bigint, bigint, bigint, bigint)
TO {prefix}_worker;
