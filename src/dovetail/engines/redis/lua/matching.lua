-- Which runs a query means. It is the request: ids, keys, states, queues, queues to leave out, tasks, groups (empty:
-- any), the header of tags and what to find in it, the beginning of the key, worker, parent, created after and before,
-- due before, error text (false: any), whether only the newest of a key counts, newest first, limit, cursor or false.
local EXAMINED = 400

local ids, keys, states, queues, without_queues, tasks, groups, tags_header, tags, prefix, worker, parent,
    created_after, created_before, due_before, error_part, latest, newest_first, limit, cursor = unpack(request, 1, 20)

local function set_of(list)
    if #list == 0 then return nil end
    local set = {}
    for _, each in ipairs(list) do set[each] = true end
    return set
end

local wanted = {
    ids = set_of(ids), keys = set_of(keys), states = set_of(states), queues = set_of(queues), tasks = set_of(tasks),
    groups = set_of(groups),
}
local unwanted_queues = set_of(without_queues) or {}

local function entries_of(name)
    local text = encode(name)
    return call('ZRANGEBYLEX', NAMES, '[' .. text .. ' ', '(' .. text .. '!')
end

local function is_newest(run)
    local text = encode(name_of(run))
    local entry = call('ZREVRANGEBYLEX', NAMES, '(' .. text .. '!', '[' .. text .. ' ', 'LIMIT', 0, 1)[1]
    return not entry or tonumber(entry:match('^%S+ (%d+) ')) <= run.seq
end

local function is_of_a_wanted_task(run) return wanted.tasks[task_of(run)] end

local function has_tags(run)
    local _, headers = head_of(run)
    local written = headers[tags_header]
    if type(written) ~= 'string' then return false end
    written = ',' .. written:sub(2)
    for _, tag in ipairs(tags) do
        if not written:find(tag, 1, true) then return false end
    end
    return true
end

-- Strings are found as they are; the last three look elsewhere, so they come last.
local function matches(run)
    return not is_past(run)
        and (not wanted.ids or wanted.ids[run.id])
        and (not wanted.keys or wanted.keys[name_of(run)])
        and (not wanted.states or wanted.states[run.state])
        and (not wanted.queues or wanted.queues[run.queue])
        and not unwanted_queues[run.queue]
        and (not wanted.groups or (run.group and wanted.groups[run.group]))
        and (not prefix or name_of(run):sub(1, #prefix) == prefix)
        and (not worker or run.worker == worker)
        and (not parent or contains(run.parents, parent))
        and (not created_after or run.created > created_after)
        and (not created_before or run.created < created_before)
        and (not due_before or due_of(run) < due_before)
        and (not error_part or (run.error and run.error:find(error_part, 1, true)))
        and (not wanted.tasks or is_of_a_wanted_task(run))
        and (#tags == 0 or has_tags(run))
        and (not latest or is_newest(run))
end

-- Whether only live runs are asked for, and there are none: a docket that is done is asked this often.
local function is_done()
    if not wanted.states then return false end
    for _, state in ipairs(states) do
        if OVER_STATES[state] then return false end
    end
    return call('ZCARD', ALL) == call('ZCARD', OVER)
end

-- Ids of the runs that are running, by their leases; nothing if there are too many for one call.
local function running()
    local found = {}
    if call('SCARD', QUEUES) > EXAMINED then return nil end
    for _, queue in ipairs(call('SMEMBERS', QUEUES)) do
        for _, id in ipairs(call('ZRANGE', key('lease', queue), 0, EXAMINED)) do found[#found + 1] = id end
        if #found > EXAMINED then return nil end
    end
    return found
end

-- Ids that can match at all, if the query names them; nothing if every run has to be looked at.
local function candidates()
    if wanted.ids then return ids end
    if wanted.keys then
        local named = {}
        for _, name in ipairs(keys) do
            for _, entry in ipairs(entries_of(name)) do named[#named + 1] = entry:match('^%S+ %d+ (.*)$') end
            named[#named + 1] = name -- a run that is called by its id
        end
        return named
    end
    if parent then return call('ZRANGE', root .. 'children:' .. parent, 0, -1) end
    if #states == 1 and states[1] == 'running' then return running() end
end

-- The next runs in the order of arrival, whether there are no more, and the number of the last that was looked for: its
-- record may be gone, evicted or removed by hand, and the next call goes on behind it all the same.
local function next_runs()
    if is_done() then return {}, true end
    local named = candidates()
    local runs = {}
    if named then
        fetch(named)
        local seen = {}
        for _, id in ipairs(named) do
            local run = run_of(id)
            local is_ahead = run and (not cursor or (newest_first and run.seq < cursor) or (not newest_first and run.seq > cursor))
            if is_ahead and not seen[id] then
                seen[id] = true
                runs[#runs + 1] = run
            end
        end
        table.sort(runs, function(a, b)
            if newest_first then return a.seq > b.seq end
            return a.seq < b.seq
        end)
        return runs, true
    end
    local from = cursor and '(' .. string.format('%.0f', cursor)
    local found
    if newest_first then
        found = call('ZREVRANGEBYSCORE', ALL, from or '+inf', '-inf', 'LIMIT', 0, EXAMINED)
    else
        found = call('ZRANGEBYSCORE', ALL, from or '-inf', '+inf', 'LIMIT', 0, EXAMINED)
    end
    fetch(found)
    for _, id in ipairs(found) do
        if run_of(id) then runs[#runs + 1] = run_of(id) end
    end
    return runs, #found < EXAMINED, tonumber(#found > 0 and call('ZSCORE', ALL, found[#found]) or nil)
end

-- The next runs that are meant, the number of the last that was looked at, and whether there are no more.
local function chosen()
    local runs, is_end, looked_for = next_runs()
    local found, last = {}, cursor
    for _, run in ipairs(runs) do
        if #found == limit then return found, last, false end
        if matches(run) then found[#found + 1] = run end
        last = run.seq
    end
    return found, looked_for or last, is_end
end
