-- Whether the records and the sets they stand in agree. Each step looks at a part and gathers what would put it right:
-- `examine` leaves it at that, `mend` writes it. A record is what counts: a set only says what a record says.
--
-- Takes a step and what it needs:
--   records, cursor            {next cursor, records that stand nowhere, keys of those that wait for nobody,
--                               records without a call, limit -> runs woken for it}
--   sets                       {kind, name} of every set, the name false if it has none
--   members, kind, name, from  {where to go on, or false; members without a record}
--   limits, from               {where to go on, or false; {limit, how much room it has}}
local AT_A_TIME = 300
local REPRIEVE = 30000000 -- microseconds: a run whose lease was lost is its worker's for as long

-- The set in which a run has to stand, its member there, and its score.
local function standing_of(run)
    if is_over(run) then return OVER, run.id, run.expires end
    if run.state == 'running' then return key('lease', run.queue), run.id, now + REPRIEVE end
    if run.parked then return key('parked', run.parked), rank(run), negated_priority(run) end
    if run.state == 'queued' then return key('ready', run.queue), rank(run), negated_priority(run) end
    if run.state == 'scheduled' then return key('due', run.queue), run.id, due_of(run) end
end

local listed = {}
local function is_listed(queue)
    if listed[queue] == nil then listed[queue] = call('SISMEMBER', QUEUES, queue) == 1 end
    return listed[queue]
end

local function holds_key(run) return ((' ' .. (read(LIVE, run.key) or '') .. ' '):find(' ' .. run.id .. ' ', 1, true)) end

-- The sets of runs in which a run has to stand: {set, member, score} of each.
local function places_of(run)
    local places = { { ALL, run.id, run.seq } }
    local set, member, score = standing_of(run)
    if set then places[2] = { set, member, score } end
    if run.key then places[#places + 1] = { NAMES, name_entry(run), 0 } end
    return places
end

-- Which of the places of some runs they do not stand in, by set and member. Each set is asked once for all of them.
local function missing_from(places_by_run)
    local wanted, missing = {}, {}
    for _, places in ipairs(places_by_run) do
        for _, place in ipairs(places) do
            local set = place[1]
            wanted[set] = wanted[set] or {}
            table.insert(wanted[set], place[2])
        end
    end
    for set, members in pairs(wanted) do
        missing[set] = {}
        for from = 1, #members, AT_ONCE do
            local some = { unpack(members, from, math.min(from + AT_ONCE - 1, #members)) }
            for n, score in ipairs(call('ZMSCORE', set, unpack(some))) do
                if not score then missing[set][some[n]] = true end
            end
        end
    end
    return missing
end

-- Let a run stand wherever it should. Whether it did not.
local function put_back(run, places, missing)
    local is_lost = false
    for _, place in ipairs(places) do
        if missing[place[1]][place[2]] then
            put(place[1], place[2], place[3])
            is_lost = true
        end
    end
    if is_over(run) then return is_lost end
    if run.key and not holds_key(run) then
        hold_key(run)
        is_lost = true
    end
    if run.parked then
        if not call('ZSCORE', PARKED, run.parked) then
            put(PARKED, run.parked, 0)
            is_lost = true
        end
    elseif run.state ~= 'waiting' and not is_listed(run.queue) then
        entered[run.queue], is_lost = true, true
    end
    if is_lost then has_begun, work = true, true end
    return is_lost
end

local function waits_for_nobody(run)
    if run.state ~= 'waiting' then return false end
    for _, id in ipairs(run.unmet or {}) do
        local parent = run_of(id)
        if parent and not is_over(parent) then return false end
    end
    return true
end

local steps = {}

function steps.records(cursor)
    local page = call('HSCAN', RUN, cursor, 'COUNT', AT_A_TIME)
    local runs, places, lost, orphans, calls, turns = {}, {}, 0, {}, 0, {}
    for n = 1, #page[2], 2 do
        local id = page[2][n]
        if known[id] == nil then known[id] = unpacked(id, page[2][n + 1]) end
        runs[#runs + 1] = known[id]
        places[#places + 1] = places_of(known[id])
    end
    local missing = missing_from(places)
    for n, run in ipairs(runs) do
        local id = run.id
        if put_back(run, places[n], missing) then lost = lost + 1 end
        if waits_for_nobody(run) then orphans[#orphans + 1] = name_of(run) end
        if not is_over(run) and call('HEXISTS', CALL, id) == 0 then calls = calls + 1 end
        if run.turn and run.state == 'queued' then turns[run.turn] = (turns[run.turn] or 0) + 1 end
    end
    return { page[1], lost, orphans, calls, turns }
end

function steps.sets()
    local sets = { { 'all', false }, { 'over', false } }
    for _, queue in ipairs(call('SMEMBERS', QUEUES)) do
        for _, kind in ipairs({ 'ready', 'due', 'lease' }) do sets[#sets + 1] = { kind, queue } end
    end
    for _, limit in ipairs(call('ZRANGE', PARKED, 0, -1)) do sets[#sets + 1] = { 'parked', limit } end
    return sets
end

function steps.members(kind, name, from)
    local set = name and key(kind, name) or root .. kind
    local has_ranks = kind == 'ready' or kind == 'parked'
    local members, gone = call('ZRANGE', set, from, from + AT_A_TIME - 1), 0
    for _, member in ipairs(members) do
        if call('HEXISTS', RUN, has_ranks and id_of(member) or member) == 0 then
            gone = gone + 1
            if kind == 'parked' then
                leave_line(name, member)
            else
                remove(set, member)
                if name then left[name] = true end
            end
        end
    end
    return { #members == AT_A_TIME and from + #members, gone }
end

function steps.limits(from)
    local found = {}
    local limits = call('ZRANGE', PARKED, from, from + AT_A_TIME - 1)
    for _, name in ipairs(limits) do
        local member = call('ZRANGE', key('parked', name), 0, 0)[1]
        local run = member and run_of(id_of(member))
        for _, limit in ipairs(run and run.limits or {}) do
            if limit[1] == name then found[#found + 1] = { name, room_in(limit) } end
        end
    end
    return { #limits == AT_A_TIME and from + #limits, found }
end
