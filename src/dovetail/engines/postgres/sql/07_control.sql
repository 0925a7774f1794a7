-- Heartbeats, cancelling, progress, reviving and holds.

-- A run that somebody else has locked is not waited for: it stays in hand as long as its claim holds, and nobody can take
-- it over meanwhile. The answer is JSON: the version of the holds, what is lost, what is to stop.
CREATE OR REPLACE FUNCTION heartbeat(
    of_docket bigint, at bigint, ids text[], epochs bigint[], lease_for bigint, worker_id text, info bytea, leaving boolean
) RETURNS text LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
DECLARE
    now bigint := time_of(at);
    until bigint := now + lease_for;
    bound bigint;
    version bigint;
    lost text[];
    stopping text[];
BEGIN
    UPDATE run SET lease = until WHERE ctid = ANY (ARRAY(
        SELECT held.address FROM unnest(ids, epochs) AS mine (id, epoch) CROSS JOIN LATERAL (
            SELECT ctid AS address FROM run
            WHERE docket = of_docket AND id = mine.id AND epoch = mine.epoch AND state = 'running'
            FOR UPDATE SKIP LOCKED
        ) AS held
    ));
    SELECT array_agg(mine.id) FILTER (WHERE held.stop IS NULL), array_agg(mine.id) FILTER (WHERE held.stop)
    INTO lost, stopping
    FROM unnest(ids, epochs) AS mine (id, epoch) LEFT JOIN LATERAL (
        SELECT stop FROM run
        WHERE docket = of_docket AND id = mine.id AND epoch = mine.epoch AND state = 'running' OFFSET 0
    ) AS held ON true;
    IF leaving THEN
        DELETE FROM worker WHERE docket = of_docket AND id = worker_id;
    ELSE
        INSERT INTO worker (docket, id, last_seen, info) VALUES (of_docket, worker_id, now, heartbeat.info)
        ON CONFLICT (docket, id) DO UPDATE SET last_seen = excluded.last_seen, info = excluded.info;
    END IF;
    SELECT holds, lapse INTO version, bound FROM docket WHERE id = of_docket;
    IF cardinality(ids) > 0 AND until < bound THEN
        UPDATE docket SET lapse = until WHERE id = of_docket AND lapse > until;
    END IF;
    RETURN json_build_array(version, COALESCE(lost, '{}'), COALESCE(stopping, '{}'));
END
$$;

-- The answer is JSON: a word for each key.
CREATE OR REPLACE FUNCTION cancel(of_docket bigint, at bigint, keys text[], running boolean) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
DECLARE
    now bigint := time_of(at);
    answers text[] := '{}';
    each text;
BEGIN
    PERFORM begin_telling(of_docket);
    PERFORM lock_keys(of_docket, keys);
    FOREACH each IN ARRAY keys LOOP
        answers := answers || cancel_one(of_docket, now, each, running);
    END LOOP;
    PERFORM pass_turns_on(of_docket);
    RETURN '{"answers":' || to_json(answers) || ',' || news(of_docket) || '}';
END
$$;

CREATE OR REPLACE FUNCTION cancel_one(of_docket bigint, now bigint, of_key text, running boolean) RETURNS text
LANGUAGE plpgsql AS $$
DECLARE
    newest run;
BEGIN
    SELECT * INTO newest FROM live_of_key(of_docket, of_key) LIMIT 1;
    IF newest.id IS NULL THEN
        RETURN CASE WHEN EXISTS (
            SELECT FROM was_called(of_docket, of_key) WHERE expires > now
        ) OR EXISTS (
            SELECT FROM ended WHERE docket = of_docket AND id = of_key AND key IS NULL AND expires + 0 > now
        ) OR EXISTS (
            SELECT FROM archive WHERE docket = of_docket AND key = of_key AND expires + 0 > now
        ) OR EXISTS (
            SELECT FROM archive WHERE docket = of_docket AND id = of_key AND key IS NULL AND expires + 0 > now
        ) THEN 'over' ELSE 'unknown' END;
    END IF;
    IF newest.state = 'running' THEN
        IF NOT running THEN
            RETURN 'over';
        END IF;
        UPDATE run SET stop = true WHERE docket = of_docket AND id = newest.id;
        IF is_heard(of_docket, 'x') THEN
            PERFORM tell(jsonb_build_object('kind', 'stop', 'id', newest.id, 'key', of_key));
        END IF;
        RETURN 'stopping';
    END IF;
    PERFORM end_run(newest, now, 'cancelled', NULL, NULL);
    PERFORM pass_turn_on(newest.turn);
    RETURN 'cancelled';
