-- What every verb needs: the time, locks, and what there will be to tell.

-- The store's own time, unless a test gives another.
CREATE OR REPLACE FUNCTION time_of(given bigint) RETURNS bigint LANGUAGE sql VOLATILE AS $$
    SELECT COALESCE(given, (EXTRACT(epoch FROM clock_timestamp()) * 1000000)::bigint)
$$;

-- One who schedules, cancels or requeues at a time per key; always in one order, so that none wait in a circle. A batch
-- of many keys takes the whole docket, since the server's lock table is small.
CREATE OR REPLACE FUNCTION lock_keys(of_docket bigint, keys text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    class integer := hashtext('{name}/keys/' || of_docket);
BEGIN
    IF COALESCE(cardinality(keys), 0) = 0 THEN
        RETURN;
    END IF;
    IF cardinality(keys) > 200 THEN
        PERFORM lock_all_keys(of_docket);
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock_shared(class, 0);
    PERFORM pg_advisory_xact_lock(class, number)
    FROM (SELECT DISTINCT COALESCE(NULLIF(hashtext(each), 0), 1) AS number FROM unnest(keys) AS each ORDER BY 1 OFFSET 0) AS sorted;
END
$$;

CREATE OR REPLACE FUNCTION lock_all_keys(of_docket bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('{name}/keys/' || of_docket), 0);
END
$$;

-- One claimer or finisher at a time per limit. Limits share a bounded number of locks. They are waited for once in a
-- transaction, all together and in one order, so that none wait in a circle; whoever needs more later only tries.
CREATE OR REPLACE FUNCTION lock_limits(of_docket bigint, keys text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    class integer := hashtext('{name}/limits/' || of_docket);
BEGIN
    PERFORM pg_advisory_xact_lock(class, number)
    FROM (SELECT DISTINCT hashtext(each) & 1023 AS number FROM unnest(keys) AS each ORDER BY 1 OFFSET 0) AS sorted;
END
$$;

-- The same without waiting, for one who holds such locks already: whether it has all of them now.
CREATE OR REPLACE FUNCTION try_lock_limits(of_docket bigint, keys text[]) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    class integer := hashtext('{name}/limits/' || of_docket);
BEGIN
    RETURN COALESCE((
        SELECT bool_and(pg_try_advisory_xact_lock(class, number))
        FROM (SELECT DISTINCT hashtext(each) & 1023 AS number FROM unnest(keys) AS each) AS wanted
    ), true);
END
$$;

CREATE OR REPLACE FUNCTION limit_keys(limits jsonb) RETURNS text[] LANGUAGE sql IMMUTABLE AS $$
    SELECT ARRAY(SELECT each->>'key' FROM jsonb_array_elements(limits) AS each)
$$;

-- Whoever listens for a kind of event holds this lock shared, as long as his connection lives.
CREATE OR REPLACE FUNCTION ear(of_docket bigint, letter text) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT hashtextextended('{name}/' || letter || '/' || of_docket, 5)
$$;

CREATE OR REPLACE FUNCTION is_heard(of_docket bigint, letter text) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    lock bigint := ear(of_docket, letter);
BEGIN
    IF pg_try_advisory_lock(lock) THEN
        PERFORM pg_advisory_unlock(lock);
        RETURN false;
    END IF;
    RETURN true;
END
$$;

-- Begin to gather what there is to tell. It lies in settings of the transaction: `dovetail.told` are the events, as
-- JSON objects each after a comma, if anybody listens for states; `dovetail.work` says that something may be claimed.
CREATE OR REPLACE FUNCTION begin_telling(of_docket bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('dovetail.told', '', true), set_config('dovetail.work', '', true),
        set_config('dovetail.turns', '', true),
        set_config('dovetail.telling', CASE WHEN is_heard(of_docket, 's') THEN 'on' ELSE '' END, true);
END
$$;

CREATE OR REPLACE FUNCTION is_telling() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT current_setting('dovetail.telling', true) = 'on'
$$;

CREATE OR REPLACE FUNCTION tell(event jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('dovetail.told', current_setting('dovetail.told') || ',' || event::text, true);
END
$$;

CREATE OR REPLACE FUNCTION tell_state(run_id text, run_key text, new_state text, due bigint DEFAULT NULL) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('dovetail.telling', true) = 'on' THEN
        PERFORM tell(jsonb_build_object(
            'kind', 'state', 'id', run_id, 'key', COALESCE(run_key, run_id), 'state', new_state, 'when', due
        ));
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION note_work() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('dovetail.work', 'on', true);
END
$$;

CREATE OR REPLACE FUNCTION has_work() RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT current_setting('dovetail.work', true) = 'on'
$$;

-- What was gathered, as the members of a JSON object.
CREATE OR REPLACE FUNCTION news(of_docket bigint) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN CASE WHEN has_work() AND is_heard(of_docket, 'w') THEN '"work":true' ELSE '"work":false' END
        || ',"told":[' || substr(current_setting('dovetail.told'), 2) || ']';
END
$$;

-- What workers hold, and what has a key, now or until it was over. Each is asked for in the order of the index that is made
-- for it, which no other can give without a sort. Otherwise that of the ids may look cheaper: an index through which much has
-- gone is large and has few entries. By the ids, everything that waits would be read.
CREATE OR REPLACE FUNCTION running(of_docket bigint) RETURNS SETOF run LANGUAGE sql STABLE AS $$
    SELECT * FROM run WHERE docket = of_docket AND worker IS NOT NULL ORDER BY queue OFFSET 0
$$;

CREATE OR REPLACE FUNCTION called(of_docket bigint, of_key text) RETURNS SETOF run LANGUAGE sql STABLE AS $$
    SELECT * FROM run WHERE docket = of_docket AND key >= of_key AND key <= of_key ORDER BY key OFFSET 0
$$;

CREATE OR REPLACE FUNCTION was_called(of_docket bigint, of_key text) RETURNS SETOF ended LANGUAGE sql STABLE AS $$
    SELECT * FROM ended WHERE docket = of_docket AND key >= of_key AND key <= of_key ORDER BY key OFFSET 0
$$;
