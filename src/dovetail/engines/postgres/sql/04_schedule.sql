-- Scheduling: who holds a key, placing a run, and moving or removing the one that waits.

-- Each request is one run, or many that differ in id, due time and payload alone ({ids, ...}). Payloads lie end to end.
-- The answer is JSON: for many a letter for the state of each, otherwise [[placing, id, state], ...].
CREATE OR REPLACE FUNCTION schedule(of_docket bigint, at bigint, requests jsonb, payloads bytea, within boolean)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
DECLARE
    answers text;
BEGIN
    PERFORM begin_telling(of_docket);
    answers := place_requests(of_docket, time_of(at), requests, payloads, within);
    RETURN '{"placed":' || answers || ',' || news(of_docket) || '}';
END
$$;

-- The same in a transaction of the caller's, on a connection that may lead to another database by mistake.
CREATE OR REPLACE FUNCTION schedule_within(of_docket bigint, of_token uuid, at bigint, requests jsonb, payloads bytea)
RETURNS text LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM docket WHERE id = of_docket AND token = of_token) THEN
        RAISE EXCEPTION USING ERRCODE = 'DV002', MESSAGE = 'this database does not hold that docket';
    END IF;
    RETURN schedule(of_docket, at, requests, payloads, true);
END
$$;

-- The same for one run that has nothing but arguments, which is what most are: no JSON, and half the statements.
CREATE OR REPLACE FUNCTION schedule_plain(
    of_docket bigint, at bigint, run_id text, of_task text, of_queue text, of_priority bigint, of_due bigint,
    of_delay bigint, of_attempt bigint, of_crash_limit bigint, kept_completed bigint, kept_failed bigint,
    kept_cancelled bigint, of_payload bytea, of_conflict text
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
DECLARE
    now bigint := time_of(at);
    moment bigint := COALESCE(of_due, now + of_delay);
    new_state text := CASE WHEN moment <= now THEN 'queued' ELSE 'scheduled' END;
    known text;
BEGIN
    IF EXISTS (SELECT FROM called(of_docket, run_id)) THEN
        -- Someone used its id as a key.
        RETURN schedule(of_docket, now, jsonb_build_array(jsonb_build_object(
            'id', run_id, 'task', of_task, 'queue', of_queue, 'priority', of_priority, 'due', moment,
            'attempt', of_attempt, 'crash_limit', of_crash_limit, 'keep_completed', kept_completed,
            'keep_failed', kept_failed, 'keep_cancelled', kept_cancelled, 'conflict', of_conflict, 'start', 1,
            'size', length(of_payload), 'after', '[]'::jsonb, 'after_failure', false
        )), of_payload, false);
    END IF;
    PERFORM begin_telling(of_docket);
    INSERT INTO run (
        docket, id, task, queue, priority, state, due, created, attempt, crash_limit, place,
        keep_completed, keep_failed, keep_cancelled, payload
    ) VALUES (
        of_docket, run_id, of_task, of_queue, of_priority, new_state, moment, now, of_attempt, of_crash_limit,
        CASE WHEN moment <= now
            THEN COALESCE((SELECT place FROM share WHERE docket = of_docket AND queue = of_queue AND tribe = ''), 0)
            ELSE 0 END,
        kept_completed, kept_failed, kept_cancelled, of_payload
    ) ON CONFLICT (docket, id) DO NOTHING;
    IF NOT FOUND THEN
        new_state := standing(of_docket, run_id);
    ELSE
        -- A request that was made before, and whose run is over by now: see place_alike.
        SELECT state INTO known FROM ended WHERE docket = of_docket AND id = run_id
        UNION ALL SELECT state FROM archive WHERE docket = of_docket AND id = run_id;
        IF known IS NOT NULL THEN
            DELETE FROM run WHERE docket = of_docket AND id = run_id;
            new_state := known;
        ELSE
            PERFORM note_work();
            PERFORM tell_state(run_id, NULL, new_state, moment);
        END IF;
    END IF;
    RETURN '{"placed":["' || letter_of(new_state) || '"],' || news(of_docket) || '}';
END
$$;

CREATE OR REPLACE FUNCTION place_requests(of_docket bigint, now bigint, requests jsonb, payloads bytea, within boolean)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answers text := '';
    request jsonb;
BEGIN
    PERFORM lock_keys(of_docket, ARRAY(
        SELECT each->>'key' FROM jsonb_array_elements(requests) AS each WHERE each->>'key' IS NOT NULL
    ));
    FOR request IN SELECT * FROM jsonb_array_elements(requests) LOOP
        answers := answers || ',' || CASE
            WHEN request ? 'ids' THEN place_alike(of_docket, now, request, payloads, within)
            ELSE '[' || to_json(place_one(of_docket, now, request, payloads, within)) || ']' END;
    END LOOP;
    PERFORM pass_turns_on(of_docket);
    RETURN '[' || substr(answers, 2) || ']';
END
$$;

CREATE OR REPLACE FUNCTION letter_of(state text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE state WHEN 'cancelled' THEN 'x' ELSE left(state, 1) END
$$;

-- How a run stands that is kept; NULL if there is none.
CREATE OR REPLACE FUNCTION standing(of_docket bigint, run_id text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN COALESCE(
        (SELECT state FROM run WHERE docket = of_docket AND id = run_id),
        (SELECT state FROM ended WHERE docket = of_docket AND id = run_id),
        (SELECT state FROM archive WHERE docket = of_docket AND id = run_id)
    );
END
$$;

-- Runs without a key of their own that nothing can stand in the way of: they go in with one statement.
CREATE OR REPLACE FUNCTION place_alike(of_docket bigint, now bigint, request jsonb, payloads bytea, within boolean)
RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    ids text[] := string_to_array(request->>'ids', ',');
    sizes integer[] := string_to_array(request->>'sizes', ',')::integer[];
    dues bigint[];
    inserted bigint;
    removed bigint := 0;
    over text[];
    ready_place double precision;
    -- Taken out of the request once, not once for every row.
    of_task text := request->>'task';
    of_queue text := request->>'queue';
    of_priority bigint := request->>'priority';
    of_attempt integer := request->>'attempt';
    of_crash_limit integer := request->>'crash_limit';
    kept_completed bigint := request->>'keep_completed';
    kept_failed bigint := request->>'keep_failed';
    kept_cancelled bigint := request->>'keep_cancelled';
    kept_archived bigint := request->>'keep_archived';
    kept_most integer := request->>'keep_most';
    start integer := request->>'start';
BEGIN
    IF request ? 'dues' THEN
        dues := string_to_array(request->>'dues', ',')::bigint[];
    ELSE
        dues := array_fill(now + (request->>'delay')::bigint, ARRAY[cardinality(ids)]);
    END IF;
    -- A run that is called by its id has its key to itself, unless someone used that id as a key.
    IF EXISTS (SELECT FROM unnest(ids) AS one (id) CROSS JOIN LATERAL called(of_docket, one.id)) THEN
        RETURN place_apart(of_docket, now, request, ids, dues, sizes, payloads, within);
    END IF;
    ready_place := place_of(of_docket, of_queue, NULL, NULL);
    INSERT INTO run (
        docket, id, task, queue, priority, state, due, created, attempt, crash_limit, place,
        keep_completed, keep_failed, keep_cancelled, keep_archived, keep_most, payload
    )
    SELECT
        of_docket, one.id, of_task, of_queue, of_priority,
        CASE WHEN one.due <= now THEN 'queued' ELSE 'scheduled' END, one.due, now, of_attempt, of_crash_limit,
        CASE WHEN one.due <= now THEN ready_place ELSE 0 END, kept_completed, kept_failed, kept_cancelled,
        kept_archived, kept_most, substr(payloads, start + one.before::integer, one.size)
    FROM (
        SELECT id, due, size, SUM(size) OVER (ROWS UNBOUNDED PRECEDING) - size AS before
        FROM unnest(ids, dues, sizes) AS each (id, due, size)
    ) AS one
    ON CONFLICT (docket, id) DO NOTHING;
    GET DIAGNOSTICS inserted = ROW_COUNT;
    -- Requests that were made before, and whose runs are over by now. Looked for afterwards: from here on no run of
    -- these ids can come to its end.
    over := ARRAY(
        SELECT id FROM ended WHERE docket = of_docket AND id = ANY (ids)
        UNION ALL SELECT id FROM archive WHERE docket = of_docket AND id = ANY (ids)
    );
    IF cardinality(over) > 0 THEN
        DELETE FROM run WHERE docket = of_docket AND id = ANY (over);
        GET DIAGNOSTICS removed = ROW_COUNT;
    END IF;
    IF inserted > removed THEN
        PERFORM note_work();
    END IF;
    IF is_telling() THEN
        PERFORM tell_state(each.id, NULL, CASE WHEN each.due <= now THEN 'queued' ELSE 'scheduled' END, each.due)
        FROM unnest(ids, dues) AS each (id, due);
    END IF;
    IF inserted = cardinality(ids) AND removed = 0 THEN
        RETURN (SELECT '"' || string_agg(CASE WHEN due <= now THEN 'q' ELSE 's' END, '') || '"' FROM unnest(dues) AS due);
    END IF;
    RETURN (SELECT '"' || string_agg(letter_of(standing(of_docket, id)), '') || '"' FROM unnest(ids) AS id);
END
$$;

-- The same runs one by one.
CREATE OR REPLACE FUNCTION place_apart(
    of_docket bigint, now bigint, request jsonb, ids text[], dues bigint[], sizes integer[], payloads bytea, within boolean
) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    answers text := '';
    start integer := (request->>'start')::integer;
BEGIN
    FOR number IN 1..cardinality(ids) LOOP
        answers := answers || ',' || to_json(place_one(of_docket, now, request || jsonb_build_object(
            'id', ids[number], 'due', dues[number], 'start', start, 'size', sizes[number], 'after', '[]'::jsonb,
            'after_failure', false
        ), payloads, within));
        start := start + sizes[number];
    END LOOP;
    RETURN '[' || substr(answers, 2) || ']';
END
$$;

CREATE OR REPLACE FUNCTION place_one(of_docket bigint, now bigint, request jsonb, payloads bytea, within boolean)
RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    new_id text := request->>'id';
    of_key text := COALESCE(request->>'key', request->>'id');
    conflict text := request->>'conflict';
    known text := standing(of_docket, new_id);
    holder run;
    pending run;
    latest run; -- the one that waits, or else the newest
    holders integer := 0;
BEGIN
    IF known IS NOT NULL THEN
        RETURN ARRAY['placed', new_id, known];
    END IF;
    FOR holder IN SELECT * FROM live_of_key(of_docket, of_key) LOOP
        IF holders = 0 OR holder.state <> 'running' THEN
            latest := holder;
        END IF;
        holders := holders + 1;
        IF holder.state <> 'running' THEN
            pending := holder;
            EXIT;
        END IF;
    END LOOP;
    IF request->>'instead_of' IS NOT NULL AND latest.id IS DISTINCT FROM request->>'instead_of' THEN
        RETURN ARRAY['kept', COALESCE(latest.id, request->>'instead_of'), COALESCE(latest.state, 'cancelled')];
    END IF;
    IF holders = 0 THEN
        RETURN place_run(of_docket, now, request, payloads, within, 'placed', NULL);
    END IF;
    IF conflict = 'keep' OR (conflict = 'keep_pending' AND pending.id IS NOT NULL) THEN
        RETURN ARRAY['kept', latest.id, latest.state];
    END IF;
    IF pending.id IS NULL THEN
        RETURN place_run(
            of_docket, now, request, payloads, within, CASE conflict WHEN 'replace' THEN 'replaced' ELSE 'placed' END, NULL
        );
    END IF;
    IF conflict = 'postpone' THEN
        RETURN postpone(pending, now, request);
    END IF;
    -- What hung on the one that waits hangs on this.
    DELETE FROM run WHERE docket = of_docket AND id = pending.id;
    DELETE FROM error WHERE docket = of_docket AND run = pending.id;
    DELETE FROM edge WHERE docket = of_docket AND child = pending.id;
    PERFORM pass_turn_on(pending.turn);
    RETURN place_run(of_docket, now, request, payloads, within, 'replaced', pending);
END
$$;

-- The live runs that hold a key, the newest first; they are locked.
CREATE OR REPLACE FUNCTION live_of_key(of_docket bigint, of_key text) RETURNS SETOF run LANGUAGE plpgsql AS $$
DECLARE
    held run;
    found_some run[];
BEGIN
    FOR held IN
        SELECT * FROM run WHERE docket = of_docket AND key >= of_key AND key <= of_key ORDER BY key FOR UPDATE
    LOOP
        found_some := found_some || held;
    END LOOP;
    SELECT * INTO held FROM run WHERE docket = of_docket AND id = of_key AND key IS NULL FOR UPDATE;
    IF FOUND THEN
        found_some := found_some || held;
    END IF;
    RETURN QUERY SELECT * FROM unnest(found_some) AS one ORDER BY one.created DESC, one.id DESC;
END
$$;

-- When a request is due, by the store's clock, within the calendar.
CREATE OR REPLACE FUNCTION due_of(now bigint, request jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE AS $$
    SELECT LEAST(GREATEST(
        COALESCE((request->>'due')::bigint, now + (request->>'delay')::bigint), -62135596800000000
    ), 253402300799999999)
$$;

CREATE OR REPLACE FUNCTION postpone(pending run, now bigint, request jsonb) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    new_due bigint := due_of(now, request);
    new_state text := CASE WHEN new_due > now THEN 'scheduled' ELSE 'queued' END;
BEGIN
    IF pending.postponed_by = request->>'id' THEN
        RETURN ARRAY['postponed', pending.id, pending.state];
    END IF;
    IF pending.state = 'waiting' THEN
        UPDATE run SET due = new_due, postponed_by = request->>'id' WHERE docket = pending.docket AND id = pending.id;
        RETURN ARRAY['postponed', pending.id, 'waiting'];
    END IF;
    UPDATE run SET
        due = new_due, state = new_state, postponed_by = request->>'id', turn = NULL, parked_on = NULL,
        place = CASE WHEN new_due > now THEN 0 ELSE place_of(docket, queue, tribe, weight) END
    WHERE docket = pending.docket AND id = pending.id;
    PERFORM pass_turn_on(pending.turn);
    PERFORM note_work();
    PERFORM tell_state(pending.id, pending.key, new_state, new_due);
    RETURN ARRAY['postponed', pending.id, new_state];
END
$$;

CREATE OR REPLACE FUNCTION place_run(
    of_docket bigint, now bigint, request jsonb, payloads bytea, within boolean, how text, heir_of run
) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    new run;
    parents jsonb;
    dead text;
    kept bigint;
BEGIN
    IF jsonb_array_length(request->'after') > 0 THEN
        parents := lock_parents(of_docket, now, request);
    END IF;
    IF parents IS NOT NULL AND NOT (request->>'after_failure')::boolean THEN
        SELECT each.key INTO dead FROM jsonb_each_text(parents) AS each WHERE each.value IN ('failed', 'cancelled')
        LIMIT 1;
    END IF;
    new.docket := of_docket;
    new.id := request->>'id';
    new.key := request->>'key';
    new.task := request->>'task';
    new.queue := request->>'queue';
    new.priority := (request->>'priority')::bigint;
    new.due := due_of(now, request);
    new.created := now;
    new.attempt := (request->>'attempt')::integer;
    new.crash_limit := (request->>'crash_limit')::integer;
    new.keep_completed := (request->>'keep_completed')::bigint;
    new.keep_failed := (request->>'keep_failed')::bigint;
    new.keep_cancelled := (request->>'keep_cancelled')::bigint;
    new.keep_archived := (request->>'keep_archived')::bigint;
    new.keep_most := (request->>'keep_most')::integer;
    new.payload := substr(payloads, (request->>'start')::integer, (request->>'size')::integer);
    new.tribe := request->>'group';
    new.weight := (request->>'weight')::double precision;
    new.limits := NULLIF(request->'limits', 'null'::jsonb);
    new.headers := request->>'headers';
    new.after_failure := (request->>'after_failure')::boolean;
    new.wants_results := request ? 'wants_results';
    new.epoch := 0;
    new.crashes := 0;
    new.failures := 0;
    new.stop := false;
    new.place := 0;
    new.waits_for := 0;
    new.children := CASE WHEN heir_of IS NULL THEN 0 ELSE heir_of.children END;
    IF parents IS NOT NULL AND dead IS NULL THEN
        SELECT COUNT(*) INTO new.waits_for FROM jsonb_each_text(parents) AS each
        WHERE each.value NOT IN ('completed', 'failed', 'cancelled');
    END IF;
    IF new.key IS NOT NULL THEN
        -- What is over gives way to the newcomer soon; failures keep their retention, and so does what is kept by count or
        -- goes to the archive.
        UPDATE ended SET expires = now + 10000000
        WHERE docket = of_docket AND id = ANY (ARRAY(SELECT id FROM was_called(of_docket, new.key))) AND state IN ('completed', 'cancelled') AND expires + 0 > now + 10000000
            AND keep_most IS NULL AND keep_archived IS NULL;
    END IF;
    IF dead IS NOT NULL THEN
        new.state := 'cancelled';
    ELSIF new.waits_for > 0 THEN
        new.state := 'waiting';
    ELSIF new.due > now OR (within AND new.tribe IS NOT NULL) THEN
        -- In a transaction of the caller's a group's place would stay locked until its end: such a run gets its place
        -- when a claim finds that it is due.
        new.state := 'scheduled';
    ELSE
        new.state := 'queued';
        new.place := place_of(of_docket, new.queue, new.tribe, new.weight);
    END IF;
    IF new.state = 'cancelled' THEN
        PERFORM bury(new, 'cancelled', now, 0, NULL, doomed_text(dead), dead);
    ELSE
        INSERT INTO run SELECT (new).*;
    END IF;
    INSERT INTO edge (docket, parent, child, met)
    SELECT of_docket, each.key, new.id, each.value IN ('completed', 'failed', 'cancelled')
    FROM jsonb_each_text(parents) AS each
    WHERE EXISTS (SELECT FROM run WHERE docket = of_docket AND id = new.id)
        OR EXISTS (SELECT FROM ended WHERE docket = of_docket AND id = new.id)
    ON CONFLICT DO NOTHING;
    IF new.children > 0 THEN
        UPDATE edge SET parent = new.id WHERE docket = of_docket AND parent = heir_of.id;
        IF new.waits_for > 0 AND waits_for_itself(of_docket, new.id) THEN
            RAISE EXCEPTION USING ERRCODE = 'DV003', MESSAGE = 'a circle of runs',
                DETAIL = json_build_array(COALESCE(new.key, new.id))::text;
        END IF;
        IF dead IS NOT NULL THEN
            PERFORM settle_children(of_docket, now, new.id, false);
        END IF;
    END IF;
    IF new.state IN ('queued', 'scheduled') THEN
        PERFORM note_work();
    END IF;
    PERFORM tell_state(new.id, new.key, new.state, new.due);
    RETURN ARRAY[how, new.id, new.state];
END
$$;

-- Whether a run that has taken over what hung on another waits for some of that.
CREATE OR REPLACE FUNCTION waits_for_itself(of_docket bigint, run_id text) RETURNS boolean LANGUAGE sql AS $$
    WITH RECURSIVE awaited (id) AS (
        SELECT parent FROM edge WHERE docket = of_docket AND child = run_id AND NOT met
        UNION
        SELECT edge.parent FROM awaited
        JOIN edge ON edge.docket = of_docket AND edge.child = awaited.id AND NOT edge.met
    )
    SELECT EXISTS (SELECT FROM awaited WHERE id = run_id)
$$;

-- The parents of a run and how each stands: {id: state}. They are locked, so that none ends unseen.
CREATE OR REPLACE FUNCTION lock_parents(of_docket bigint, now bigint, request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    found_parents jsonb := '{}';
    reference text;
    parent_id text;
    parent_state text;
BEGIN
    FOR reference IN SELECT DISTINCT each FROM jsonb_array_elements_text(request->'after') AS each ORDER BY 1 LOOP
        parent_state := NULL;
        FOR round IN 1..10 LOOP
            parent_id := parent_of(of_docket, now, reference);
            EXIT WHEN parent_id IS NULL OR found_parents ? parent_id;
            parent_state := mark_parent(of_docket, parent_id);
            EXIT WHEN parent_state IS NOT NULL; -- otherwise it was replaced, or ended, in this moment: look again
        END LOOP;
        IF parent_id IS NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'DV001', MESSAGE = 'unknown parent',
                DETAIL = json_build_array(COALESCE(request->>'key', request->>'id'), (
                    SELECT each FROM jsonb_array_elements_text(request->'after') WITH ORDINALITY AS named (each, number)
                    WHERE parent_of(of_docket, now, each) IS NULL ORDER BY number LIMIT 1
                ))::text;
        END IF;
        IF parent_state IS NOT NULL THEN
            found_parents := found_parents || jsonb_build_object(parent_id, parent_state);
        END IF;
    END LOOP;
    RETURN found_parents;
END
$$;

-- Lock a run and note that it has a child; its state, or NULL if it is not there. It is written for its first child alone:
-- every version of it would be walked past for each of a thousand others in the same transaction.
CREATE OR REPLACE FUNCTION mark_parent(of_docket bigint, run_id text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    parent_state text;
    is_first boolean;
BEGIN
    SELECT state, children = 0 INTO parent_state, is_first FROM run
    WHERE docket = of_docket AND id = run_id FOR NO KEY UPDATE;
    IF FOUND THEN
        IF is_first THEN
            UPDATE run SET children = 1 WHERE docket = of_docket AND id = run_id;
        END IF;
        RETURN parent_state;
    END IF;
    SELECT state, children = 0 INTO parent_state, is_first FROM ended
    WHERE docket = of_docket AND id = run_id FOR NO KEY UPDATE;
    IF FOUND THEN
        IF is_first THEN
            UPDATE ended SET children = 1 WHERE docket = of_docket AND id = run_id;
        END IF;
        RETURN parent_state;
    END IF;
    UPDATE archive SET children = 1 WHERE docket = of_docket AND id = run_id RETURNING state INTO parent_state;
    RETURN parent_state;
END
$$;

-- The run that an id or a key stands for: the newest that is kept.
CREATE OR REPLACE FUNCTION parent_of(of_docket bigint, now bigint, reference text) RETURNS text LANGUAGE sql AS $$
    SELECT id FROM (
        SELECT id, created FROM run WHERE docket = of_docket AND id = reference
        UNION ALL
        SELECT id, created FROM called(of_docket, reference)
        UNION ALL
        SELECT id, created FROM ended WHERE docket = of_docket AND id = reference AND expires + 0 > now
        UNION ALL
        SELECT id, created FROM was_called(of_docket, reference) WHERE expires > now
        UNION ALL
        SELECT id, created FROM archive WHERE docket = of_docket AND id = reference AND expires + 0 > now
        UNION ALL
        SELECT id, created FROM archive WHERE docket = of_docket AND key = reference AND expires + 0 > now
    ) AS candidate
    ORDER BY id = reference DESC, created DESC, id DESC LIMIT 1
$$;
