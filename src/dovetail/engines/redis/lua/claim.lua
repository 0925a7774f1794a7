-- needs: journal telling order limits endings calls
-- Takes worker, want, queues (none: all), lease, whether no lease counts as lapsed, the request's id, and whether it is
-- made again because its answer was lost; the latest that the clock may show unless it leapt; and how long a run has to
-- be due for its priority to count as one more, or false.
-- Returns {wait, now, whether the clock leapt, claims, how many leases had lapsed, the tasks that were poisoned}, packed;
-- the calls in the order of the claims; and, if there is any, what was returned to those that want results: the number of
-- the claim, from nought, the id of the parent, the head of its call, the result.
local worker, want, queues, lease, grace, asked, again, latest, ageing = unpack(request, 1, 9)

local PROMOTED = 150 -- how many runs that became due join the ready order in one call
local EXAMINED = 150 -- how many ready runs one call looks at beyond those it may hand out
local CARRIED = 2097152 -- bytes of calls that it hands out, roughly
local LAPSED = 100   -- how many lapsed leases it looks at
local LEVELS = 64    -- how many priorities of a queue it looks at when runs age
local OPENED = 20    -- how many windows it opens
local RECENT = 5000  -- how many leases are looked through for those of a request that is made again
local TOGETHER = 40  -- how many queues one command asks for
local REPEATED = 60000000 -- microseconds within which a request is made again

local until_when = now + lease
local leapt = is_real_time and latest and now > latest or false
grace = grace or leapt
local claims, ids = {}, {}
local lapses, poisoned = 0, {}
local receivers = {} -- pairs of the number of a claim that wants results, and the ids of its parents
local carried = 0

-- Whether a run would make the answer so large that it is left for the next call. One is never too many.
local function is_too_much(run) return #claims > 0 and carried + (run.size or 0) > CARRIED end

