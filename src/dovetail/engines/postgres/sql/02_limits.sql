-- Limits: how full they are, who waits for them, and whose turn is next. Whoever changes one holds its lock.

-- Put the first of those that wait for a limit among what may be claimed.
CREATE OR REPLACE FUNCTION wake_next(of_docket bigint, of_limit text, at_most bigint DEFAULT 1) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    woken bigint := 0;
    parked record;
BEGIN
    FOR parked IN
        SELECT id, key, due FROM run WHERE docket = of_docket AND parked_on = of_limit
        ORDER BY priority, place, due, id LIMIT at_most FOR UPDATE
    LOOP
        UPDATE run SET state = 'queued', parked_on = NULL, turn = of_limit WHERE docket = of_docket AND id = parked.id;
        PERFORM tell_state(parked.id, parked.key, 'queued', parked.due);
        woken := woken + 1;
    END LOOP;
    IF woken > 0 THEN
        PERFORM note_work();
    END IF;
    RETURN woken;
END
$$;

-- A woken run that goes without having started hands its turn to the next: once all of the batch are gone, since their
-- limits are locked together.
CREATE OR REPLACE FUNCTION pass_turn_on(turn text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF turn IS NOT NULL THEN
        PERFORM set_config('dovetail.turns', current_setting('dovetail.turns') || ',' || to_json(turn), true);
    END IF;
END
$$;

CREATE OR REPLACE FUNCTION pass_turns_on(of_docket bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    turns text[];
    turn text;
BEGIN
    IF current_setting('dovetail.turns') = '' THEN
        RETURN;
    END IF;
    turns := ARRAY(
        SELECT jsonb_array_elements_text(('[' || substr(current_setting('dovetail.turns'), 2) || ']')::jsonb)
    );
    PERFORM set_config('dovetail.turns', '', true), lock_limits(of_docket, turns);
    FOREACH turn IN ARRAY turns LOOP
        PERFORM wake_next(of_docket, turn);
    END LOOP;
END
$$;

-- Lock the limits in which these runs hold slots, and those in which some give their starts back, before any of them is
-- touched: a claimer may be parking a run on one right now, and would wait for us as we for him.
CREATE OR REPLACE FUNCTION lock_slots(of_docket bigint, ids text[], unbegun text[] DEFAULT '{}') RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(unbegun) = 0 AND NOT EXISTS (SELECT FROM slot WHERE docket = of_docket) THEN
        RETURN;
    END IF;
    PERFORM lock_limits(of_docket, ARRAY(
        SELECT DISTINCT each->>'key' FROM unnest(ids) AS told (id) CROSS JOIN LATERAL (
            SELECT limits FROM run WHERE docket = of_docket AND id = told.id AND limits IS NOT NULL OFFSET 0
        ) AS held CROSS JOIN LATERAL jsonb_array_elements(held.limits) AS each
        WHERE each->>'span' IS NULL OR told.id = ANY (unbegun)
    ));
END
$$;

-- Give back the slots of a run that is no longer running; each wakes the next in line. They are locked: see lock_slots.
CREATE OR REPLACE FUNCTION free_slots(of_docket bigint, run_id text, limits jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    freed text;
BEGIN
    FOR freed IN
        DELETE FROM slot WHERE docket = of_docket AND run = run_id AND limit_key = ANY (limit_keys(limits)) RETURNING limit_key
    LOOP
        PERFORM wake_next(of_docket, freed);
    END LOOP;
END
$$;

-- Take back the starts of a claim whose body never began; each wakes the next in line. They are locked as well. A claim that
-- took over a lapsed lease has none: the body of the one before it may have begun.
CREATE OR REPLACE FUNCTION give_back_starts(unbegun run) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    each record;
BEGIN
    FOR each IN SELECT key FROM jsonb_to_recordset(unbegun.limits) AS one (key text, span bigint) WHERE span IS NOT NULL LOOP
        -- One of them, if it has several of that moment.
        DELETE FROM start WHERE ctid = (
            SELECT ctid FROM start
            WHERE docket = unbegun.docket AND limit_key = each.key AND at = unbegun.started AND run = unbegun.id LIMIT 1
        );
        IF FOUND THEN
            PERFORM wake_next(unbegun.docket, each.key);
        END IF;
    END LOOP;
END
$$;

-- When a windowed limit has room for one more start: 0 if it has already.
CREATE OR REPLACE FUNCTION opens_at(of_docket bigint, of_limit text, capacity bigint, span bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
BEGIN
    IF capacity <= 0 THEN
        RETURN 0;
    END IF;
    RETURN COALESCE((
        SELECT at + span FROM start WHERE docket = of_docket AND limit_key = of_limit
        ORDER BY at DESC OFFSET capacity - 1 LIMIT 1
    ), 0);
END
$$;

CREATE OR REPLACE FUNCTION set_opening(of_docket bigint, of_limit text, moment bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO opening (docket, limit_key, at) VALUES (of_docket, of_limit, moment)
    ON CONFLICT (docket, limit_key) DO UPDATE SET at = excluded.at;
END
$$;

-- The first limit that has no room for a run, as {key, drop, opens}; NULL if it may start.
CREATE OR REPLACE FUNCTION refusal(of_docket bigint, now bigint, limits jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    each record;
    opens bigint;
BEGIN
    FOR each IN SELECT * FROM jsonb_to_recordset(limits) AS one (key text, capacity bigint, span bigint, drop boolean) LOOP
        IF each.span IS NULL THEN
            IF (SELECT COUNT(*) FROM slot WHERE docket = of_docket AND limit_key = each.key) >= each.capacity THEN
                RETURN jsonb_build_object('key', each.key, 'drop', each.drop);
            END IF;
        ELSE
            opens := opens_at(of_docket, each.key, each.capacity, each.span);
            IF opens > now THEN
                RETURN jsonb_build_object('key', each.key, 'drop', each.drop, 'opens', opens);
            END IF;
        END IF;
    END LOOP;
    RETURN NULL;
END
$$;

-- Take the room a run was admitted to.
CREATE OR REPLACE FUNCTION take_room(of_docket bigint, now bigint, run_id text, limits jsonb) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO slot (docket, limit_key, run)
    SELECT of_docket, key, run_id FROM jsonb_to_recordset(limits) AS one (key text, span bigint) WHERE span IS NULL
    ON CONFLICT DO NOTHING;
    INSERT INTO start (docket, limit_key, at, expires, run)
    SELECT of_docket, key, now, now + span, run_id FROM jsonb_to_recordset(limits) AS one (key text, span bigint)
    WHERE span IS NOT NULL;
END
$$;

-- After starts under windowed limits: note when each opens for those still parked on it.
CREATE OR REPLACE FUNCTION expect_openings(of_docket bigint, now bigint, limits jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    each record;
    opens bigint;
BEGIN
    FOR each IN
        SELECT * FROM jsonb_to_recordset(limits) AS one (key text, capacity bigint, span bigint) WHERE span IS NOT NULL
    LOOP
        opens := opens_at(of_docket, each.key, each.capacity, each.span);
        IF opens > now AND EXISTS (SELECT FROM run WHERE docket = of_docket AND parked_on = each.key) THEN
            PERFORM set_opening(of_docket, each.key, opens);
        END IF;
    END LOOP;
END
$$;

-- Wake as many of those parked on a limit as it has room for; note the next opening if it has none.
CREATE OR REPLACE FUNCTION fill(of_docket bigint, now bigint, of_limit text, at_most bigint) RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    asked jsonb;
    rule record;
    taken bigint;
BEGIN
    SELECT limits INTO asked FROM run WHERE docket = of_docket AND parked_on = of_limit
    ORDER BY priority, place, due, id LIMIT 1;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    SELECT capacity, span INTO rule FROM jsonb_to_recordset(asked) AS one (key text, capacity bigint, span bigint)
    WHERE key = of_limit;
    IF NOT FOUND THEN
        RETURN wake_next(of_docket, of_limit); -- parked on a limit that it does not have: let it be judged anew
    END IF;
    IF rule.span IS NULL THEN
        SELECT COUNT(*) INTO taken FROM slot WHERE docket = of_docket AND limit_key = of_limit;
    ELSE
        SELECT COUNT(*) INTO taken FROM (
            SELECT FROM start WHERE docket = of_docket AND limit_key = of_limit AND at > now - rule.span
            ORDER BY at DESC LIMIT rule.capacity
        ) AS recent;
    END IF;
    IF taken < rule.capacity THEN
        RETURN wake_next(of_docket, of_limit, LEAST(rule.capacity - taken, at_most));
    END IF;
    IF rule.span IS NOT NULL THEN
        PERFORM set_opening(of_docket, of_limit, opens_at(of_docket, of_limit, rule.capacity, rule.span));
    END IF;
    RETURN 0;
END
$$;

-- Wake those whose window has opened; whether any limit is locked now. One that another claimer is at is left to him.
CREATE OR REPLACE FUNCTION open_windows(of_docket bigint, now bigint, at_most bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
    opened text;
    has_locked boolean := false;
BEGIN
    FOR opened IN
        SELECT limit_key FROM opening WHERE docket = of_docket AND at <= now ORDER BY at LIMIT at_most
    LOOP
        IF try_lock_limits(of_docket, ARRAY[opened]) THEN
            has_locked := true;
            DELETE FROM opening WHERE docket = of_docket AND limit_key = opened AND at <= now;
            IF FOUND THEN
                PERFORM fill(of_docket, now, opened, at_most);
            END IF;
        END IF;
    END LOOP;
    RETURN has_locked;
END
$$;
