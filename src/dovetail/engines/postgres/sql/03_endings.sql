-- What happens around the end of a run: its record, slots, children, and the error history.

-- Move a run that is locked to those that are over. It is not kept at all if its retention is nought and nobody waits
-- for it.
CREATE OR REPLACE FUNCTION bury(
    gone run, new_state text, now bigint, new_epoch bigint, new_result bytea, new_error text, new_doomed_by text
) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    kept bigint := COALESCE(gone.keep_archived, 0) + CASE new_state
        WHEN 'completed' THEN gone.keep_completed WHEN 'failed' THEN gone.keep_failed ELSE gone.keep_cancelled END;
BEGIN
    DELETE FROM run WHERE docket = gone.docket AND id = gone.id;
    IF kept <= 0 AND gone.children = 0 THEN
        PERFORM forget(gone.docket, gone.id);
        RETURN;
    END IF;
    INSERT INTO ended (
        docket, id, key, task, state, queue, priority, due, created, attempt, epoch, crashes, crash_limit, tribe, weight,
        limits, headers, worker, started, finished, expires, keep_completed, keep_failed, keep_cancelled, keep_archived,
        keep_most, after_failure, wants_results, children, failures, doomed_by, error, result, payload
    ) VALUES (
        gone.docket, gone.id, gone.key, gone.task, new_state, gone.queue, gone.priority, gone.due, gone.created,
        gone.attempt, new_epoch, gone.crashes, gone.crash_limit, gone.tribe, gone.weight, gone.limits, gone.headers,
        gone.worker, gone.started, now, now + kept, gone.keep_completed, gone.keep_failed, gone.keep_cancelled,
        gone.keep_archived, gone.keep_most, gone.after_failure, gone.wants_results, gone.children, gone.failures, new_doomed_by, new_error, new_result, gone.payload
    );
END
$$;

