-- Claiming: what lapsed, what became due, what is ready, and what limits allow.

-- The last row is no claim: its epoch is how long there is no reason to look again, NULL for ever; its key is news; its
-- crashes are the leases that had lapsed, its task is the tasks that were poisoned, as JSON, NULL for none; and from queue
-- (those that had work, as JSON), priority, headers (the place), due and tribe (the id) of it a later claim may go on as
-- `beyond`, which passes over what comes before that in claim order. That is for times when a long transaction of
-- somebody's keeps dead rows from being removed: see shortcut.py.
CREATE OR REPLACE FUNCTION claim(
    of_docket bigint, at bigint, by_worker text, want bigint, of_queues text[], lease_for bigint,
    beyond jsonb DEFAULT NULL, ageing bigint DEFAULT NULL
) RETURNS TABLE (
    id text, epoch bigint, key text, task text, payload bytea, attempt integer, due bigint, queue text, priority bigint,
    tribe text, crashes integer, headers text, redelivered boolean, results text
) LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
#variable_conflict use_column
DECLARE
    now bigint := time_of(at);
    until bigint := now + lease_for;
    paused text[] := ARRAY(
        SELECT hold.queue FROM hold WHERE docket = of_docket AND kind = 'pause' AND (until IS NULL OR until > now)
    );
    bound bigint := (SELECT lapse FROM docket WHERE docket.id = of_docket);
    claimed bigint := 0;
    brought bigint;
    looked_at_all boolean := true;
    promoted bigint;
    promoted_groups boolean;
    picked tid[];
    limited boolean;
    ready_queues text[];
    examined bigint := 0;
    holds_limits boolean := false; -- or something else that one who has locked limits may wait for
    opened_some boolean;
    started_ids text[];
    lapses integer := 0;
    poisoned text[] := '{}';
    parked_alike bigint;
    many_alike boolean := true; -- so far: it pays to look for them
    top_place double precision;
    as_picked boolean; -- in an order that is not that of their places
    last_picked run;
    -- Without `beyond`, what comes before everything.
    beyond_priority bigint := COALESCE((beyond->>'priority')::bigint, -9223372036854775808);
    beyond_place double precision := COALESCE((beyond->>'place')::double precision, '-Infinity');
    beyond_due bigint := COALESCE((beyond->>'due')::bigint, -9223372036854775808);
    beyond_id text := COALESCE(beyond->>'id', '');
