-- Fair share: places and virtual time.

-- name: shares_exist
SELECT EXISTS (SELECT 1 FROM dovetail_share WHERE docket = ?1)

-- name: place_of
-- takes docket, queue, group; the empty group gives the queue's virtual time
SELECT place FROM dovetail_share WHERE docket = ?1 AND queue = ?2 AND tribe = ?3

-- name: note_place
-- takes docket, queue, group, place
INSERT INTO dovetail_share (docket, queue, tribe, place) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (docket, queue, tribe) DO UPDATE SET place = MAX(place, excluded.place)
