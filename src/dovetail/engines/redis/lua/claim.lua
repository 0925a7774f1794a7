-- needs: journal telling order limits endings
-- Takes worker, want, queues (none: all), lease, whether no lease counts as lapsed, the request's id, and whether it is
-- made again because its answer was lost; and the latest that the clock may show unless it leapt.
-- Returns {wait, now, whether the clock leapt, claims}, packed; and the calls in the same order.
local worker, want, queues, lease, grace, asked, again, latest = unpack(request, 1, 8)

local PROMOTED = 150 -- how many runs that became due join the ready order in one call
local EXAMINED = 150 -- how many ready runs one call looks at beyond those it may hand out
local LAPSED = 100   -- how many lapsed leases it looks at
local OPENED = 20    -- how many windows it opens
local RECENT = 2000  -- how many leases are looked through for those of a request that is made again

local until_when = now + lease
local leapt = is_real_time and latest and now > latest or false
grace = grace or leapt
local claims, ids = {}, {}

local function hand_over(run, redelivered)
    claims[#claims + 1] = {
        run.id, run.epoch, run.key or false, run.attempt or 1, run.due, run.queue, run.priority or 0,
        run.group or false, redelivered, run.crashes or 0,
    }
    ids[#ids + 1] = run.id
end

local function start(run, redelivered)
    run.epoch, run.worker, run.started = next_epoch(run), worker, now
    run.progress, run.reported_by, run.turn, run.request = nil, nil, nil, asked
    run.state = 'running'
    put(key('lease', run.queue), run.id, until_when)
    changed[run.id] = true
    if tells_states then tell_state(run, { worker = worker, started = now }) end
    hand_over(run, redelivered)
end

local function open_queues()
    if #queues == 0 then
        queues = call('SMEMBERS', QUEUES)
        table.sort(queues)
    end
    local paused = {}
    local pauses = call('HGETALL', PAUSES)
    for n = 1, #pauses, 2 do
        local ends = tonumber(pauses[n + 1])
        if ends == 0 or ends > now then paused[pauses[n]] = true end
    end
    local open = {}
    for _, queue in ipairs(queues) do
        if not paused[queue] then
            open[#open + 1] = queue
            paused[queue] = true -- named twice, it counts once
        end
    end
    return open
end

-- Entries are {negated priority, place, sign of the due time, due time, id, queue}.
local function sort_in_claim_order(entries)
    table.sort(entries, function(a, b)
        for n = 1, 4 do
            if a[n] ~= b[n] then return a[n] < b[n] end
        end
        return is_before(a[5], b[5])
    end)
end

local function entry(priority, member, queue)
    local place, sign, due = struct.unpack('>dBd', member)
    return { priority, place, sign, due, id_of(member), queue }
end

-- The claims that this very request has made before.
local function hand_over_again(open)
    local found = {}
    for _, queue in ipairs(open) do
        local recent = call('ZREVRANGE', key('lease', queue), 0, RECENT - 1)
        fetch(recent)
        for _, id in ipairs(recent) do
            local run = run_of(id)
            if run and run.request == asked then found[#found + 1] = entry(negated_priority(run), rank(run)) end
        end
    end
    sort_in_claim_order(found)
    for _, each in ipairs(found) do
        local run = run_of(each[5])
        hand_over(run, (run.crashes or 0) > 0)
    end
end

local function poisoned(crashes)
    return { 'Poisoned',
        'the run was started ' .. crashes .. ' times, and each time its worker vanished without a word', '' }
end

local function take_over(run)
    local crashes = (run.crashes or 0) + 1
    if run.stop then
        end_by_store(run, 'cancelled')
    elseif crashes >= (run.crash_limit or 3) then
        run.crashes = crashes
        end_by_store(run, 'failed', poisoned(crashes))
    elseif #claims < want then
        run.crashes = crashes
        start(run, true)
    end
end

-- Runs whose lease lapsed: each goes on here, unless it was asked to stop or has crashed too often.
local function take_over_lapsed(open)
    local bound = want + LAPSED
    local looked_at_all = true
    for _, queue in ipairs(open) do
        local lapsed = call('ZRANGEBYSCORE', key('lease', queue), '-inf', now, 'LIMIT', 0, bound)
        fetch(lapsed)
        bound = bound - #lapsed
        for _, id in ipairs(lapsed) do
            if run_of(id) then
                take_over(run_of(id))
            else
                remove(key('lease', queue), id)
                left[queue] = true
            end
        end
        if bound <= 0 then looked_at_all = false break end
    end
    return looked_at_all
end

local function open_windows()
    for _, limit in ipairs(call('ZRANGEBYSCORE', OPENINGS, '-inf', now, 'LIMIT', 0, OPENED)) do
        remove(OPENINGS, limit)
        fill(limit, 100)
    end
end

-- What has become due joins the ready order. Whether that is all of it.
local function promote(open)
    local room = PROMOTED
    for _, queue in ipairs(open) do
        if room > 0 then
            local due = call('ZRANGEBYSCORE', key('due', queue), '-inf', now, 'LIMIT', 0, room)
            fetch(due)
            room = room - #due
            for _, id in ipairs(due) do
                local run = run_of(id)
                remove(key('due', queue), id)
                left[queue] = true
                if run then
                    make_ready(run)
                    tell_pending(run)
                end
            end
        end
    end
    return room > 0
end

-- The first of all queues together, in claim order.
local function first_ready(open, at_most)
    local found = {}
    for _, queue in ipairs(open) do
        local members = call('ZRANGE', key('ready', queue), 0, at_most - 1, 'WITHSCORES')
        for n = 1, #members, 2 do found[#found + 1] = entry(tonumber(members[n + 1]), members[n], queue) end
    end
    if #open > 1 then sort_in_claim_order(found) end
    for n = #found, at_most + 1, -1 do found[n] = nil end
    return found
end

local function refuse(run, limit, opens)
    local turn = run.turn
    left[run.queue] = true
    if limit[4] then
        end_by_store(run, 'cancelled')
    else
        park(run, limit, opens)
        tell_pending(run)
    end
    if turn ~= limit[1] then pass_turn_on(turn) end
end

-- After starts under windowed limits: note when these open for those still parked.
local function expect_openings(windowed)
    for name, limit in pairs(windowed) do
        local opens = opens_at(limit)
        if opens > now and #first(key('parked', name), 1) > 0 then put(OPENINGS, name, opens) end
    end
end

local function start_admitted(entries)
    local entry_ids = {}
    for n, each in ipairs(entries) do
        -- They are the first of their queues, so they go by rank: to look for each takes long in a long queue.
        local set = key('ready', each[6])
        entry_ids[n], popped[set] = each[5], (popped[set] or 0) + 1
    end
    fetch(entry_ids)
    local windowed = {}
    for _, each in ipairs(entries) do
        local run, limit, opens = run_of(each[5]), nil, nil
        if run and run.limits then limit, opens = refusal_of(run) end
        if not run then
            left[each[6]] = true -- its record was removed by hand
        elseif limit then
            refuse(run, limit, opens)
        else
            start(run, (run.crashes or 0) > 0)
            if run.place then note_claimed(run) end
            if run.limits then
                take_room(run)
                for _, each in ipairs(run.limits) do
                    if each[3] then windowed[each[1]] = each end
                end
            end
        end
    end
    expect_openings(windowed)
    flush()
    started = {}
end

-- Add claims until there are as many as wanted; whether everything that is ready was looked at.
local function take_ready(open)
    local examined = 0
    while #claims < want do
        local entries = first_ready(open, want - #claims)
        if #entries == 0 then return true end
        if examined > EXAMINED then return false end
        start_admitted(entries)
        examined = examined + #entries
    end
    return true
end

-- How long until something known becomes due: a future run, a window that opens, a lease that lapses.
local function next_wait(open)
    local earliest
    local function consider(found)
        local moment = tonumber(found[2])
        if moment and (not earliest or moment < earliest) then earliest = moment end
    end
    consider(call('ZRANGE', OPENINGS, 0, 0, 'WITHSCORES'))
    for _, queue in ipairs(open) do
        consider(call('ZRANGE', key('due', queue), 0, 0, 'WITHSCORES'))
        consider(call('ZRANGEBYSCORE', key('lease', queue), '(' .. string.format('%.0f', now), '+inf', 'WITHSCORES', 'LIMIT', 0, 1))
    end
    return earliest and math.max(earliest - now, 0) or false
end

local function claim()
    open_windows()
    flush()
    local open = open_queues() -- only now: a queue may have nothing but what has just been woken
    if again then
        hand_over_again(open)
        if #claims > 0 then return false end
    end
    local looked_at_all = grace or take_over_lapsed(open)
    local worked = work
    looked_at_all = promote(open) and looked_at_all
    work = worked -- what became due is no news: everyone knows when to look
    flush()
    looked_at_all = take_ready(open) and looked_at_all
    if #claims == want then return false end
    if work or not looked_at_all then return 0 end
    local wait = next_wait(open)
    if grace then wait = wait and math.min(wait, lease) or lease end
    return wait
end

local wait = claim()
local calls = #ids > 0 and call('HMGET', CALL, unpack(ids)) or {}
finish_script()
return { cmsgpack.pack({ wait, now, leapt, claims }), calls }