local function hand_over(run, redelivered)
    claims[#claims + 1] = {
        run.id, run.epoch, run.key or false, run.attempt or 1, run.due, run.queue, run.priority or 0,
        run.group or false, redelivered, run.crashes or 0,
    }
    if run.wants_results then receivers[#receivers + 1] = { #ids, run.parents or {} } end
    ids[#ids + 1] = run.id
    carried = carried + (run.size or 0)
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

local takes_all, paused = #queues == 0, {} -- paused: queue -> when its pause ends, 0 for never
local next_resumed -- when the first pause of these queues ends

local function open_queues()
    if takes_all then queues = call('SMEMBERS', QUEUES) end
    local pauses = call('HGETALL', PAUSES)
    for n = 1, #pauses, 2 do
        local ends = tonumber(pauses[n + 1])
        if ends == 0 or ends > now then paused[pauses[n]] = ends end
    end
    local open, is_known = {}, {}
    -- From another one each time: what is bounded must not always end before the same queues.
    local from = #queues > 0 and now % #queues or 0
    for n = 1, #queues do
        local queue = queues[(from + n - 1) % #queues + 1]
        local ends = paused[queue]
        if not ends and not is_known[queue] then
            open[#open + 1] = queue
            is_known[queue] = true -- named twice, it counts once
        elseif ends and ends > 0 then
            next_resumed = math.min(next_resumed or ends, ends)
        end
    end
    return open
end

-- Those of the queues that have a set of this kind, roughly: one command asks for many, so that thousands of queues with
-- nothing in them take little time.
local function those_with(kind, open)
    if #open < TOGETHER then return open end
    local found = {}
    for from = 1, #open, TOGETHER do
        local to, sets = math.min(from + TOGETHER - 1, #open), {}
        for n = from, to do sets[#sets + 1] = key(kind, open[n]) end
        if call('EXISTS', unpack(sets)) > 0 then
            for n = from, to do found[#found + 1] = open[n] end
        end
    end
    return found
end

-- Entries are {negated priority, place, sign of the due time, due time, id, queue}.
local function comes_first(a, b)
    for n = 1, 4 do
        if a[n] ~= b[n] then return a[n] < b[n] end
    end
    return is_before(a[5], b[5])
end

local function entry(priority, member, queue)
    local place, sign, due = struct.unpack('>dBd', member)
    return { priority, place, sign, due, id_of(member), queue }
end

-- The claims that this very request has made before.
local function hand_over_again(open)
    local found, bound = {}, RECENT
    local since = string.format('%.0f', until_when - REPEATED)
    for _, queue in ipairs(those_with('lease', open)) do
        if bound <= 0 then break end
        local recent = call('ZREVRANGEBYSCORE', key('lease', queue), '+inf', since, 'LIMIT', 0, bound)
        bound = bound - #recent
        fetch(recent)
        for _, id in ipairs(recent) do
            local run = run_of(id)
            if run and run.request == asked then found[#found + 1] = entry(negated_priority(run), rank(run)) end
        end
    end
    table.sort(found, comes_first)
    for _, each in ipairs(found) do
        local run = run_of(each[5])
        hand_over(run, (run.crashes or 0) > 0)
    end
end

local take_over
do
    local function poison(crashes)
        return { 'Poisoned',
            'the run was started ' .. crashes .. ' times, and each time its worker vanished without a word', '' }
    end

    function take_over(run)
        local crashes = (run.crashes or 0) + 1
        if run.stop then
            end_by_store(run, 'cancelled')
        elseif crashes >= (run.crash_limit or 3) then
            run.crashes = crashes
            poisoned[#poisoned + 1] = task_of(run) -- before it ends: its call may go with it
            end_by_store(run, 'failed', poison(crashes))
        elseif #claims < want and not is_too_much(run) then
            run.crashes = crashes
            start(run, true)
        else
            return false
        end
        lapses = lapses + 1
        return true
    end
end

-- The members of a set whose moment has come, at most so many; if none has, the next is noted for when there is nothing to claim.
local ahead = {} -- set -> its first moment; false: it is empty
local function those_due(set, at_most)
    local first_one = tonumber(call('ZRANGE', set, 0, 0, 'WITHSCORES')[2])
    if first_one and first_one <= now then return call('ZRANGEBYSCORE', set, '-inf', now, 'LIMIT', 0, at_most) end
    ahead[set] = first_one or false
    return {}
end

-- Runs whose lease lapsed: each goes on here, unless it was asked to stop or has crashed too often.
local function take_over_lapsed(open)
    local bound = want + LAPSED
    local looked_at_all = true
    for _, queue in ipairs(those_with('lease', open)) do
        local leases = key('lease', queue)
        local lapsed = those_due(leases, bound)
        fetch(lapsed)
        bound = bound - #lapsed
        for _, id in ipairs(lapsed) do
            if run_of(id) then
                looked_at_all = take_over(run_of(id)) and looked_at_all
            else
                remove(leases, id)
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
    for _, queue in ipairs(those_with('due', open)) do
        if room <= 0 then break end
        local waiting = key('due', queue)
        local due = those_due(waiting, room)
        fetch(due)
        room = room - #due
        for _, id in ipairs(due) do
            local run = run_of(id)
            remove(waiting, id)
            left[queue] = true
            if run then
                make_ready(run)
                tell_pending(run)
            end
        end
    end
    return room > 0
end

-- A block of its own, as a function has no more than 200 local names.
local look_into, first_ready
do
    -- The ready runs of all queues, merged: of each queue a few are read, and more only when these are used up. The heads
    -- are a heap of queues, the first on top. A head is {its lines, which of them is first, whether it is void}, a line
    -- {entries, which of them is next, how many were read, queue, priority}. When runs age, each priority of a queue has a
    -- line of its own.

    local heads, head_of = {}, {}

    local function front(line) return line[1][line[2]] end

    -- A place means nothing beyond its queue, so that between queues the due time decides.
    local function is_ahead(head, other)
        local a, b = front(head[2]), front(other[2])
        if a[1] ~= b[1] then return a[1] < b[1] end
        if a[3] ~= b[3] then return a[3] < b[3] end
        if a[4] ~= b[4] then return a[4] < b[4] end
        return is_before(a[5], b[5])
    end

    local function sift_up(head)
        local n = #heads + 1
        while n > 1 do
            local above = math.floor(n / 2)
            if not is_ahead(head, heads[above]) then break end
            heads[n], n = heads[above], above
        end
        heads[n] = head
    end

    local function sift_down(head)
        local n, count = 1, #heads
        while 2 * n <= count do
            local below = 2 * n
            if below < count and is_ahead(heads[below + 1], heads[below]) then below = below + 1 end
            if not is_ahead(heads[below], head) then break end
            heads[n], n = heads[below], below
        end
        heads[n] = head
    end

    local function drop_top()
        local last = table.remove(heads)
        if #heads > 0 then sift_down(last) end
    end

    local read_more
    do
        -- The entry as it counts by its age; but no higher than the one before it, so that among those of a priority the order stays.
        local function aged(each, before)
            local due = each[3] == 0 and each[4] - 1e17 or each[4]
            each[1] = math.max(before, each[1] - math.floor(math.max(now - due, 0) / ageing))
            return each
        end

        local function members_of(line, count)
            local set, from, level = key('ready', line[4]), line[3], line[5]
            if level then return call('ZRANGEBYSCORE', set, level, level, 'WITHSCORES', 'LIMIT', from, count) end
            return call('ZRANGE', set, from, from + count - 1, 'WITHSCORES')
        end

        -- Read the next members of a line; whether there are any.
        function read_more(line, count)
            local before, entries = line[1] and line[1][#line[1]][1] or -math.huge, {}
            local members = members_of(line, count)
            for n = 1, #members, 2 do
                local each = entry(tonumber(members[n + 1]), members[n], line[4])
                if ageing then
                    each[7] = members[n]
                    before = aged(each, before)[1]
                end
                entries[#entries + 1] = each
            end
            line[1], line[2], line[3] = entries, 1, line[3] + #entries
            return #entries > 0
        end
    end

    -- The priorities that a queue has, negated, the highest first.
    local function levels_of(queue)
        local levels, after = {}, '-inf'
        while #levels < LEVELS do
            local level = call('ZRANGEBYSCORE', key('ready', queue), after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]
            if not level then break end
            levels[#levels + 1], after = level, '(' .. level
        end
        return levels
    end

    -- Find out which of the lines of a queue is first; whether there is one.
    local function line_up(head)
        head[2] = nil
        for _, line in ipairs(head[1]) do
            if front(line) and (not head[2] or comes_first(front(line), front(head[2]))) then head[2] = line end
        end
        return head[2]
    end

    function look_into(queue, count)
        if head_of[queue] then head_of[queue][3] = true end
        local head = { {}, nil, false }
        head_of[queue] = head
        for _, level in ipairs(ageing and levels_of(queue) or { false }) do
            local line = { nil, nil, 0, queue, level }
            if read_more(line, count) then table.insert(head[1], line) end
        end
        if line_up(head) then sift_up(head) end
    end

    -- The first of all queues together, in claim order.
    function first_ready(at_most)
        local found = {}
        while #found < at_most and #heads > 0 do
            local head = heads[1]
            if head[3] then
                drop_top()
            else
                local line = head[2]
                found[#found + 1] = front(line)
                line[2] = line[2] + 1
                if not front(line) and #found < at_most then read_more(line, math.min(2 * line[3], at_most - #found)) end
                if line_up(head) then sift_down(head) else drop_top() end
            end
        end
        return found
    end
end

local function refuse(run, limit, opens)
    local turn = run.turn
    left[run.queue] = true
    if limit[4] then
        end_by_store(run, 'cancelled', { 'Dropped', 'the limit ' .. limit[1] .. ' had no room, and cancels what it does not admit' })
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
    for n, each in ipairs(entries) do entry_ids[n] = each[5] end
    fetch(entry_ids)
    local windowed, is_full = {}, false
    for _, each in ipairs(entries) do
        local run, limit, opens = run_of(each[5]), nil, nil
        is_full = run and is_too_much(run)
        if is_full then break end
        local set = key('ready', each[6])
        if ageing then
            remove(set, each[7])
        else
            -- They are the first of their queues, so they go by rank: to look for each takes long in a long queue.
            popped[set] = (popped[set] or 0) + 1
        end
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
    local stirred = entered
    for _, each in ipairs(entries) do stirred[each[6]] = true end
    flush()
    started = {}
    return stirred, is_full
end

-- Add claims until there are as many as wanted; whether everything that is ready was looked at.
local function take_ready(open)
    local is_open, examined = {}, 0
    local share = math.ceil((want - #claims) / math.max(#open, 1))
    for _, queue in ipairs(open) do is_open[queue] = true end
    for _, queue in ipairs(#claims < want and those_with('ready', open) or {}) do look_into(queue, share) end
    while #claims < want do
        local entries = first_ready(want - #claims)
        if #entries == 0 then return true end
        if examined > EXAMINED then return false end
        local stirred, is_full = start_admitted(entries)
        examined = examined + #entries
        if is_full then return false end
        if #claims == want then return true end
        for queue in pairs(stirred) do
            -- A run that was dropped may have set others free, in a queue that had nothing.
            local may_take = is_open[queue] or (takes_all and not paused[queue])
            if may_take then look_into(queue, math.min(share, want - #claims)) end
        end
    end
    return true
end

-- How long until something known becomes due: a future run, a window that opens, a lease that lapses, a pause that ends.
local function next_wait(open)
    local next_one = tonumber(call('ZRANGE', OPENINGS, 0, 0, 'WITHSCORES')[2])
    local function consider(moment)
        if moment and (not next_one or moment < next_one) then next_one = moment end
    end
    local function consider_first(set, after)
        local noted = ahead[set]
        if noted == nil then noted = tonumber(call('ZRANGEBYSCORE', set, after, '+inf', 'WITHSCORES', 'LIMIT', 0, 1)[2]) end
        consider(noted)
    end
    consider(next_resumed)
    if #claims > 0 then consider(until_when) end
    for _, queue in ipairs(those_with('due', open)) do consider_first(key('due', queue), '-inf') end
    local not_yet = '(' .. string.format('%.0f', now)
    for _, queue in ipairs(those_with('lease', open)) do consider_first(key('lease', queue), not_yet) end
    return next_one and math.max(next_one - now, 0) or false
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

local returned_to
do
    -- Whether a parent has a result that is small enough to go along; the head of its call goes along as well. Past its
    -- retention it is kept for its children alone, and can be had in no other way, whatever its size.
    local function gives(parent)
        return parent and parent.state == 'completed' and not parent.error
            and (is_past(parent) or not (parent.has_long_result or parent.size))
    end

    local function add(returned, numbers, ids)
        local calls, results = call('HMGET', CALL, unpack(ids)), call('HMGET', RESULT, unpack(ids))
        for n, id in ipairs(ids) do
            local head = calls[n] and calls[n]:sub(1, 4 + struct.unpack('>I4', calls[n]))
            if head and (results[n] or not run_of(id).has_result) then
                local last = #returned
                returned[last + 1], returned[last + 2] = numbers[n], id
                returned[last + 3], returned[last + 4] = head, results[n]
            end
        end
    end

    -- What the parents of those that want results have returned, some at a time.
    function returned_to()
        local returned, numbers, ids, parents = {}, {}, {}, {}
        for _, receiver in ipairs(receivers) do
            for _, id in ipairs(receiver[2]) do parents[#parents + 1] = id end
        end
        fetch(parents)
        for _, receiver in ipairs(receivers) do
            for _, id in ipairs(receiver[2]) do
                if gives(run_of(id)) then numbers[#numbers + 1], ids[#ids + 1] = receiver[1], id end
                if #ids == AT_ONCE then
                    add(returned, numbers, ids)
                    numbers, ids = {}, {}
                end
            end
        end
        if #ids > 0 then add(returned, numbers, ids) end
        return returned
    end
end

local wait = claim()
local calls = #ids > 0 and call('HMGET', CALL, unpack(ids)) or {}
local answer = { '', calls, #receivers > 0 and returned_to() or nil }
finish_script()
answer[1] = cmsgpack.pack({ wait, now, leapt, claims, lapses, poisoned })
return answer
