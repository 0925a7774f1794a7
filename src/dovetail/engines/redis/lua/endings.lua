-- What happens around the end of a run: its key, slots, children, and the record itself.

local KEPT = 900000000 -- microseconds: how long a record stays that does not say otherwise

local KEEPS = { completed = 1, failed = 2, cancelled = 3 }
local function kept_for(run) return run.keep and run.keep[KEEPS[run.state]] or KEPT end

-- Keys

local function name_entry(run) return string.format('%s %016.0f %s', encode(run.key), run.seq, run.id) end

local function ids_of_name_entries(entries)
    local ids = {}
    for n, entry in ipairs(entries) do ids[n] = entry:match('^%S+ %d+ (.*)$') end
    return ids
end

-- Ids of the runs that were given a key, the newest first. Those whose id is the key are not among them.
local function named(name, at_most)
    local text = encode(name)
    return ids_of_name_entries(call('ZREVRANGEBYLEX', NAMES, '(' .. text .. '!', '[' .. text .. ' ', 'LIMIT', 0, at_most))
end

local function hold_key(run)
    if not run.key then return end
    local ids = read(LIVE, run.key)
    write(LIVE, run.key, ids and ids .. ' ' .. run.id or run.id)
end

local function let_key_go(run)
    if not run.key then return end
    local rest = {}
    for id in (read(LIVE, run.key) or ''):gmatch('%S+') do
        if id ~= run.id then rest[#rest + 1] = id end
    end
    write(LIVE, run.key, #rest > 0 and table.concat(rest, ' '))
end

-- The live runs of a key, the newest first.
local function live_of(name)
    local runs = {}
    for id in (read(LIVE, name) or ''):gmatch('%S+') do runs[#runs + 1] = run_of(id) end
    local own = run_of(name)
    if own and not own.key and not is_over(own) then runs[#runs + 1] = own end
    if #runs > 1 then table.sort(runs, function(a, b) return a.seq > b.seq end) end
    return runs
end

-- Counting: a record says {task, how many} if it is kept by count

local function bucket_of(run) return encode(run.counted[1]) .. ':' .. run.state end

local function count_in(run)
    if not run.counted then return end
    put(COUNTED, bucket_of(run), run.counted[2])
    put(counted_in(bucket_of(run)), run.id, run.finished)
end

local function count_out(run)
    if not run.counted then return end
    remove(counted_in(bucket_of(run)), run.id)
    thinned[bucket_of(run)] = true
end

-- Records

-- Drop a run's record and all that belongs to it.
local function forget(run)
    local id = run.id
    known[id], changed[id], has_ended = false, true, true
    write(CALL, id, false)
    remove(ALL, id)
    if is_over(run) then
        remove(OVER, id)
        count_out(run)
        if run.has_result then write(RESULT, id, false) end
    else
        let_key_go(run)
    end
    if run.key then remove(NAMES, name_entry(run)) end
    if run.failures then dropped[#dropped + 1] = root .. 'errors:' .. id end
    if run.children then dropped[#dropped + 1] = root .. 'children:' .. id end
    for _, parent in ipairs(run.parents or {}) do remove(root .. 'children:' .. parent, id) end
end

-- Add a line to the error history. A failure is {type, message, traceback}.
local function note_error(run, attempt, worker, failure)
    run.failures = (run.failures or 0) + 1
    local line = cmsgpack.pack({ attempt, now, worker or false, failure[1], failure[2], failure[3] })
    pushed[#pushed + 1] = { root .. 'errors:' .. run.id, line }
end

local function error_text(failure)
    if not failure then return nil end
    return failure[2] ~= '' and failure[1] .. ': ' .. failure[2] or failure[1]
end

local function doomed_text(parent)
    return 'ParentFailed: the run ' .. parent .. ', which this one waited for, did not complete'
end

-- Ends

-- Mark a run as over, wherever it stood.
local function close(run, state)
    withdraw(run)
    run.state, run.finished = state, now
    run.expires = now + kept_for(run)
    run.stop, run.progress, run.reported_by, run.request, run.turn, run.unmet = nil, nil, nil, nil, nil, nil
    put(OVER, run.id, run.expires)
    count_in(run)
    has_ended = true
    let_key_go(run)
end

-- Close a run that no worker speaks for.
local function close_by_store(run, state, text, doomed_by)
    close(run, state)
    run.epoch, run.error, run.doomed = next_epoch(run), text, doomed_by
end

local function tell_end(run)
    if tells_states then
        tell_state(run, { finished = now, error = run.error, worker = run.worker, has_result = run.has_result })
    end
end

local expire_with_record
do
    local A_DAY = 86400000000

    -- What a run has beside its record goes with it, even if nobody sweeps. Who the children are of one that feeds them is
    -- known for a day longer: as long as one of them lives the record stays, and whoever sweeps has to see that.
    function expire_with_record(run)
        if run.failures then expiring[root .. 'errors:' .. run.id] = run.expires end
        if not run.children then return end
        expiring[root .. 'children:' .. run.id] = run.feeds and math.max(run.expires, now) + A_DAY or run.expires
    end
end

-- Keep a run that is over for a child that wants its result.
local function feed(run)
    run.feeds, changed[run.id] = true, true
    expire_with_record(run)
end

-- Release a child whose last parent is over.
local function release(child)
    child.unmet = nil
    line_up(child)
    tell_pending(child)
end

-- Release what waits for a run that is over, or cancel it, to any depth. How many were cancelled.
local function settle_children(parent, completed)
    local fallen = 0
    local ended = { { parent, completed } }
    while #ended > 0 do
        local run, is_completed = unpack(table.remove(ended))
        local ids = first(root .. 'children:' .. run.id, 1000000)
        fetch(ids)
        for _, id in ipairs(ids) do
            local child = run_of(id)
            if not child or child.state ~= 'waiting' or not contains(child.unmet, run.id) then
                -- It does not wait for this one, or no longer.
            elseif is_completed or child.after_failure then
                child.unmet = without(child.unmet, run.id)
                changed[id] = true
                if child.wants_results and not run.feeds then feed(run) end
                if #child.unmet == 0 then release(child) end
            else
                fallen = fallen + 1
                close_by_store(child, 'cancelled', doomed_text(run.id), run.id)
                expire_with_record(child)
                tell_end(child)
                if child.children then
                    ended[#ended + 1] = { child, false }
                elseif is_past(child) then
                    forget(child)
                end
            end
        end
    end
    return fallen
end

local after_end
do
    -- A run that fed none but this one, which is over, need be known no longer than it is kept. Of several that are fed,
    -- whoever sweeps finds the last.
    local function let_feeders_go(fed)
        fetch(fed.parents or {})
        for _, id in ipairs(fed.parents or {}) do
            local parent, children = run_of(id), root .. 'children:' .. id
            if parent and parent.feeds and is_over(parent) and call('ZCARD', children) == 1 then
                expiring[children] = parent.expires
                if is_past(parent) then put(OVER, id, parent.expires) end
            end
        end
    end

    -- What every end brings: slots set free, children released or doomed, the record dropped if it is not kept. How many
    -- were doomed.
    function after_end(run, was_running)
        expire_with_record(run)
        if run.wants_results then let_feeders_go(run) end
        if was_running and run.limits then free_slots(run) end
        if run.children then return settle_children(run, run.state == 'completed') end
        if is_past(run) then forget(run) end
        return 0
    end
end

-- End a run that no worker speaks for: cancelled, dropped or poisoned. How many dependents were cancelled with it.
local function end_by_store(run, state, failure)
    local was_running, worker = run.state == 'running', run.worker
    close_by_store(run, state, error_text(failure))
    if failure and state == 'failed' then note_error(run, run.attempt or 1, worker, failure) end
    tell_end(run)
    return after_end(run, was_running)
end
