-- Limits: how full they are, who waits for them, and whose turn is next. A limit is {key, capacity, window, drop}.

local held = {}    -- limit -> slots taken
local started = {} -- limit -> starts in this call that are not written yet

local function slots_held(limit)
    if not held[limit] then held[limit] = call('ZCARD', key('slots', limit)) end
    return held[limit]
end

-- When a windowed limit has room for one more start: 0 if it has already.
local function opens_at(limit)
    local name, capacity, window = limit[1], limit[2], limit[3]
    if capacity <= 0 then return 0 end
    local back = capacity - (started[name] or 0)
    if back <= 0 then return now + window end
    local start = call('ZREVRANGE', key('starts', name), back - 1, back - 1, 'WITHSCORES')[2]
    return start and start + window or 0
end

-- The limit that refuses a run, and when its window opens; nothing if all have room.
local function refusal_of(run)
    for _, limit in ipairs(run.limits or {}) do
        if not limit[3] then
            if slots_held(limit[1]) >= limit[2] then return limit end
        else
            local opens = opens_at(limit)
            if opens > now then return limit, opens end
        end
    end
end

local function start_of(run, expires) return string.format('%.0f %s %.0f', expires, run.id, run.epoch) end

local note_start
do
    -- Starts past their window go as new ones come, so that no limit collects them.
    local function forget_old_starts(set)
        for _, member in ipairs(call('ZRANGE', set, 0, 1)) do
            if tonumber(member:match('^%d+')) <= now then remove(set, member) end
        end
    end

    local function last_closing() return tonumber(call('ZREVRANGE', CLOSING, 0, 0, 'WITHSCORES')[2] or 0) end

    function note_start(run, limit)
        local set = key('starts', limit[1])
        local expires = now + limit[3]
        forget_old_starts(set)
        put(set, start_of(run, expires), now)
        started[limit[1]] = (started[limit[1]] or 0) + 1
        local closing = scores[CLOSING] and scores[CLOSING][limit[1]] or tonumber(call('ZSCORE', CLOSING, limit[1]) or 0)
        if expires <= closing then return end
        put(CLOSING, limit[1], expires)
        expiring[set] = expires
        expiring[CLOSING] = math.max(expiring[CLOSING] or 0, expires, last_closing())
    end
end

-- Take the room a run was admitted to.
local function take_room(run)
    for _, limit in ipairs(run.limits or {}) do
        if limit[3] then
            note_start(run, limit)
        else
            held[limit[1]] = slots_held(limit[1]) + 1
            put(key('slots', limit[1]), run.id, 0)
        end
    end
end

-- Let a run wait for room, until a slot is set free or the window opens.
local function park(run, limit, opens)
    run.state, run.parked, run.turn = 'scheduled', limit[1], nil
    put(key('parked', limit[1]), rank(run), negated_priority(run))
    put(PARKED, limit[1], 0)
    changed[run.id] = true
    if opens then put(OPENINGS, limit[1], opens) end
end

-- Put the first of those that wait for a limit among what may be claimed.
local function wake_next(limit, at_most)
    local waiting = first(key('parked', limit), at_most or 1)
    for _, member in ipairs(waiting) do
        local run = run_of(id_of(member))
        if run then
            unpark(run)
            run.turn = limit
            wait_for_turn(run)
            tell_pending(run)
        else
            leave_line(limit, member) -- its record was removed by hand
        end
    end
    return #waiting
end

-- A woken run that goes without having started hands its turn to the next.
local function pass_turn_on(turn)
    if turn then wake_next(turn) end
end

-- Give back the slots of a run that is no longer running; each wakes the next in line.
local function free_slots(run)
    for _, limit in ipairs(run.limits or {}) do
        if not limit[3] then
            held[limit[1]] = math.max(slots_held(limit[1]) - 1, 0)
            remove(key('slots', limit[1]), run.id)
            wake_next(limit[1])
        end
    end
end

-- How many more may start under a limit now.
local function room_in(limit)
    if not limit[3] then return limit[2] - slots_held(limit[1]) end
    return limit[2] - call('ZCOUNT', key('starts', limit[1]), '(' .. string.format('%.0f', now - limit[3]), '+inf')
end

-- Wake as many of those parked on a limit as it has room for; note the next opening if it has none.
local function fill(name, at_most)
    local member = first(key('parked', name), 1)[1]
    if not member then return 0 end
    local limit
    local parked = run_of(id_of(member))
    for _, each in ipairs(parked and parked.limits or {}) do
        if each[1] == name then limit = each end
    end
    if not limit then return wake_next(name) end -- parked on a limit that it does not have: let it be judged anew
    local room = room_in(limit)
    if room > 0 then return wake_next(name, math.min(room, at_most)) end
    if limit[3] then put(OPENINGS, name, opens_at(limit)) end
    return 0
end