BEGIN
    PERFORM begin_telling(of_docket);
    IF bound IS NULL OR bound <= now THEN
        SELECT ids, all_seen, seen_any, number, fatal INTO started_ids, looked_at_all, holds_limits, lapses, poisoned
        FROM take_over(of_docket, now, of_queues, paused, want);
        RETURN QUERY SELECT * FROM start_runs(of_docket, now, by_worker, until, started_ids, true);
        GET DIAGNOSTICS claimed = ROW_COUNT;
        -- Not waited for: another claimer may have this row and wait for limits. The old bound holds as well.
        bound := LEAST(until, now + 10000000, (SELECT MIN(lease) FROM running(of_docket)));
        UPDATE docket SET lapse = bound
        WHERE docket.id = (SELECT one.id FROM docket AS one WHERE one.id = of_docket FOR UPDATE SKIP LOCKED)
            AND lapse IS DISTINCT FROM bound;
    ELSIF until < bound THEN
        UPDATE docket SET lapse = until WHERE docket.id = of_docket AND lapse > until;
    END IF;
    opened_some := open_windows(of_docket, now, 100);
    SELECT number, has_groups INTO promoted, promoted_groups FROM promote(of_docket, now, 1000);
    holds_limits := holds_limits OR opened_some OR promoted_groups;
    looked_at_all := looked_at_all AND promoted < 1000;
    WHILE claimed < want LOOP
        ready_queues := ARRAY(
            SELECT name FROM queues_ready(
                of_docket, CASE WHEN beyond IS NULL THEN of_queues ELSE ARRAY(SELECT jsonb_array_elements_text(beyond->'queues')) END
            ) AS name WHERE name <> ALL (paused)
        );
        EXIT WHEN cardinality(ready_queues) = 0;
        IF examined > 500 THEN
            looked_at_all := false;
            EXIT;
        END IF;
        IF beyond IS NOT NULL AND cardinality(ready_queues) = 1 THEN
            SELECT array_agg(address), bool_or(has_limits), MAX(at_place) INTO picked, limited, top_place FROM (
                SELECT run.ctid AS address, limits IS NOT NULL AS has_limits, run.place AS at_place FROM run
                WHERE docket = of_docket AND run.queue = ready_queues[1] AND state = 'queued'
                    AND (run.priority, run.place, run.due, run.id)
                        > (beyond_priority, beyond_place, beyond_due, beyond_id)
                ORDER BY run.priority, run.place, run.due, run.id LIMIT want - claimed FOR UPDATE SKIP LOCKED
            ) AS ready;
        ELSIF ageing IS NOT NULL THEN
            SELECT places, some_limited, max_place INTO picked, limited, top_place
            FROM pick_aged(of_docket, now, ready_queues, want - claimed, ageing);
        ELSIF cardinality(ready_queues) = 1 THEN
            SELECT array_agg(address), bool_or(has_limits), MAX(at_place) INTO picked, limited, top_place FROM (
                SELECT run.ctid AS address, limits IS NOT NULL AS has_limits, run.place AS at_place FROM run
                WHERE docket = of_docket AND run.queue = ready_queues[1] AND state = 'queued'
                ORDER BY run.priority, run.place, run.due, run.id LIMIT want - claimed FOR UPDATE SKIP LOCKED
            ) AS ready;
        ELSE
            SELECT places, some_limited, max_place INTO picked, limited, top_place
            FROM pick_across(
                of_docket, ready_queues, want - claimed, beyond_priority, beyond_place, beyond_due, beyond_id
            );
        END IF;
        EXIT WHEN picked IS NULL;
        as_picked := ageing IS NOT NULL OR (cardinality(ready_queues) > 1 AND top_place > 0);
        SELECT * INTO last_picked FROM run WHERE run.ctid = picked[cardinality(picked)];
        IF limited OR is_telling() OR as_picked THEN
            SELECT ids, parked INTO started_ids, parked_alike
            FROM admit(of_docket, now, picked, holds_limits, as_picked, many_alike);
            IF started_ids IS NULL THEN
                looked_at_all := false; -- somebody is at those limits: come again
                EXIT;
            END IF;
            holds_limits := holds_limits OR limited OR top_place > 0;
            many_alike := many_alike AND (parked_alike IS NULL OR parked_alike >= 20);
            examined := examined + COALESCE(parked_alike, 0);
            PERFORM note_claimed(of_docket, each.queue, each.top) FROM (
                SELECT run.queue, MAX(run.place) AS top FROM run
                WHERE docket = of_docket AND run.id = ANY (started_ids) GROUP BY run.queue ORDER BY run.queue OFFSET 0
            ) AS each WHERE each.top > 0;
            IF NOT as_picked THEN
                RETURN QUERY SELECT * FROM start_runs(of_docket, now, by_worker, until, started_ids, false);
            ELSE
                RETURN QUERY SELECT * FROM start_runs(of_docket, now, by_worker, until, started_ids, false) AS started
                ORDER BY array_position(started_ids, started.id);
            END IF;
        ELSE
            IF top_place > 0 THEN
                PERFORM note_claimed(of_docket, each.queue, each.top) FROM (
                    SELECT run.queue, MAX(run.place) AS top FROM run WHERE run.ctid = ANY (picked)
                    GROUP BY run.queue ORDER BY run.queue OFFSET 0
                ) AS each;
                holds_limits := true;
            END IF;
            RETURN QUERY WITH started AS (
                UPDATE run SET state = 'running', epoch = run.epoch + 1, worker = by_worker, lease = until,
                    started = now, turn = NULL
                WHERE run.ctid = ANY (picked)
                RETURNING run.id, run.epoch, run.key, run.task, run.payload, run.attempt, run.due, run.queue,
                    run.priority, run.tribe, run.crashes, run.headers, run.crashes > 0, run.place, run.wants_results
            )
            SELECT started.id, started.epoch, started.key, started.task, started.payload, started.attempt, started.due,
                started.queue, started.priority, started.tribe, started.crashes, started.headers, started.crashes > 0,
                CASE WHEN started.wants_results THEN results_for(of_docket, now, started.id) END
            FROM started ORDER BY started.priority, started.place, started.due, started.id;
        END IF;
        GET DIAGNOSTICS brought = ROW_COUNT;
        claimed := claimed + brought;
        examined := examined + cardinality(picked);
        EXIT WHEN NOT limited AND cardinality(ready_queues) = 1 AND ageing IS NULL; -- there was no more
    END LOOP;
    RETURN QUERY SELECT NULL::text, CASE
        WHEN claimed >= want THEN NULL
        WHEN NOT looked_at_all OR has_work() THEN 0
        ELSE time_until_news(of_docket, now, of_queues, paused) END,
        news(of_docket), CASE WHEN cardinality(poisoned) > 0 THEN array_to_json(poisoned)::text END, NULL::bytea,
        NULL::integer, last_picked.due, CASE WHEN claimed >= want AND NOT as_picked THEN array_to_json(ready_queues)::text END,
        last_picked.priority, last_picked.id, lapses, last_picked.place::text, NULL::boolean, NULL::text;
