-- needs: journal telling order limits endings placing
-- Takes verdicts, {id, epoch, kind, ...}:
--   settle    {id, epoch, 's', state, whether there is a result, failure or false, successors, whether its body never
--             began}; the result and the calls of the successors as bytes
--   requeue   {id, epoch, 'r', attempt, due, whether there are new arguments, failure or false, the failure if this crash
--             is one too many or false, whether its body never began}; the new arguments as bytes
-- Returns for each 'done', 'already', 'fenced' or 'yielded', or {run, reference} if a successor's parent is unknown.
local PRUNED = 2 -- how many records past their retention go for each verdict

local blob = BLOBS
local function next_blob()
    blob = blob + 1
    return ARGV[blob]
end

local function blobs_of(verdict)
    local blobs = {}
    local count = verdict[3] == 's' and #verdict[7] + (verdict[5] and 1 or 0) or (verdict[6] and 1 or 0)
    for n = 1, count do blobs[n] = next_blob() end
    return blobs
end

-- A claim that is void, or a verdict that was accepted before. The first one that was accepted stands.
local function why_not(run, verdict)
    if not run or run.epoch ~= verdict[2] then return 'fenced' end
    if verdict[3] == 's' then return run.state == verdict[4] and 'already' or 'fenced' end
    local went_again = (run.state == 'scheduled' or run.state == 'queued') and (run.attempt or 1) == verdict[4]
    local ended = run.state == 'cancelled' or (verdict[8] and run.state == 'failed')
    return (went_again or ended) and 'already' or 'fenced'
end

-- A run that was asked to stop, and ended before it heard of it, is not followed by another of its key.
local function place_successors(run, was_stopped, drafts, blobs, from)
    for n, draft in ipairs(drafts) do
        local name = draft.key or draft.id
        if not (was_stopped and name == name_of(run)) and not schedule(draft, blobs[from + n]) then return name end
    end
end

-- Take back the starts of a claim whose body never began; each wakes the next in line. A claim that took over a lapsed
-- lease has none: the body of the one before it may have begun.
local function give_back_starts(run)
    for _, limit in ipairs(run.limits or {}) do
        local set = limit[3] and key('starts', limit[1])
        local start = set and start_of(run, run.started + limit[3])
        if set and call('ZSCORE', set, start) then
            remove(set, start)
            wake_next(limit[1])
        end
    end
end

local function settle(run, state, result, failure, unbegun)
    close(run, state)
    run.error = error_text(failure)
    if result then
        run.has_result = true
        write(RESULT, run.id, result)
    end
    run.has_long_result = result and #result > LONG or nil
    if failure then note_error(run, run.attempt or 1, run.worker, failure) end
    tell_end(run)
    if unbegun then give_back_starts(run) end
    after_end(run, true)
end

local function requeue(run, verdict, arguments)
    local attempt, due, failure, poisoned, unbegun = verdict[4], verdict[5], verdict[7], verdict[8], verdict[9]
    if run.stop then
        -- It was asked to stop: it does not go again.
        settle(run, 'cancelled', nil, failure, unbegun)
        return 'done'
    end
    if poisoned then
        run.crashes = (run.crashes or 0) + 1
        if run.crashes >= (run.crash_limit or 3) then
            settle(run, 'failed', nil, poisoned)
            return 'done'
        end
    end
    withdraw(run)
    run.state, run.progress, run.reported_by, run.request = 'scheduled', nil, nil, nil
    if run.limits then free_slots(run) end
    if unbegun then give_back_starts(run) end
    for _, other in ipairs(live_of(name_of(run))) do
        if other.id ~= run.id and other.state ~= 'running' then
            -- The other has taken the key; what hung on this one is not the other's business.
            if run.children then settle_children(run, false) end
            forget(run)
            return 'yielded'
        end
    end
    if failure then
        note_error(run, run.attempt or 1, run.worker, failure)
        run.error = error_text(failure)
    end
    if arguments then
        local old = call('HGET', CALL, run.id)
        local new = old:sub(1, 4 + struct.unpack('>I4', old)) .. arguments
        write(CALL, run.id, new)
        note_size(run, new)
    end
    run.due, run.attempt, run.worker, run.started = moment(due), attempt ~= 1 and attempt or nil, nil, nil
    line_up(run)
    tell_pending(run)
    return 'done'
end

local function accept(verdict)
    local blobs, run = blobs_of(verdict), run_of(verdict[1])
    if not run or run.epoch ~= verdict[2] or run.state ~= 'running' then return why_not(run, verdict) end
    if verdict[3] == 'r' then return requeue(run, verdict, blobs[1]) end
    local has_result, was_stopped = verdict[5], run.stop
    settle(run, verdict[4], has_result and blobs[1], verdict[6], verdict[8])
    local stranded = place_successors(run, was_stopped, verdict[7], blobs, has_result and 1 or 0)
    return stranded and { stranded, unknown_parent } or 'done'
end

-- Whether a successor waits for others, which may not exist: then the verdict may have to be undone.
local function may_fail(verdict)
    if verdict[3] == 's' then
        for _, draft in ipairs(verdict[7]) do
            if draft.after then return true end
        end
    end
    return false
end

local function accept_alone(verdict)
    flush()
    local told, worked, begun = #events, work, has_begun
    local answer = accept(verdict)
    if type(answer) == 'table' then
        roll_back()
        for last = told + 1, #events do events[last] = nil end
        work, has_begun = worked, begun
    end
    flush()
    return answer
end

local ids, answers = {}, {}
for n, verdict in ipairs(request) do ids[n] = verdict[1] end
fetch(ids)
for n, verdict in ipairs(request) do
    answers[n] = may_fail(verdict) and accept_alone(verdict) or accept(verdict)
end

-- Records past their retention go as new ones come, so that none collect where nobody sweeps.
if is_real_time then
    local past = call('ZRANGEBYSCORE', OVER, '-inf', now, 'LIMIT', 0, PRUNED * #request)
    fetch(past)
    for _, id in ipairs(past) do
        local run = run_of(id)
        if not run then
            remove(OVER, id)
        elseif not run.children and is_past(run) then
            forget(run)
        end
    end
end
finish_script()
return cmsgpack.pack(answers)
