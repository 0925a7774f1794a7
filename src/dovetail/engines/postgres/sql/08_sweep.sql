-- Sweeping: what is past its time goes, what was left behind is put right. All in bounded steps.

-- The answer is JSON: how many runs, workers, holds, repairs, runs for the archive, and whether there is more.
CREATE OR REPLACE FUNCTION sweep(of_docket bigint, at bigint, silent_for bigint, at_most bigint) RETURNS text
LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
DECLARE
    now bigint := time_of(at);
    cleared bigint[]; -- dropped, archived, and whether there is more
    workers bigint;
    past_holds bigint;
    past_starts bigint;
    repaired bigint := 0;
    limit_of text := '';
BEGIN
    PERFORM begin_telling(of_docket);
    cleared := clear_out(of_docket, now, at_most);
    DELETE FROM worker WHERE docket = of_docket AND last_seen <= now - silent_for;
    GET DIAGNOSTICS workers = ROW_COUNT;
    DELETE FROM hold WHERE docket = of_docket AND until <= now;
    GET DIAGNOSTICS past_holds = ROW_COUNT;
    IF past_holds > 0 THEN
        UPDATE docket SET holds = holds + 1 WHERE id = of_docket;
        PERFORM note_work();
    END IF;
    DELETE FROM start WHERE ctid = ANY (ARRAY(
        SELECT ctid FROM start WHERE docket = of_docket AND expires <= now ORDER BY expires LIMIT at_most
    ));
    GET DIAGNOSTICS past_starts = ROW_COUNT;
    -- A queue where nothing waits begins again at nought.
    DELETE FROM share WHERE docket = of_docket AND NOT EXISTS (
        SELECT FROM run WHERE run.docket = of_docket AND run.state = 'queued' AND run.queue = share.queue OFFSET 0
    );
    DELETE FROM opening WHERE docket = of_docket AND NOT EXISTS (
        SELECT FROM run WHERE run.docket = of_docket AND run.parked_on = opening.limit_key OFFSET 0
    );
    repaired := free_orphans(of_docket);
    -- Turns are never lost, so this finds work only after damage.
    FOR round IN 1..at_most LOOP
        SELECT parked_on INTO limit_of FROM run WHERE docket = of_docket AND parked_on > limit_of
        ORDER BY docket, parked_on LIMIT 1;
        EXIT WHEN limit_of IS NULL;
        IF try_lock_limits(of_docket, ARRAY[limit_of]) THEN
            repaired := repaired + fill(of_docket, now, limit_of, at_most);
        END IF;
    END LOOP;
    RETURN '{"swept":' || json_build_array(
        cleared[1], workers, past_holds, repaired, cleared[2], cleared[3] > 0 OR past_starts >= at_most
    ) || ',' || news(of_docket) || '}';
END
$$;

-- Slots whose run no longer runs: there are none unless somebody altered the tables by hand.
CREATE OR REPLACE FUNCTION free_orphans(of_docket bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    orphan record;
    freed bigint := 0;
BEGIN
    FOR orphan IN
        SELECT limit_key, run FROM slot WHERE docket = of_docket AND NOT EXISTS (
            SELECT FROM run WHERE run.docket = of_docket AND run.id = slot.run AND run.state = 'running' OFFSET 0
        )
    LOOP
        IF try_lock_limits(of_docket, ARRAY[orphan.limit_key]) THEN
            -- Looked at again under the lock: a claimer may have been about to start it.
            DELETE FROM slot WHERE docket = of_docket AND limit_key = orphan.limit_key AND run = orphan.run AND NOT EXISTS (
                SELECT FROM run WHERE run.docket = of_docket AND run.id = orphan.run AND run.state = 'running' OFFSET 0
            );
            IF FOUND THEN
                freed := freed + 1;
                PERFORM wake_next(of_docket, orphan.limit_key);
            END IF;
        END IF;
    END LOOP;
    RETURN freed;
END
$$;

-- The number of a docket and its token, made if there is none of that name.
CREATE OR REPLACE FUNCTION docket_of(of_name text) RETURNS TABLE (number bigint, of_token text)
LANGUAGE plpgsql SECURITY DEFINER {settings} AS $$
BEGIN
    SELECT id, token::text INTO number, of_token FROM docket WHERE name = of_name;
    IF NOT FOUND THEN
        INSERT INTO docket (name) VALUES (of_name) ON CONFLICT (name) DO NOTHING;
        SELECT id, token::text INTO number, of_token FROM docket WHERE name = of_name;
    END IF;
    RETURN NEXT;
END
$$;
