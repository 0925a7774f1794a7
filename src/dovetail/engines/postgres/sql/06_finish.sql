-- Finishing: the end of a claim, as one unit with all it brings.

-- First those that completed and say no more than a result, then the other verdicts, in their order. Results and payloads
-- lie end to end in `blobs`; a size of -1 is no result. The answer is JSON: the ids of the first that were still theirs to
-- settle (`true` if all were), and a word for each of the others.
CREATE OR REPLACE FUNCTION finish(
    of_docket bigint, at bigint, ids text[], epochs bigint[], starts bigint[], sizes bigint[], verdicts jsonb, blobs bytea
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
DECLARE
    now bigint := time_of(at);
    done text := 'true';
    answers text := '';
    verdict jsonb;
BEGIN
    PERFORM begin_telling(of_docket);
    IF verdicts <> '[]' THEN
        -- A run that goes again takes its key again: nobody may place another in this moment.
        PERFORM lock_keys(of_docket, ARRAY(
            SELECT each->>'key' FROM jsonb_array_elements(verdicts) AS each WHERE each->>'key' IS NOT NULL
            UNION
            SELECT run->>'key' FROM jsonb_array_elements(verdicts) AS each, jsonb_array_elements(each->'then') AS run
            WHERE run->>'key' IS NOT NULL
        ));
    END IF;
    PERFORM lock_slots(
        of_docket, ids || ARRAY(SELECT each->>'id' FROM jsonb_array_elements(verdicts) AS each),
        ARRAY(SELECT each->>'id' FROM jsonb_array_elements(verdicts) AS each WHERE each ? 'unbegun')
    );
    IF cardinality(ids) > 0 THEN
        done := complete_plain(of_docket, now, ids, epochs, starts, sizes, blobs);
    END IF;
    FOR verdict IN SELECT * FROM jsonb_array_elements(verdicts) LOOP
        answers := answers || ',' || to_json(CASE
            WHEN verdict ? 'state' THEN settle(of_docket, now, verdict, blobs)
            ELSE requeue(of_docket, now, verdict, blobs) END);
    END LOOP;
    RETURN '{"done":' || done || ',"answers":[' || substr(answers, 2) || '],' || news(of_docket) || '}';
END
$$;

CREATE OR REPLACE FUNCTION complete_plain(
    of_docket bigint, now bigint, ids text[], epochs bigint[], starts bigint[], sizes bigint[], blobs bytea
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    mine tid[];
    done text[];
    dropped text[];
    parents text[];
    burdened jsonb;
    each record;
    telling boolean := is_telling();
BEGIN
    mine := ARRAY(
        SELECT held.address FROM unnest(ids, epochs) AS told (id, epoch) CROSS JOIN LATERAL (
            SELECT ctid AS address FROM run
            WHERE docket = of_docket AND id = told.id AND epoch = told.epoch AND state = 'running' FOR UPDATE
        ) AS held
    );
    WITH buried AS (
        DELETE FROM run WHERE ctid = ANY (mine) RETURNING run.*
    ), gone AS (
        SELECT buried.*, told.start AS result_start, told.size AS result_size
        FROM buried JOIN unnest(ids, starts, sizes) AS told (id, start, size) USING (id)
    ), kept AS (
        INSERT INTO ended (
            docket, id, key, task, state, queue, priority, due, created, attempt, epoch, crashes, crash_limit, tribe,
            weight, limits, headers, worker, started, finished, expires, keep_completed, keep_failed, keep_cancelled,
            keep_archived, keep_most, after_failure, wants_results, children, failures, result, payload
        )
        SELECT docket, id, key, task, 'completed', queue, priority, due, created, attempt, epoch, crashes, crash_limit,
            tribe, weight, limits, headers, worker, started, now, now + keep_completed + COALESCE(keep_archived, 0),
            keep_completed, keep_failed, keep_cancelled, keep_archived, keep_most, after_failure, wants_results,
            children, failures,
            CASE WHEN result_size >= 0 THEN substr(blobs, result_start::integer, result_size::integer) END, payload
        FROM gone WHERE keep_completed > 0 OR children > 0 OR keep_archived IS NOT NULL
    )
    SELECT array_agg(id), array_agg(id) FILTER (WHERE keep_completed <= 0 AND children = 0),
        array_agg(id) FILTER (WHERE children > 0), jsonb_agg(jsonb_build_object(
            'id', id, 'key', COALESCE(key, id), 'limits', limits, 'worker', worker, 'has_result', result_size >= 0
        )) FILTER (WHERE limits IS NOT NULL OR telling)
    INTO done, dropped, parents, burdened FROM gone;
    FOR each IN SELECT * FROM jsonb_to_recordset(burdened) AS one (
        id text, key text, limits jsonb, worker text, has_result boolean
    ) LOOP
        IF telling THEN
            PERFORM tell(jsonb_build_object(
                'kind', 'state', 'id', each.id, 'key', each.key, 'state', 'completed', 'finished', now,
                'worker', each.worker, 'has_result', each.has_result
            ));
        END IF;
        IF each.limits IS NOT NULL THEN
            PERFORM free_slots(of_docket, each.id, each.limits);
        END IF;
    END LOOP;
    IF cardinality(parents) > 0 THEN
        PERFORM release_children(of_docket, now, parents);
    END IF;
    IF cardinality(dropped) > 0 THEN
        PERFORM forget_remains(of_docket, dropped);
    END IF;
    IF cardinality(done) = cardinality(ids) THEN
        RETURN 'true';
    END IF;
    RETURN COALESCE(to_json(done)::text, '[]');
END
$$;

-- Drop the history and the parents of runs whose record was not kept.
CREATE OR REPLACE FUNCTION forget_remains(of_docket bigint, dropped text[]) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM error WHERE docket = of_docket) THEN
        DELETE FROM error WHERE docket = of_docket AND run = ANY (dropped);
    END IF;
    IF EXISTS (SELECT FROM edge WHERE docket = of_docket) THEN
        DELETE FROM edge WHERE docket = of_docket AND child = ANY (dropped);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION settle(of_docket bigint, now bigint, verdict jsonb, blobs bytea) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    gone run;
    new_state text := verdict->>'state';
    result bytea;
    successors jsonb := verdict->'then';
BEGIN
    SELECT * INTO gone FROM run WHERE docket = of_docket AND id = verdict->>'id' FOR UPDATE;
    IF NOT FOUND OR gone.epoch <> (verdict->>'epoch')::bigint OR gone.state <> 'running' THEN
        RETURN why_not(of_docket, verdict);
    END IF;
    IF verdict ? 'size' THEN
        result := substr(blobs, (verdict->>'start')::integer, (verdict->>'size')::integer);
    END IF;
    IF verdict ? 'failure' THEN
        PERFORM note_error(of_docket, now, gone.id, gone.failures, gone.attempt, gone.worker, verdict->'failure');
        gone.failures := gone.failures + 1;
    END IF;
    PERFORM bury(gone, new_state, now, gone.epoch, result, verdict->>'error', NULL);
    IF is_telling() THEN
        PERFORM tell(jsonb_build_object(
            'kind', 'state', 'id', gone.id, 'key', COALESCE(gone.key, gone.id), 'state', new_state, 'finished', now,
            'error', verdict->>'error', 'worker', gone.worker, 'has_result', result IS NOT NULL
        ));
    END IF;
    IF gone.limits IS NOT NULL THEN
        PERFORM free_slots(of_docket, gone.id, gone.limits);
    END IF;
    IF gone.limits IS NOT NULL AND verdict ? 'unbegun' THEN
        PERFORM give_back_starts(gone);
    END IF;
    IF gone.children > 0 THEN
        PERFORM settle_children(of_docket, now, gone.id, new_state = 'completed');
    END IF;
    IF gone.stop THEN
        -- A run that was asked to stop, and ended before it heard of it, is not followed by another of its key.
        SELECT COALESCE(jsonb_agg(each), '[]') INTO successors FROM jsonb_array_elements(successors) AS each
        WHERE COALESCE(each->>'key', each->>'id') <> COALESCE(gone.key, gone.id);
    END IF;
    IF successors <> '[]' THEN
        PERFORM place_requests(of_docket, now, successors, blobs, false);
    END IF;
    RETURN 'done';
END
$$;

CREATE OR REPLACE FUNCTION requeue(of_docket bigint, now bigint, verdict jsonb, blobs bytea) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    going run;
    new_due bigint := due_of(now, verdict);
    ready boolean := new_due <= now;
BEGIN
    SELECT * INTO going FROM run WHERE docket = of_docket AND id = verdict->>'id' FOR UPDATE;
    IF NOT FOUND OR going.epoch <> (verdict->>'epoch')::bigint OR going.state <> 'running' THEN
        RETURN why_not(of_docket, verdict);
    END IF;
    IF going.stop THEN
        -- It was asked to stop: it does not go again.
        RETURN settle(of_docket, now, verdict - 'size' || '{"state": "cancelled", "then": []}', blobs);
    END IF;
    IF verdict ? 'poisoned' AND going.crashes + 1 >= going.crash_limit THEN
        UPDATE run SET crashes = crashes + 1 WHERE docket = of_docket AND id = going.id;
        RETURN settle(of_docket, now, verdict - 'size' || '{"state": "failed", "then": []}' || jsonb_build_object(
            'failure', verdict->'poisoned', 'error', verdict->'poisoned_error'
        ), blobs);
    END IF;
    IF going.limits IS NOT NULL AND verdict ? 'unbegun' THEN
        PERFORM give_back_starts(going);
    END IF;
    IF EXISTS (
        SELECT FROM live_of_key(of_docket, COALESCE(going.key, going.id)) AS other
        WHERE other.id <> going.id AND other.state <> 'running'
    ) THEN
        -- The other has taken the key; what hung on this one is not the other's business.
        DELETE FROM run WHERE docket = of_docket AND id = going.id;
        IF going.limits IS NOT NULL THEN
            PERFORM free_slots(of_docket, going.id, going.limits);
        END IF;
        IF going.children > 0 THEN
            PERFORM settle_children(of_docket, now, going.id, false);
        END IF;
        PERFORM forget(of_docket, going.id);
        RETURN 'yielded';
    END IF;
    UPDATE run SET
        state = CASE WHEN ready THEN 'queued' ELSE 'scheduled' END, due = new_due,
        place = CASE WHEN ready THEN place_of(docket, queue, tribe, weight) ELSE 0 END,
        attempt = (verdict->>'attempt')::integer, crashes = crashes + (verdict ? 'poisoned')::integer, failures = failures + (verdict ? 'failure')::integer,
        payload = CASE WHEN verdict ? 'size'
            THEN substr(blobs, (verdict->>'start')::integer, (verdict->>'size')::integer) ELSE payload END,
        error = COALESCE(verdict->>'error', error), worker = NULL, lease = NULL, started = NULL,
        progress = NULL, total = NULL, message = NULL, reported = NULL
    WHERE docket = of_docket AND id = going.id;
    IF going.limits IS NOT NULL THEN
        PERFORM free_slots(of_docket, going.id, going.limits);
    END IF;
    IF verdict ? 'failure' THEN
        PERFORM note_error(
            of_docket, now, going.id, going.failures, (verdict->>'claimed_attempt')::integer, going.worker,
            verdict->'failure'
        );
    END IF;
    PERFORM note_work();
    PERFORM tell_state(going.id, going.key, CASE WHEN ready THEN 'queued' ELSE 'scheduled' END, new_due);
    RETURN 'done';
END
$$;

-- A claim that is void, or a verdict that was accepted before. The first one that was accepted stands.
CREATE OR REPLACE FUNCTION why_not(of_docket bigint, verdict jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    how record;
BEGIN
    SELECT state, attempt INTO how FROM run
    WHERE docket = of_docket AND id = verdict->>'id' AND epoch = (verdict->>'epoch')::bigint;
    IF NOT FOUND THEN
        SELECT state, attempt INTO how FROM ended
        WHERE docket = of_docket AND id = verdict->>'id' AND epoch = (verdict->>'epoch')::bigint;
    END IF;
    IF NOT FOUND THEN
        SELECT state, attempt INTO how FROM archive
        WHERE docket = of_docket AND id = verdict->>'id' AND epoch = (verdict->>'epoch')::bigint;
    END IF;
    IF NOT FOUND THEN
        RETURN 'fenced';
    END IF;
    IF verdict ? 'state' THEN
        RETURN CASE WHEN how.state = verdict->>'state' THEN 'already' ELSE 'fenced' END;
    END IF;
    RETURN CASE
        WHEN how.state IN ('scheduled', 'queued') AND how.attempt = (verdict->>'attempt')::integer THEN 'already'
        WHEN how.state = 'cancelled' OR (how.state = 'failed' AND verdict ? 'poisoned') THEN 'already'
        ELSE 'fenced' END;
END
$$;
