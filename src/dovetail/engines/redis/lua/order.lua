-- Where a run waits: ready, due, or for a limit; and its place among those that are ready.

local function id_of(member) return member:sub(18) end

local function negated_priority(run) return -(run.priority or 0) end

-- Fair share

local shares = {} -- queue -> whether groups are in use there

local function has_shares(queue)
    if shares[queue] == nil then shares[queue] = call('EXISTS', key('share', queue)) == 1 end
    return shares[queue]
end

local function virtual_time(queue) return tonumber(read(key('share', queue), '') or 0) end

-- The place of a run that becomes ready now. Without groups in use it is nought.
local function place_of(run)
    local queue, group = run.queue, run.group
    if not group then return has_shares(queue) and virtual_time(queue) or 0 end
    local place = has_shares(queue) and virtual_time(queue) or 0
    local last = has_shares(queue) and read(key('share', queue), ':' .. group)
    if last then place = math.max(place, last + 1 / (run.weight or 1)) end
    write(key('share', queue), ':' .. group, place)
    shares[queue] = true
    return place
end

-- The queue's virtual time is the place of what was claimed last.
local function note_claimed(run)
    local place = run.place or 0
    if place > 0 and place > virtual_time(run.queue) then write(key('share', run.queue), '', place) end
end

-- Entering and leaving

local function set_place(run, place) run.place = place ~= 0 and place or nil end

local function wait_for_turn(run)
    run.state = 'queued'
    put(key('ready', run.queue), rank(run), negated_priority(run))
    entered[run.queue], changed[run.id], work = true, true, true
end

local function make_ready(run)
    set_place(run, place_of(run))
    wait_for_turn(run)
end

-- Let a run wait for its due time, or for its turn if that has come.
local function line_up(run)
    if due_of(run) <= now then return make_ready(run) end
    run.state = 'scheduled'
    put(key('due', run.queue), run.id, due_of(run))
    entered[run.queue], changed[run.id], work = true, true, true
end

-- Take a member out of those that wait for a limit.
local function leave_line(limit, member)
    local line = key('parked', limit)
    remove(line, member)
    if #first(line, 1) == 0 then
        remove(PARKED, limit)
        remove(OPENINGS, limit)
    end
end

local function unpark(run)
    leave_line(run.parked, rank(run))
    run.parked = nil
end

-- Take a pending or running run out of wherever it stands.
local function withdraw(run)
    changed[run.id] = true
    if run.state == 'running' then
        remove(key('lease', run.queue), run.id)
    elseif run.parked then
        return unpark(run)
    elseif run.state == 'queued' then
        remove(key('ready', run.queue), rank(run))
    elseif run.state == 'scheduled' then
        remove(key('due', run.queue), run.id)
    end
    left[run.queue] = true
end