END
$$;

-- Cancel those of these runs that are pending. The answer is JSON: how many that were.
CREATE OR REPLACE FUNCTION clear(of_docket bigint, at bigint, ids text[]) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
DECLARE
    now bigint := time_of(at);
    cleared bigint := 0;
    parents text[];
    each text;
    pending run;
BEGIN
    PERFORM begin_telling(of_docket);
    PERFORM lock_keys(of_docket, ARRAY(
        SELECT COALESCE(held.key, held.id) FROM unnest(ids) AS asked (id) CROSS JOIN LATERAL (
            SELECT key, run.id FROM run WHERE docket = of_docket AND run.id = asked.id OFFSET 0
        ) AS held
    ));
    parents := ARRAY(
        SELECT asked.id FROM unnest(ids) AS asked (id) CROSS JOIN LATERAL (
            SELECT FROM run WHERE docket = of_docket AND run.id = asked.id AND children > 0 OFFSET 0
        ) AS held
    );
    FOREACH each IN ARRAY parents LOOP
        -- Unless it fell with one that it hung on itself.
        SELECT * INTO pending FROM run
        WHERE docket = of_docket AND id = each AND state IN ('scheduled', 'queued', 'waiting') FOR UPDATE;
        IF FOUND THEN
            cleared := cleared + 1 + end_run(pending, now, 'cancelled', NULL, NULL);
            PERFORM pass_turn_on(pending.turn);
        END IF;
    END LOOP;
    cleared := cleared + cancel_all(of_docket, now, ids);
    PERFORM pass_turns_on(of_docket);
    RETURN '{"cleared":' || cleared || ',' || news(of_docket) || '}';
END
$$;

