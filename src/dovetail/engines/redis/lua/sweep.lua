-- needs: journal telling holding order limits endings origin
-- Takes for how long a worker may be silent, and how much to do at most.
-- Returns {runs, workers, holds, repaired, 0 for the archive that there is not, whether there is more}.
local silent_for, at_most = request[1], request[2]
local LIMITS = 50      -- limits that one call looks at
local LATER = 60000000 -- microseconds until a record that is kept for its children is looked at again

-- A run that others still wait on is kept for them.
local function is_needed(run)
    if not run.children then return false end
    local ids = first(root .. 'children:' .. run.id, 1000000)
    fetch(ids)
    for _, id in ipairs(ids) do
        local child = run_of(id)
        if child and not is_over(child) then return true end
    end
    return false
end

local function forget_past_runs()
    local past = call('ZRANGEBYSCORE', OVER, '-inf', now, 'LIMIT', 0, at_most)
    fetch(past)
    local forgotten = 0
    for _, id in ipairs(past) do
        local run = run_of(id)
        if not run then
            remove(OVER, id)
        elseif is_needed(run) then
            put(OVER, id, now + LATER)
            if run.feeds then expire_with_record(run) end
        else
            forget(run)
            forgotten = forgotten + 1
        end
    end
    return forgotten, #past
end

-- Of what is kept by count, those that ended first, beyond the number that the last one named.
local function forget_surplus()
    local forgotten = 0
    local buckets = call('ZRANGE', COUNTED, 0, -1, 'WITHSCORES')
    for n = 1, #buckets, 2 do
        local set = counted_in(buckets[n])
        local surplus = math.min(call('ZCARD', set) - buckets[n + 1], at_most - forgotten)
        local ids = surplus > 0 and call('ZRANGE', set, 0, surplus - 1) or {}
        fetch(ids)
        for _, id in ipairs(ids) do
            local run = run_of(id)
            if not run then
                remove(set, id)
            elseif not is_needed(run) then
                forget(run)
                forgotten = forgotten + 1
            end
        end
    end
    return forgotten
end

local function forget_silent_workers()
    local silent = call('ZRANGEBYSCORE', SEEN, '-inf', now - silent_for, 'LIMIT', 0, at_most)
    for _, worker in ipairs(silent) do
        remove(SEEN, worker)
        write(WORKERS, worker, false)
    end
    -- Workers that were only cut off come back, and must find their origin: it is left to its expiry. In tests there is none.
    local is_last = #silent > 0 and #silent == call('ZCARD', SEEN)
    if is_last and not is_real_time then dropped[#dropped + 1] = ORIGIN end
    return #silent
end

local function forget_past_holds()
    local forgotten = 0
    local all = call('HGETALL', HOLDS)
    for n = 1, #all, 2 do
        local hold = cmsgpack.unpack(all[n + 1])
        if hold[1] ~= 0 and hold[1] <= now then
            write(HOLDS, all[n], false)
            if hold[5] then write(PAUSES, hold[5], false) end
            forgotten = forgotten + 1
        end
    end
    if forgotten > 0 then holds_changed() end
    return forgotten
end

-- Starts whose windows are over, and places of queues where nothing is ready: those begin again at nought.
local function forget_idle()
    local idle = call('ZRANGEBYSCORE', CLOSING, '-inf', now, 'LIMIT', 0, at_most)
    for _, limit in ipairs(idle) do
        remove(CLOSING, limit)
        dropped[#dropped + 1] = key('starts', limit)
    end
    for _, queue in ipairs(call('SMEMBERS', QUEUES)) do
        if call('EXISTS', key('ready', queue)) == 0 then dropped[#dropped + 1] = key('share', queue) end
    end
    return #idle
end

-- Take back slots whose run no longer runs. How many runs were woken, and how many slots looked at.
local function free_orphans(limit, most)
    local woken = 0
    local ids = call('ZRANGE', key('slots', limit), 0, most - 1)
    fetch(ids)
    for _, id in ipairs(ids) do
        local run = run_of(id)
        if not run or run.state ~= 'running' then
            remove(key('slots', limit), id)
            held[limit] = slots_held(limit) - 1
            woken = woken + wake_next(limit)
        end
    end
    return woken, #ids
end

-- Some limits, from another one each time: those after a place that the time gives, then those before it.
local function some_limits()
    local count = call('ZCARD', PARKED)
    if count <= LIMITS then return call('ZRANGE', PARKED, 0, -1) end
    local from = now % count
    return call('ZRANGE', PARKED, from, from + LIMITS - 1)
end

-- Parked runs whose limit has room: there are none unless something was damaged, or a queue that holds a turn is paused.
local function repair()
    local repaired, left_to_do = 0, at_most
    for _, limit in ipairs(some_limits()) do
        if left_to_do <= 0 then break end
        local woken, looked_at = free_orphans(limit, left_to_do)
        woken = woken + fill(limit, left_to_do)
        repaired, left_to_do = repaired + woken, left_to_do - looked_at - woken - 1
    end
    return repaired
end

local runs, looked_at = forget_past_runs()
flush() -- what is gone does not count
local surplus = forget_surplus()
local workers = forget_silent_workers()
local holds = forget_past_holds()
local closed = forget_idle()
flush()
local repaired = repair()
finish_script()
local is_more = looked_at >= at_most or surplus >= at_most or closed >= at_most
return cmsgpack.pack({ runs + surplus, workers, holds, repaired, 0, is_more })