-- Drop what belongs to a run whose record goes.
CREATE OR REPLACE FUNCTION forget(of_docket bigint, run_id text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM ended WHERE docket = of_docket AND id = run_id;
    DELETE FROM error WHERE docket = of_docket AND run = run_id;
    DELETE FROM edge WHERE docket = of_docket AND parent = run_id;
    DELETE FROM edge WHERE docket = of_docket AND child = run_id;
END
$$;

-- Add a line to the error history, and drop the oldest beyond its bound.
CREATE OR REPLACE FUNCTION note_error(
    of_docket bigint, now bigint, run_id text, failures integer, of_attempt integer, by_worker text, failure jsonb
) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO error (docket, run, number, attempt, at, worker, type, message, traceback)
    VALUES (
        of_docket, run_id, failures + 1, of_attempt, now, by_worker,
        failure->>'type', failure->>'message', failure->>'traceback'
    );
    IF failures >= 20 THEN
        DELETE FROM error WHERE docket = of_docket AND run = run_id AND number <= failures + 1 - 20;
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION doomed_text(parent_id text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'ParentFailed: the run ' || parent_id || ', which this one waited for, did not complete'
$$;

CREATE OR REPLACE FUNCTION dropped_text(limit_key text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT 'Dropped: the limit ' || limit_key || ' had no room, and cancels what it does not admit'
$$;

-- End a run that no worker speaks for: cancelled, dropped, poisoned. It is locked, and limits are locked if it has some.
-- How many dependents were cancelled with it.
CREATE OR REPLACE FUNCTION end_run(gone run, now bigint, new_state text, text_of_error text, failure jsonb)
RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    fallen bigint := 0;
BEGIN
    IF failure IS NOT NULL THEN
        PERFORM note_error(gone.docket, now, gone.id, gone.failures, gone.attempt, gone.worker, failure);
        gone.failures := gone.failures + 1;
    END IF;
    PERFORM bury(gone, new_state, now, gone.epoch + 1, NULL, text_of_error, NULL);
    IF gone.limits IS NOT NULL AND gone.state = 'running' THEN
        PERFORM free_slots(gone.docket, gone.id, gone.limits);
    END IF;
    IF gone.children > 0 THEN
        fallen := settle_children(gone.docket, now, gone.id, new_state = 'completed');
    END IF;
    IF is_telling() THEN
        PERFORM tell(jsonb_build_object(
            'kind', 'state', 'id', gone.id, 'key', COALESCE(gone.key, gone.id), 'state', new_state, 'finished', now,
            'error', text_of_error
        ));
    END IF;
    RETURN fallen;
END
$$;

-- Release what waits for a run that is over, or cancel it, to any depth. How many were cancelled.
CREATE OR REPLACE FUNCTION settle_children(of_docket bigint, now bigint, parent_id text, completed boolean) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    fallen bigint := 0;
    parents text[] := ARRAY[parent_id];
    over text := parent_id;
    went_well boolean := completed;
    waiting run;
BEGIN
    WHILE cardinality(parents) > 0 LOOP
        over := parents[cardinality(parents)];
        parents := parents[:cardinality(parents) - 1];
        FOR waiting IN
            SELECT child.* FROM (
                SELECT edge.child FROM edge WHERE docket = of_docket AND parent = over AND NOT met ORDER BY edge.child
            ) AS hanging CROSS JOIN LATERAL (
                SELECT * FROM run WHERE docket = of_docket AND id = hanging.child AND state = 'waiting' FOR UPDATE
            ) AS child
        LOOP
            IF went_well OR waiting.after_failure THEN
                PERFORM meet(waiting, now, over);
                CONTINUE;
            END IF;
            fallen := fallen + 1;
            PERFORM bury(waiting, 'cancelled', now, waiting.epoch + 1, NULL, doomed_text(over), over);
            IF is_telling() THEN
                PERFORM tell(jsonb_build_object(
                    'kind', 'state', 'id', waiting.id, 'key', COALESCE(waiting.key, waiting.id), 'state', 'cancelled',
                    'finished', now, 'error', doomed_text(over)
                ));
            END IF;
            IF waiting.children > 0 THEN
                parents := parents || waiting.id;
            END IF;
        END LOOP;
        went_well := false; -- only the first can have completed
    END LOOP;
    RETURN fallen;
END
$$;

-- Release what waits for runs that have completed, all of it in one go.
CREATE OR REPLACE FUNCTION release_children(of_docket bigint, now bigint, parents text[]) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    ungrouped text[];
    grouped text[];
    waiting run;
    tie record;
    released record;
    released_some boolean := false;
    telling boolean := is_telling();
BEGIN
    SELECT array_agg(id) FILTER (WHERE tribe IS NULL), array_agg(id) FILTER (WHERE tribe IS NOT NULL)
    INTO ungrouped, grouped
    FROM (
        SELECT DISTINCT edge.child FROM edge WHERE docket = of_docket AND parent = ANY (parents) AND NOT met
        ORDER BY edge.child
    ) AS hanging CROSS JOIN LATERAL (
        SELECT id, tribe FROM run WHERE docket = of_docket AND id = hanging.child AND state = 'waiting' FOR UPDATE
    ) AS locked;
    FOR released IN
        WITH over AS (
            UPDATE edge SET met = true
            WHERE docket = of_docket AND parent = ANY (parents) AND child = ANY (ungrouped) AND NOT met RETURNING child
        ), counted AS (
            SELECT child, count(*) AS number FROM over GROUP BY child
        )
        UPDATE run SET
            waits_for = waits_for - number,
            state = CASE WHEN waits_for > number THEN state WHEN due <= now THEN 'queued' ELSE 'scheduled' END,
            -- The virtual time of its queue: see `place_of`, which would be called for each of them.
            place = CASE WHEN waits_for > number OR due > now THEN 0 ELSE COALESCE((
                SELECT share.place FROM share WHERE share.docket = of_docket AND share.queue = run.queue AND share.tribe = ''
            ), 0) END
        FROM counted WHERE docket = of_docket AND id = child
        RETURNING id, key, state, due
    LOOP
        IF released.state <> 'waiting' THEN
            released_some := true;
            IF telling THEN
                PERFORM tell_state(released.id, released.key, released.state, released.due);
            END IF;
        END IF;
    END LOOP;
    IF released_some THEN
        PERFORM note_work();
    END IF;
    -- Each of these takes a turn of its group, in their order.
    FOR tie IN
        SELECT child, parent FROM edge
        WHERE docket = of_docket AND parent = ANY (parents) AND child = ANY (grouped) AND NOT met ORDER BY child
    LOOP
        SELECT * INTO waiting FROM run WHERE docket = of_docket AND id = tie.child;
        PERFORM meet(waiting, now, tie.parent);
    END LOOP;
END
$$;

-- One of a waiting run's parents is over; at the last it is released. A parent that ends twice counts once.
CREATE OR REPLACE FUNCTION meet(waiting run, now bigint, parent_id text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    ready boolean := waiting.due <= now;
BEGIN
    UPDATE edge SET met = true WHERE docket = waiting.docket AND parent = parent_id AND child = waiting.id;
    IF waiting.waits_for > 1 THEN
        UPDATE run SET waits_for = waits_for - 1 WHERE docket = waiting.docket AND id = waiting.id;
        RETURN;
    END IF;
    UPDATE run SET
        waits_for = 0, state = CASE WHEN ready THEN 'queued' ELSE 'scheduled' END,
        place = CASE WHEN ready THEN place_of(docket, queue, tribe, weight) ELSE 0 END
    WHERE docket = waiting.docket AND id = waiting.id;
    PERFORM note_work();
    PERFORM tell_state(waiting.id, waiting.key, CASE WHEN ready THEN 'queued' ELSE 'scheduled' END, waiting.due);
END
$$;