-- Cancel those of these runs that are pending and that none hang on, all of them in one go; how many that were.
CREATE OR REPLACE FUNCTION cancel_all(of_docket bigint, now bigint, ids text[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    pending text[];
    unkept text[];
    turns text[];
    events text;
    ended bigint;
BEGIN
    pending := ARRAY(
        SELECT held.id FROM unnest(ids) AS asked (id) CROSS JOIN LATERAL (
            SELECT run.id FROM run
            WHERE docket = of_docket AND run.id = asked.id AND children = 0
                AND state IN ('scheduled', 'queued', 'waiting')
            FOR UPDATE
        ) AS held
    );
    WITH gone AS (
        DELETE FROM run WHERE docket = of_docket AND id = ANY (pending) RETURNING run.*
    ), kept AS (
        INSERT INTO ended (
            docket, id, key, task, state, queue, priority, due, created, attempt, epoch, crashes, crash_limit, tribe,
            weight, limits, headers, worker, started, finished, expires, keep_completed, keep_failed, keep_cancelled,
            keep_archived, keep_most, after_failure, children, failures, payload
        )
        SELECT docket, id, key, task, 'cancelled', queue, priority, due, created, attempt, epoch + 1, crashes,
            crash_limit, tribe, weight, limits, headers, worker, started, now,
            now + COALESCE(keep_archived, 0) + keep_cancelled, keep_completed, keep_failed, keep_cancelled,
            keep_archived, keep_most, after_failure, children, failures, payload
        FROM gone WHERE COALESCE(keep_archived, 0) + keep_cancelled > 0
    )
    SELECT COUNT(*), array_agg(turn) FILTER (WHERE turn IS NOT NULL),
        array_agg(id) FILTER (WHERE COALESCE(keep_archived, 0) + keep_cancelled <= 0),
        CASE WHEN is_telling() THEN string_agg(',' || jsonb_build_object(
            'kind', 'state', 'id', id, 'key', COALESCE(key, id), 'state', 'cancelled', 'finished', now
        )::text, '') END
    INTO ended, turns, unkept, events FROM gone;
    IF unkept IS NOT NULL THEN
        DELETE FROM error WHERE docket = of_docket AND run = ANY (unkept);
        DELETE FROM edge WHERE docket = of_docket AND child = ANY (unkept);
    END IF;
    IF events IS NOT NULL THEN
        PERFORM set_config('dovetail.told', current_setting('dovetail.told') || events, true);
    END IF;
    PERFORM pass_turn_on(turn) FROM unnest(turns) AS turn;
    RETURN ended;
END
$$;

-- Each report is {key, id, epoch, increment, total, message, clear}. The answer is JSON: whether each was taken.
CREATE OR REPLACE FUNCTION report(of_docket bigint, at bigint, reports jsonb) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
DECLARE
    now bigint := time_of(at);
    answers boolean[] := '{}';
    each record;
    told run;
    heard boolean := is_heard(of_docket, 'p');
BEGIN
    PERFORM begin_telling(of_docket);
    FOR each IN SELECT * FROM jsonb_to_recordset(reports) AS one (
        key text, id text, epoch bigint, increment bigint, total bigint, message text, clear boolean
    ) LOOP
        UPDATE run SET
            progress = COALESCE(progress, 0) + each.increment, total = COALESCE(each.total, run.total, 100),
            message = CASE WHEN each.clear THEN NULL ELSE COALESCE(each.message, run.message) END, reported = now
        WHERE docket = of_docket AND id = COALESCE(each.id, newest_of_key(of_docket, each.key)) AND state = 'running'
            AND COALESCE(run.key, run.id) = each.key AND (each.epoch IS NULL OR run.epoch = each.epoch)
        RETURNING * INTO told;
        answers := answers || FOUND;
        IF FOUND AND heard THEN
            PERFORM tell(jsonb_build_object(
                'kind', 'progress', 'id', told.id, 'key', each.key,
                'progress', jsonb_build_array(told.progress, told.total, told.message, now)
            ));
        END IF;
    END LOOP;
    RETURN '{"answers":' || to_json(answers) || ',' || news(of_docket) || '}';
END
$$;

CREATE OR REPLACE FUNCTION newest_of_key(of_docket bigint, of_key text) RETURNS text LANGUAGE sql AS $$
    SELECT id FROM (
        SELECT id, created FROM called(of_docket, of_key)
        UNION ALL
        SELECT id, created FROM run WHERE docket = of_docket AND id = of_key AND key IS NULL
    ) AS held
    ORDER BY created DESC, id DESC LIMIT 1
$$;

-- Each revival is {id, start, size}: new arguments if there is a size. The answer is JSON: whether each went back.
CREATE OR REPLACE FUNCTION revive(of_docket bigint, at bigint, revivals jsonb, payloads bytea) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
DECLARE
    now bigint := time_of(at);
    answers boolean[] := '{}';
    revival jsonb;
    keys text[];
    have_children boolean;
    done jsonb; -- the ids of those that went back together
BEGIN
    PERFORM begin_telling(of_docket);
    SELECT array_agg(COALESCE(over.key, over.id)), bool_or(over.children > 0) INTO keys, have_children
    FROM jsonb_array_elements(revivals) AS each CROSS JOIN LATERAL (
        SELECT key, id, children FROM ended WHERE docket = of_docket AND id = each->>'id'
        UNION ALL SELECT key, id, children FROM archive WHERE docket = of_docket AND id = each->>'id' OFFSET 0
    ) AS over;
    -- All at once and in one order, so that two who revive the same do not wait in a circle. Dependents may come back too,
    -- any number of them: then all keys are locked, since the server's lock table is small.
    IF have_children THEN
        PERFORM lock_all_keys(of_docket);
    ELSE
        PERFORM lock_keys(of_docket, keys);
    END IF;
    done := to_jsonb(revive_all(of_docket, now, ARRAY(
        SELECT each->>'id' FROM jsonb_array_elements(revivals) AS each WHERE NOT each ? 'size'
    )));
    FOR revival IN SELECT * FROM jsonb_array_elements(revivals) LOOP
        answers := answers || ((NOT revival ? 'size' AND done ? (revival->>'id')) OR revive_one(
            of_docket, now, revival->>'id',
            CASE WHEN revival ? 'size' THEN substr(payloads, (revival->>'start')::integer, (revival->>'size')::integer) END,
            COALESCE(have_children, false)
        ));
    END LOOP;
    RETURN '{"answers":' || to_json(answers) || ',' || news(of_docket) || '}';
END
$$;

-- Put back to work, all in one go, those of these runs that nothing can stand in the way of: they are not in a group, wait
-- for none, none hang on them, and nobody else has their key. Their ids.
CREATE OR REPLACE FUNCTION revive_all(of_docket bigint, now bigint, ids text[]) RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    plain text[];
BEGIN
    plain := ARRAY(
        SELECT id FROM (
            SELECT over.id, over.key, COUNT(*) OVER (PARTITION BY COALESCE(over.key, over.id)) AS namesakes
            FROM unnest(ids) AS asked (id) CROSS JOIN LATERAL (
                SELECT ended.id, ended.key FROM ended
                WHERE docket = of_docket AND ended.id = asked.id AND expires + 0 > now AND children = 0 AND tribe IS NULL
                FOR UPDATE
            ) AS over
        ) AS kept
        WHERE namesakes = 1
            AND NOT EXISTS (SELECT FROM edge WHERE docket = of_docket AND child = kept.id OFFSET 0)
            AND NOT EXISTS (SELECT FROM called(of_docket, COALESCE(kept.key, kept.id)) OFFSET 0)
            AND NOT EXISTS (SELECT FROM run WHERE docket = of_docket AND run.id = kept.key AND run.key IS NULL OFFSET 0)
    );
    IF plain = '{}' THEN
        RETURN plain;
    END IF;
    WITH was AS (
        DELETE FROM ended WHERE docket = of_docket AND id = ANY (plain) RETURNING ended.*
    )
    INSERT INTO run (
        docket, id, key, task, queue, priority, state, due, created, attempt, epoch, crash_limit, place, keep_completed,
        keep_failed, keep_cancelled, keep_archived, keep_most, weight, limits, headers, after_failure, failures, payload
    )
    SELECT of_docket, id, key, task, queue, priority, 'queued', now, created, 1, epoch + 1, crash_limit,
        place_of(of_docket, queue, NULL, NULL), keep_completed, keep_failed, keep_cancelled, keep_archived, keep_most,
        weight, limits, headers, after_failure, failures, payload
    FROM was;
    PERFORM note_work();
    IF is_telling() THEN
        PERFORM tell_state(id, key, 'queued', now) FROM run WHERE docket = of_docket AND id = ANY (plain);
    END IF;
    RETURN plain;
END
$$;

CREATE OR REPLACE FUNCTION revive_one(
    of_docket bigint, now bigint, run_id text, new_payload bytea, keys_locked boolean
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    revived text[] := ARRAY[run_id];
    parent_id text;
    child ended;
    other text;
BEGIN
    PERFORM bring_back(of_docket, ARRAY(
        SELECT id FROM archive WHERE docket = of_docket AND id = run_id AND expires + 0 > now
    ));
    IF NOT EXISTS (SELECT FROM ended WHERE docket = of_docket AND id = run_id AND expires + 0 > now) THEN
        RETURN false;
    END IF;
    IF NOT back_to_work(of_docket, now, run_id, new_payload, keys_locked) THEN
        RETURN false;
    END IF;
    WHILE cardinality(revived) > 0 LOOP
        parent_id := revived[cardinality(revived)];
        revived := revived[:cardinality(revived) - 1];
        PERFORM bring_back(of_docket, ARRAY(
            SELECT id FROM archive WHERE docket = of_docket AND doomed_by = parent_id AND id = ANY (ARRAY(
                SELECT edge.child FROM edge WHERE docket = of_docket AND parent = parent_id
            )) ORDER BY id
        ));
        FOR child IN
            SELECT fallen.* FROM (
                SELECT edge.child FROM edge WHERE docket = of_docket AND parent = parent_id ORDER BY edge.child
            ) AS hanging CROSS JOIN LATERAL (
                SELECT * FROM ended
                WHERE docket = of_docket AND id = hanging.child AND state = 'cancelled' AND doomed_by = parent_id
                FOR UPDATE
            ) AS fallen
        LOOP
            -- Unless another parent still keeps it from running.
            other := NULL;
            IF NOT child.after_failure THEN
                SELECT parent INTO other FROM edge WHERE docket = of_docket AND edge.child = child.id AND EXISTS (
                    SELECT FROM ended
                    WHERE docket = of_docket AND id = edge.parent AND state IN ('failed', 'cancelled')
                    UNION ALL
                    SELECT FROM archive
                    WHERE docket = of_docket AND id = edge.parent AND state IN ('failed', 'cancelled') OFFSET 0
                ) LIMIT 1;
            END IF;
            IF other IS NOT NULL THEN
                UPDATE ended SET doomed_by = other WHERE docket = of_docket AND id = child.id;
            ELSIF back_to_work(of_docket, now, child.id, NULL, keys_locked) THEN
                revived := revived || child.id;
            END IF;
        END LOOP;
    END LOOP;
    RETURN true;
END
$$;

-- Put a run that is over back to work with a clean slate, unless its key is taken.
CREATE OR REPLACE FUNCTION back_to_work(
    of_docket bigint, now bigint, run_id text, new_payload bytea, keys_locked boolean
) RETURNS boolean LANGUAGE plpgsql AS $$
DECLARE
    was ended;
    waiting integer;
    new_state text;
BEGIN
    SELECT * INTO was FROM ended WHERE docket = of_docket AND id = run_id;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF NOT keys_locked THEN
        PERFORM lock_keys(of_docket, ARRAY[COALESCE(was.key, was.id)]);
    END IF;
    SELECT * INTO was FROM ended WHERE docket = of_docket AND id = run_id FOR UPDATE;
    IF NOT FOUND OR EXISTS (SELECT FROM live_of_key(of_docket, COALESCE(was.key, was.id))) THEN
        RETURN false;
    END IF;
    SELECT COUNT(*) INTO waiting FROM edge WHERE docket = of_docket AND child = run_id
        AND EXISTS (SELECT FROM run WHERE docket = of_docket AND id = edge.parent OFFSET 0);
    IF waiting > 0 THEN
        -- It waits again for those of its parents that are not over.
        UPDATE edge SET met = NOT EXISTS (SELECT FROM run WHERE docket = of_docket AND id = edge.parent OFFSET 0)
        WHERE docket = of_docket AND child = run_id;
    END IF;
    new_state := CASE WHEN waiting > 0 THEN 'waiting' ELSE 'queued' END;
    DELETE FROM ended WHERE docket = of_docket AND id = run_id;
    INSERT INTO run (
        docket, id, key, task, queue, priority, state, due, created, attempt, epoch, crash_limit, place, keep_completed,
        keep_failed, keep_cancelled, keep_archived, keep_most, tribe, weight, limits, headers, waits_for, after_failure, wants_results,
        children, failures, payload
    ) VALUES (
        of_docket, was.id, was.key, was.task, was.queue, was.priority, new_state, now, was.created, 1, was.epoch + 1,
        was.crash_limit,
        CASE WHEN waiting > 0 THEN 0 ELSE place_of(of_docket, was.queue, was.tribe, was.weight) END,
        was.keep_completed, was.keep_failed, was.keep_cancelled, was.keep_archived, was.keep_most, was.tribe, was.weight, was.limits, was.headers, waiting,
        was.after_failure, was.wants_results, was.children, was.failures, COALESCE(new_payload, was.payload)
    );
    IF waiting = 0 THEN
        PERFORM note_work();
    END IF;
    PERFORM tell_state(was.id, was.key, new_state, now);
    RETURN true;
END
$$;

-- Each hold is an object of its columns; `identity` and `value` are in hexadecimal. The answer is news.
CREATE OR REPLACE FUNCTION lay_holds(of_docket bigint, at bigint, holds jsonb) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
DECLARE
    changed bigint;
BEGIN
    PERFORM begin_telling(of_docket);
    INSERT INTO hold AS laid (
        docket, identity, kind, queue, task, parameter, operator, value, reason, owner, since, until
    )
    SELECT DISTINCT ON (each.identity) of_docket, decode(each.identity, 'hex'), each.kind, each.queue, each.task,
        each.parameter, each.operator, decode(each.value, 'hex'), each.reason, each.owner,
        COALESCE(each.since, time_of(at)), each.until
    FROM jsonb_array_elements(holds) WITH ORDINALITY AS one (value, number), jsonb_to_record(one.value) AS each (
        identity text, kind text, queue text, task text, parameter text, operator text, value text, reason text,
        owner text, since bigint, until bigint
    )
    ORDER BY each.identity, one.number DESC
    ON CONFLICT (docket, identity)
    DO UPDATE SET reason = excluded.reason, owner = excluded.owner, until = excluded.until
    WHERE laid.reason IS DISTINCT FROM excluded.reason OR laid.owner IS DISTINCT FROM excluded.owner
        OR laid.until IS DISTINCT FROM excluded.until;
    GET DIAGNOSTICS changed = ROW_COUNT;
    PERFORM holds_changed(of_docket, changed);
    RETURN '{' || news(of_docket) || '}';
END
$$;

CREATE OR REPLACE FUNCTION lift_holds(of_docket bigint, identities jsonb) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
DECLARE
    changed bigint;
BEGIN
    PERFORM begin_telling(of_docket);
    DELETE FROM hold WHERE docket = of_docket AND identity IN (
        SELECT decode(each, 'hex') FROM jsonb_array_elements_text(identities) AS each
    );
    GET DIAGNOSTICS changed = ROW_COUNT;
    PERFORM holds_changed(of_docket, changed);
    RETURN '{' || news(of_docket) || '}';
END
$$;

CREATE OR REPLACE FUNCTION holds_changed(of_docket bigint, changed bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF changed > 0 THEN
        UPDATE docket SET holds = holds + 1 WHERE id = of_docket;
        PERFORM note_work();
        PERFORM tell('{"kind": "holds"}');
    END IF;
END
$$;
