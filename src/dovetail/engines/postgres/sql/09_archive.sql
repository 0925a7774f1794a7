-- What becomes of records past their retention: they are dropped, or kept for longer in the archive. And discarding.

-- Drop records past their retention, or move them. How many were dropped, how many moved, and, above nought, that there
-- is more.
CREATE OR REPLACE FUNCTION clear_out(of_docket bigint, now bigint, at_most bigint) RETURNS bigint[] LANGUAGE plpgsql AS $$
DECLARE
    expired text[] := ARRAY(
        SELECT id FROM ended
        WHERE docket = of_docket AND expires <= now AND (children = 0 OR NOT is_needed(docket, id))
        ORDER BY expires LIMIT at_most FOR UPDATE SKIP LOCKED
    );
    surplus text[];
    ripe text[];
    past text[];
    moved bigint;
BEGIN
    PERFORM drop_runs(of_docket, expired);
    surplus := surplus_of(of_docket, at_most);
    moved := move_to_archive(of_docket, surplus);
    PERFORM drop_runs(of_docket, ARRAY(SELECT id FROM ended WHERE docket = of_docket AND id = ANY (surplus)));
    ripe := ARRAY(
        SELECT id FROM ended
        WHERE docket = of_docket AND keep_archived IS NOT NULL AND expires - keep_archived <= now
        ORDER BY expires - keep_archived LIMIT at_most FOR UPDATE SKIP LOCKED
    );
    past := ARRAY(
        SELECT id FROM archive
        WHERE docket = of_docket AND expires <= now AND (children = 0 OR NOT is_needed(docket, id))
        ORDER BY expires LIMIT at_most FOR UPDATE SKIP LOCKED
    );
    PERFORM drop_runs(of_docket, past);
    RETURN ARRAY[
        cardinality(expired) + cardinality(surplus) - moved + cardinality(past),
        moved + move_to_archive(of_docket, ripe),
        (GREATEST(cardinality(expired), cardinality(surplus), cardinality(ripe), cardinality(past)) >= at_most)::integer
    ];
END
$$;

-- Whether live runs still hang on one that is over: then it is kept for them.
CREATE OR REPLACE FUNCTION is_needed(of_docket bigint, run_id text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM edge WHERE docket = of_docket AND parent = run_id
            AND EXISTS (SELECT FROM run WHERE docket = of_docket AND id = edge.child OFFSET 0)
    );
END
$$;

-- Runs beyond the count that the run of their task and ending names which ended last; at most so many, and locked.
CREATE OR REPLACE FUNCTION surplus_of(of_docket bigint, at_most bigint) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    beyond text[] := '{}';
    of_task text := '';
    of_state text := '';
    most bigint;
BEGIN
    WHILE cardinality(beyond) < at_most LOOP
        SELECT task, state INTO of_task, of_state FROM ended
        WHERE docket = of_docket AND keep_most IS NOT NULL AND (task, state) > (of_task, of_state)
        ORDER BY task, state LIMIT 1;
        EXIT WHEN of_task IS NULL;
        SELECT keep_most INTO most FROM ended
        WHERE docket = of_docket AND task = of_task AND state = of_state AND keep_most IS NOT NULL
        ORDER BY finished DESC, id DESC LIMIT 1;
        beyond := beyond || ARRAY(
            SELECT id FROM (
                SELECT id, children FROM ended
                WHERE docket = of_docket AND task = of_task AND state = of_state AND keep_most IS NOT NULL
                ORDER BY finished DESC, id DESC OFFSET most
            ) AS counted
            WHERE children = 0 OR NOT is_needed(of_docket, id) LIMIT at_most - cardinality(beyond)
        );
    END LOOP;
    -- Another who sweeps may have chosen the same.
    RETURN ARRAY(SELECT id FROM ended WHERE docket = of_docket AND id = ANY (beyond) FOR UPDATE SKIP LOCKED);
END
$$;

-- Those of the runs, which are locked, that are to lie in the archive: how many they are.
CREATE OR REPLACE FUNCTION move_to_archive(of_docket bigint, ids text[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    places tid[] := kept_at(of_docket, ids);
    moved bigint := 0;
BEGIN
    IF cardinality(places) > 0 THEN
        WITH leaving AS (
            -- Said so that the index of what goes to the archive does not seem to fit: by it, all that waits would be read.
            DELETE FROM ended WHERE ctid = ANY (places) AND COALESCE(keep_archived, -1) >= 0 RETURNING *
        )
        INSERT INTO archive SELECT * FROM leaving;
        GET DIAGNOSTICS moved = ROW_COUNT;
    END IF;
    RETURN moved;
END
$$;

-- Take runs out of the archive. One that does not go to work after all is moved again in time.
CREATE OR REPLACE FUNCTION bring_back(of_docket bigint, ids text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(ids) > 0 THEN
        WITH leaving AS (
            DELETE FROM archive WHERE docket = of_docket AND id = ANY (ids) RETURNING *
        )
        INSERT INTO ended SELECT * FROM leaving;
    END IF;
END
$$;

-- Where the records of these runs lie, locked. They are looked for one by one: for all of them at once, a docket that
-- statistics do not know yet would be read from end to end.
CREATE OR REPLACE FUNCTION kept_at(of_docket bigint, ids text[]) RETURNS tid[] LANGUAGE plpgsql AS $$
BEGIN
    RETURN ARRAY(
        SELECT held.address FROM unnest(ids) AS wanted (id) CROSS JOIN LATERAL (
            SELECT ctid AS address FROM ended WHERE docket = of_docket AND ended.id = wanted.id FOR UPDATE
        ) AS held
    );
END
$$;

-- Drop runs that are over, wherever they lie, and all that belongs to them.
CREATE OR REPLACE FUNCTION drop_runs(of_docket bigint, ids text[]) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    places tid[] := kept_at(of_docket, ids);
BEGIN
    IF cardinality(ids) > 0 THEN
        DELETE FROM ended WHERE ctid = ANY (places);
        DELETE FROM archive WHERE docket = of_docket AND id = ANY (ids);
        DELETE FROM error WHERE docket = of_docket AND run = ANY (ids);
        DELETE FROM edge WHERE docket = of_docket AND parent = ANY (ids);
        DELETE FROM edge WHERE docket = of_docket AND child = ANY (ids);
    END IF;
END
$$;

-- The answer is JSON: whether each is gone now.
CREATE OR REPLACE FUNCTION discard(of_docket bigint, at bigint, ids text[]) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
DECLARE
    now bigint := time_of(at);
    -- In one order, so that two who discard the same do not wait in a circle.
    gone text[] := ARRAY(
        SELECT id FROM ended WHERE docket = of_docket AND id = ANY (ids) AND expires + 0 > now ORDER BY id FOR UPDATE
    ) || ARRAY(
        SELECT id FROM archive WHERE docket = of_docket AND id = ANY (ids) AND expires + 0 > now ORDER BY id FOR UPDATE
    );
    answers boolean[] := '{}';
    each text;
BEGIN
    PERFORM drop_runs(of_docket, gone);
    FOREACH each IN ARRAY ids LOOP
        answers := answers || (each = ANY (gone));
        gone := array_remove(gone, each); -- named twice, it goes once
    END LOOP;
    RETURN to_json(answers);
END
$$;