END
$$;


-- Lease these runs, which are locked, and hand them over in their order.
CREATE OR REPLACE FUNCTION start_runs(
    of_docket bigint, now bigint, by_worker text, until bigint, ids text[], is_take_over boolean
) RETURNS TABLE (
    id text, epoch bigint, key text, task text, payload bytea, attempt integer, due bigint, queue text, priority bigint,
    tribe text, crashes integer, headers text, redelivered boolean, results text
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH started AS (
        UPDATE run SET state = 'running', epoch = run.epoch + 1, worker = by_worker, lease = until, started = now,
            turn = NULL, crashes = run.crashes + is_take_over::integer,
            progress = NULL, total = NULL, message = NULL, reported = NULL
        WHERE docket = of_docket AND run.id = ANY (ids)
        RETURNING run.*
    )
    SELECT started.id, started.epoch, started.key, started.task, started.payload, started.attempt, started.due,
        started.queue, started.priority, started.tribe, started.crashes, started.headers, started.crashes > 0,
        CASE WHEN started.wants_results THEN results_for(of_docket, now, started.id) END
    FROM started ORDER BY started.priority, started.place, started.due, started.id;
    IF is_telling() THEN
        PERFORM tell(jsonb_build_object(
            'kind', 'state', 'id', run.id, 'key', COALESCE(run.key, run.id), 'state', 'running', 'worker', by_worker,
            'started', now
        )) FROM run WHERE docket = of_docket AND run.id = ANY (ids);
    END IF;
END
$$;

-- What the parents of a run have returned, as JSON: [[id, task, result in base64], ...]. Of what lies apart only the length is
-- looked at, so a large result is left where it is at no cost. Past its retention a run is kept for its children alone, and
-- its result can be had in no other way, whatever its size.
CREATE OR REPLACE FUNCTION results_for(of_docket bigint, now bigint, run_id text) RETURNS text LANGUAGE plpgsql STABLE AS $$
BEGIN
    RETURN (
        SELECT json_agg(json_build_array(parent.id, parent.task, translate(encode(parent.result, 'base64'), E'\n', '')))
        FROM edge CROSS JOIN LATERAL (
            SELECT ended.id, ended.task, ended.result FROM ended
            WHERE docket = of_docket AND ended.id = edge.parent AND ended.state = 'completed' AND ended.error IS NULL
                AND (COALESCE(octet_length(ended.result), 0) <= 16384 OR ended.expires + 0 <= now) OFFSET 0
        ) AS parent
        WHERE docket = of_docket AND child = run_id
    );
END
$$;

-- The queues that have something ready, one step of the index each.
CREATE OR REPLACE FUNCTION queues_ready(of_docket bigint, of_queues text[]) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    name text := '';
BEGIN
    IF cardinality(of_queues) > 0 THEN
        RETURN QUERY SELECT DISTINCT each FROM unnest(of_queues) AS each;
        RETURN;
    END IF;
    LOOP
        SELECT queue INTO name FROM run WHERE docket = of_docket AND state = 'queued' AND queue > name
        ORDER BY docket, queue LIMIT 1;
        EXIT WHEN name IS NULL;
        RETURN NEXT name;
    END LOOP;
END
$$;

-- The first runs of several queues, always the first of one of them, without those before a place in claim order. A place
-- in line means nothing beyond its queue, so that between queues the due time decides, then the id: a run is as late as the
-- latest of those before it. Those that another claimer holds are passed over, so more are looked at than are wanted.
CREATE OR REPLACE FUNCTION pick_across(
    of_docket bigint, of_queues text[], want bigint, beyond_priority bigint, beyond_place double precision,
    beyond_due bigint, beyond_id text
) RETURNS TABLE (places tid[], some_limited boolean, max_place double precision) LANGUAGE plpgsql AS $$
DECLARE
    depth bigint := want;
    seen bigint;
    has_groups boolean := EXISTS (SELECT FROM share WHERE docket = of_docket); -- otherwise no run has a place
    ids text[];
BEGIN
    FOR round IN 1..4 LOOP
        SELECT COUNT(*) INTO seen FROM (
            SELECT FROM unnest(of_queues) AS name CROSS JOIN LATERAL (
                SELECT FROM run WHERE docket = of_docket AND queue = name AND state = 'queued'
                    AND (priority, place, due, id) > (beyond_priority, beyond_place, beyond_due, beyond_id)
                LIMIT depth
            ) AS first LIMIT depth
        ) AS ready;
        ids := CASE WHEN NOT has_groups THEN ARRAY(
            SELECT first.id FROM unnest(of_queues) AS name CROSS JOIN LATERAL (
                SELECT id, priority, place, due FROM run
                WHERE docket = of_docket AND queue = name AND state = 'queued'
                    AND (priority, place, due, id) > (beyond_priority, beyond_place, beyond_due, beyond_id)
                ORDER BY priority, place, due, id LIMIT depth
            ) AS first
            ORDER BY first.priority, first.place, first.due, first.id LIMIT depth
        ) ELSE ARRAY(
            SELECT ready.id FROM (
                SELECT latest.*, MAX(latest.id) FILTER (WHERE latest.due = latest.latest_due) OVER (
                    PARTITION BY latest.name, latest.priority, latest.latest_due ORDER BY latest.place, latest.due, latest.id
                ) AS latest_id
                FROM (
                    SELECT name, first.*, MAX(first.due) OVER (
                        PARTITION BY name, first.priority ORDER BY first.place, first.due, first.id
                    ) AS latest_due
                    FROM unnest(of_queues) AS name CROSS JOIN LATERAL (
                        SELECT id, priority, place, due FROM run
                        WHERE docket = of_docket AND queue = name AND state = 'queued'
                            AND (priority, place, due, id) > (beyond_priority, beyond_place, beyond_due, beyond_id)
                        ORDER BY priority, place, due, id LIMIT depth
                    ) AS first
                ) AS latest
            ) AS ready
            ORDER BY ready.priority, ready.latest_due, ready.latest_id, ready.place, ready.due, ready.id LIMIT depth
        ) END;
        SELECT array_agg(locked.address ORDER BY locked.number), bool_or(locked.has_limits), MAX(locked.place)
        INTO places, some_limited, max_place FROM (
            SELECT run.ctid AS address, run.state, run.place, run.limits IS NOT NULL AS has_limits, pick.number
            FROM unnest(ids) WITH ORDINALITY AS pick (id, number)
            JOIN run ON run.docket = of_docket AND run.id = pick.id
            ORDER BY pick.number LIMIT want
            FOR UPDATE OF run SKIP LOCKED
        ) AS locked WHERE locked.state = 'queued';
        EXIT WHEN places IS NOT NULL OR seen < depth;
        depth := depth * 4;
    END LOOP;
    RETURN NEXT;
END
$$;

-- The first runs of some queues when a priority counts as one more for each `ageing` that a run has been due. Each priority
-- of a queue is a line, found by one step of the index; within it the order stays, so none counts as higher than the one
-- before it.
CREATE OR REPLACE FUNCTION pick_aged(of_docket bigint, now bigint, of_queues text[], want bigint, ageing bigint)
RETURNS TABLE (places tid[], some_limited boolean, max_place double precision) LANGUAGE plpgsql AS $$
DECLARE
    name text;
    level bigint;
    line_queues text[] := '{}';
    line_levels bigint[] := '{}';
    ids text[];
    candidate record;
    depth bigint := want;
BEGIN
    some_limited := false;
    max_place := 0;
    FOREACH name IN ARRAY of_queues LOOP
        level := -9223372036854775808;
        FOR step IN 1..64 LOOP
            SELECT priority INTO level FROM run
            WHERE docket = of_docket AND queue = name AND state = 'queued' AND priority > level
            ORDER BY docket, queue, priority LIMIT 1;
            EXIT WHEN level IS NULL;
            line_queues := line_queues || name;
            line_levels := line_levels || level;
        END LOOP;
    END LOOP;
    -- Those that another claimer holds are passed over, so more are looked at than are wanted.
    FOR round IN 1..4 LOOP
        ids := ARRAY(
            SELECT ready.id FROM (
                SELECT latest.*, MAX(latest.id) FILTER (WHERE latest.due = latest.latest_due) OVER (
                    PARTITION BY latest.queue, latest.counts_as, latest.latest_due
                    ORDER BY latest.place, latest.due, latest.id
                ) AS latest_id
                FROM (
                    SELECT aged.*, MAX(aged.due) OVER (
                        PARTITION BY aged.queue, aged.counts_as ORDER BY aged.place, aged.due, aged.id
                    ) AS latest_due
                    FROM (
                        SELECT line.queue, first.*, MAX(line.level - GREATEST(now - first.due, 0) / ageing)
                            OVER (PARTITION BY line.number ORDER BY first.place, first.due, first.id) AS counts_as
                        FROM unnest(line_queues, line_levels) WITH ORDINALITY AS line (queue, level, number)
                        CROSS JOIN LATERAL (
                            SELECT run.id, run.place, run.due FROM run
                            WHERE docket = of_docket AND run.queue = line.queue AND state = 'queued'
                                AND priority = line.level
                            ORDER BY run.place, run.due, run.id LIMIT depth
                        ) AS first
                    ) AS aged
                ) AS latest
            ) AS ready
            ORDER BY ready.counts_as, ready.latest_due, ready.latest_id, ready.place, ready.due, ready.id LIMIT depth
        );
        FOR n IN 1..cardinality(ids) LOOP
            SELECT ctid, state, place, limits IS NOT NULL AS is_limited INTO candidate FROM run
            WHERE docket = of_docket AND id = ids[n] FOR UPDATE SKIP LOCKED;
            CONTINUE WHEN candidate.state IS DISTINCT FROM 'queued';
            places := places || candidate.ctid;
            some_limited := some_limited OR candidate.is_limited;
            max_place := GREATEST(max_place, candidate.place);
            EXIT WHEN cardinality(places) = want;
        END LOOP;
        EXIT WHEN places IS NOT NULL OR cardinality(ids) < depth;
        depth := depth * 4;
    END LOOP;
    RETURN NEXT;
END
$$;

-- Those of the runs that their limits allow to start, in claim order or as they were picked; the others are parked or
-- dropped. NULL if the limits are busy and locks are held already: to wait for more of them could be for ever. `parked` is
-- how many of those that come next were parked along with them; NULL if there was no reason to look for any.
CREATE OR REPLACE FUNCTION admit(
    of_docket bigint, now bigint, picked tid[], holds_limits boolean, as_picked boolean, parks_alike boolean
) RETURNS TABLE (ids text[], parked bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    keys text[];
    candidate run;
    no jsonb;
    admitted text[] := '{}';
    windowed jsonb := '[]';
    last_parked run;
    full_limit text;
BEGIN
    SELECT array_agg(DISTINCT each) INTO keys FROM run CROSS JOIN LATERAL unnest(limit_keys(limits) || turn) AS each
    WHERE run.ctid = ANY (picked) AND limits IS NOT NULL AND each IS NOT NULL;
    IF keys IS NULL THEN
        NULL; -- none of them has limits
    ELSIF NOT holds_limits THEN
        PERFORM lock_limits(of_docket, keys);
    ELSIF NOT try_lock_limits(of_docket, keys) THEN
        RETURN QUERY SELECT NULL::text[], NULL::bigint;
        RETURN;
    END IF;
    FOR candidate IN
        SELECT * FROM run WHERE ctid = ANY (picked)
        ORDER BY CASE WHEN as_picked THEN array_position(picked, ctid) END, priority, place, due, id
    LOOP
        no := CASE WHEN candidate.limits IS NOT NULL THEN refusal(of_docket, now, candidate.limits) END;
        IF no IS NULL THEN
            admitted := admitted || candidate.id;
            IF candidate.limits IS NOT NULL THEN
                PERFORM take_room(of_docket, now, candidate.id, candidate.limits);
                windowed := windowed || candidate.limits;
            END IF;
        ELSE
            PERFORM refuse(candidate, now, no);
            IF NOT (no->>'drop')::boolean THEN
                last_parked := candidate;
                full_limit := no->>'key';
            END IF;
        END IF;
    END LOOP;
    IF windowed <> '[]' THEN
        PERFORM expect_openings(of_docket, now, (SELECT jsonb_agg(DISTINCT each) FROM jsonb_array_elements(windowed) AS each));
    END IF;
    RETURN QUERY SELECT admitted, CASE WHEN parks_alike AND full_limit IS NOT NULL THEN
        park_alike(last_parked, full_limit, admitted) END;
END
$$;

-- Park what comes next in the queue of a run that was parked, and has the same limits: it would be refused as well, unless
-- it was admitted before. A backlog on one limit is out of the way of others after a few claims.
CREATE OR REPLACE FUNCTION park_alike(parked run, full_limit text, admitted text[]) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    alike text[] := ARRAY(
        SELECT id FROM run
        WHERE docket = parked.docket AND state = 'queued' AND limits = parked.limits AND turn IS NULL AND id <> ALL (admitted)
            AND id = ANY (ARRAY(
                SELECT id FROM run WHERE docket = parked.docket AND queue = parked.queue AND state = 'queued'
                ORDER BY priority, place, due, id LIMIT 500
            ))
        FOR UPDATE SKIP LOCKED
    );
BEGIN
    UPDATE run SET state = 'scheduled', parked_on = full_limit WHERE docket = parked.docket AND id = ANY (alike);
    IF is_telling() THEN
        PERFORM tell_state(id, key, 'scheduled', due) FROM run WHERE docket = parked.docket AND id = ANY (alike);
    END IF;
    RETURN cardinality(alike);
END
$$;

CREATE OR REPLACE FUNCTION refuse(candidate run, now bigint, refused jsonb) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF (refused->>'drop')::boolean THEN
        PERFORM end_run(candidate, now, 'cancelled', dropped_text(refused->>'key'), NULL);
    ELSE
        UPDATE run SET state = 'scheduled', parked_on = refused->>'key', turn = NULL
        WHERE docket = candidate.docket AND id = candidate.id;
        IF refused ? 'opens' THEN
            PERFORM set_opening(candidate.docket, refused->>'key', (refused->>'opens')::bigint);
        END IF;
        PERFORM tell_state(candidate.id, candidate.key, 'scheduled', candidate.due);
    END IF;
    IF candidate.turn <> refused->>'key' THEN
        PERFORM wake_next(candidate.docket, candidate.turn);
    END IF;
END
$$;

-- Runs whose lease lapsed: the ids of those that go on here, up to `want`, and whether all were looked at. One that was
-- asked to stop, or has crashed too often, is ended. How many that is together, and the tasks of those that crashed.
CREATE OR REPLACE FUNCTION take_over(of_docket bigint, now bigint, of_queues text[], paused text[], want bigint)
RETURNS TABLE (ids text[], all_seen boolean, seen_any boolean, number integer, fatal text[]) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    lapsed run;
    first text[];
    ending text[];
    skipped boolean := false;
BEGIN
    ids := '{}';
    number := 0;
    fatal := '{}';
    all_seen := true;
    seen_any := false;
    SELECT array_agg(id), COALESCE(array_agg(id) FILTER (WHERE stop OR crashes + 1 >= crash_limit), '{}')
    INTO first, ending FROM (
        SELECT id, stop, crashes, crash_limit FROM running(of_docket)
        WHERE lease <= now AND queue <> ALL (paused) AND (cardinality(of_queues) = 0 OR queue = ANY (of_queues))
        ORDER BY lease, id LIMIT want + 500
    ) AS over_time;
    IF first IS NULL THEN
        RETURN NEXT;
        RETURN;
    END IF;
    -- Those that will end here give slots back. Their limits are locked before they are: one who finishes a run late
    -- locks in this order too.
    IF cardinality(ending) > 0 THEN
        PERFORM lock_slots(of_docket, ending);
    END IF;
    FOR lapsed IN
        SELECT * FROM run WHERE docket = of_docket AND id = ANY (first) AND worker IS NOT NULL AND lease <= now
        ORDER BY lease, id FOR UPDATE SKIP LOCKED
    LOOP
        IF (lapsed.stop OR lapsed.crashes + 1 >= lapsed.crash_limit) AND lapsed.id <> ALL (ending) THEN
            skipped := true; -- it came up since
        ELSIF lapsed.stop THEN
            number := number + 1;
            PERFORM end_run(lapsed, now, 'cancelled', NULL, NULL);
        ELSIF lapsed.crashes + 1 >= lapsed.crash_limit THEN
            number := number + 1;
            fatal := fatal || lapsed.task;
            lapsed.crashes := lapsed.crashes + 1;
            PERFORM poison(lapsed, now);
        ELSIF cardinality(ids) < want THEN
            number := number + 1;
            ids := ids || lapsed.id;
        END IF;
    END LOOP;
    all_seen := cardinality(first) < want + 500 AND NOT skipped;
    seen_any := true;
    RETURN NEXT;
END
$$;

CREATE OR REPLACE FUNCTION poison(lapsed run, now bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    said text := 'the run was started ' || lapsed.crashes || ' times, and each time its worker vanished without a word';
BEGIN
    PERFORM end_run(
        lapsed, now, 'failed', 'Poisoned: ' || said,
        jsonb_build_object('type', 'Poisoned', 'message', said, 'traceback', '')
    );
END
$$;

-- What has become due joins the ready order; how many did, and whether some belong to groups, whose places are locked now.
CREATE OR REPLACE FUNCTION promote(of_docket bigint, now bigint, at_most bigint)
RETURNS TABLE (number bigint, has_groups boolean) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    became_due tid[];
    each record;
BEGIN
    SELECT array_agg(address), bool_or(grouped) INTO became_due, has_groups FROM (
        SELECT ctid AS address, tribe IS NOT NULL AS grouped FROM run
        WHERE docket = of_docket AND state = 'scheduled' AND parked_on IS NULL AND due <= now
        ORDER BY due LIMIT at_most FOR UPDATE SKIP LOCKED
    ) AS first;
    number := COALESCE(cardinality(became_due), 0);
    has_groups := COALESCE(has_groups, false);
    RETURN NEXT;
    IF became_due IS NULL THEN
        RETURN;
    END IF;
    IF has_groups OR is_telling() THEN
        FOR each IN
            SELECT id, key, due FROM run WHERE ctid = ANY (became_due) ORDER BY due, id
        LOOP
            UPDATE run SET state = 'queued', place = place_of(docket, queue, tribe, weight)
            WHERE docket = of_docket AND id = each.id;
            PERFORM tell_state(each.id, each.key, 'queued', each.due);
        END LOOP;
    ELSE
        UPDATE run SET state = 'queued', place = COALESCE(
            (SELECT share.place FROM share WHERE share.docket = of_docket AND share.queue = run.queue AND share.tribe = ''), 0
        ) WHERE run.ctid = ANY (became_due);
    END IF;
END
$$;

-- How long until something known becomes due: a future run, a window that opens, a lease that lapses, a pause that ends.
CREATE OR REPLACE FUNCTION time_until_news(of_docket bigint, now bigint, of_queues text[], paused text[]) RETURNS bigint
LANGUAGE sql AS $$
    SELECT CASE WHEN moment IS NOT NULL THEN GREATEST(moment - now, 0) END FROM (SELECT LEAST(
        (SELECT due FROM run
         WHERE docket = of_docket AND state = 'scheduled' AND parked_on IS NULL AND due > now ORDER BY due LIMIT 1),
        (SELECT at FROM opening WHERE docket = of_docket ORDER BY at LIMIT 1),
        (SELECT MIN(until) FROM hold
         WHERE docket = of_docket AND kind = 'pause' AND until > now
            AND (cardinality(of_queues) = 0 OR queue = ANY (of_queues))),
        (SELECT MIN(lease) FROM running(of_docket)
         WHERE lease > now AND queue <> ALL (paused) AND (cardinality(of_queues) = 0 OR queue = ANY (of_queues)))
    ) AS moment) AS first
$$;
