-- Fair share: the place of a run among those that are ready.

-- The place of a run that becomes ready now.
CREATE OR REPLACE FUNCTION place_of(of_docket bigint, of_queue text, of_tribe text, of_weight double precision)
RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE
    virtual_time double precision;
    given double precision;
BEGIN
    SELECT place INTO virtual_time FROM share WHERE docket = of_docket AND queue = of_queue AND tribe = '';
    virtual_time := COALESCE(virtual_time, 0);
    IF of_tribe IS NULL THEN
        RETURN virtual_time;
    END IF;
    -- The empty name is the queue's own, so a group's begins with a colon.
    INSERT INTO share (docket, queue, tribe, place) VALUES (of_docket, of_queue, ':' || of_tribe, virtual_time)
    ON CONFLICT (docket, queue, tribe)
    DO UPDATE SET place = GREATEST(virtual_time, share.place + 1 / COALESCE(of_weight, 1))
    RETURNING place INTO given;
    RETURN given;
END
$$;

-- The queue's virtual time is the place of what was claimed last.
CREATE OR REPLACE FUNCTION note_claimed(of_docket bigint, of_queue text, of_place double precision) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO share (docket, queue, tribe, place) VALUES (of_docket, of_queue, '', of_place)
    ON CONFLICT (docket, queue, tribe) DO UPDATE SET place = excluded.place WHERE share.place < excluded.place;
END
$$;
