-- The short way for runs that nothing can stand in the way of: each is called by its id, and has no group, limits or parents.
-- Takes some hundred drafts at most; the call of each as bytes, in the same order. Returns their states, or nothing, and nothing is done, if
-- somebody used one of the ids as a key: then it takes the long way.
local ids = {}
for n, draft in ipairs(request) do ids[n] = draft.id end

if call('EXISTS', LIVE) == 1 then
    for _, taken in ipairs(call('HMGET', LIVE, unpack(ids))) do
        if taken then return false end
    end
end

local states = {} -- by id: a request may be made again, and in its own batch, too
for n, kept in ipairs(call('HMGET', RUN, unpack(ids))) do
    if kept then states[ids[n]] = cmsgpack.unpack(kept).state end
end

local listens = call('PUBSUB', 'NUMSUB', root .. 'state', root .. 'keyed')
local tells_all, tells_keys = listens[2] > 0, listens[4] > 0

local places = {}
local function place_in(queue)
    if not places[queue] then places[queue] = tonumber(call('HGET', key('share', queue), '') or 0) end
    return places[queue]
end

local records, calls, numbers, waiting, events = {}, {}, {}, {}, {}
local number = tonumber(call('ZREVRANGE', ALL, 0, 0, 'WITHSCORES')[2] or 0)

local function wait_in(set, score, member)
    local members = waiting[set] or {}
    waiting[set] = members
    members[#members + 1] = score
    members[#members + 1] = member
end

local function place(run, id, blob)
    local queue = run.queue
    number = number + 1
    run.due, run.created, run.seq, run.conflict = moment(run.due), now, number, nil
    if tonumber(run.due) <= now then
        run.state = 'queued'
        local place = place_in(queue)
        if place ~= 0 then run.place = place end
        wait_in(key('ready', queue), -(run.priority or 0), rank(run))
    else
        run.state = 'scheduled'
        wait_in(key('due', queue), due_of(run), id)
    end
    states[id] = run.state
    note_size(run, blob)
    run.id = nil
    local n = #records
    records[n + 1], records[n + 2] = id, cmsgpack.pack(run)
    calls[n + 1], calls[n + 2] = id, blob
    numbers[n + 1], numbers[n + 2] = number, id
    if tells_all or tells_keys then
        events[#events + 1] = { kind = 'state', key = id, id = id, state = run.state, when = run.due }
    end
end

local queues = {}
local answers = {}
for n, draft in ipairs(request) do
    local id = ids[n]
    if not states[id] then
        queues[draft.queue] = true
        place(draft, id, ARGV[BLOBS + n])
    end
    answers[n] = states[id]
end
if #records == 0 then return cmsgpack.pack(answers) end

in_parts('HSET', RUN, records)
in_parts('HSET', CALL, calls)
in_parts('ZADD', ALL, numbers)
for set, members in pairs(waiting) do in_parts('ZADD', set, members) end
for queue in pairs(queues) do call('SADD', QUEUES, queue) end
if is_real_time and call('PTTL', ALL) >= 0 then
    for _, each in ipairs(keys_of_the_past()) do call('PERSIST', each) end
end
call('PUBLISH', root .. 'work', '')
if tells_all then call('PUBLISH', root .. 'state', cmsgpack.pack(events)) end
for _, event in ipairs(tells_keys and events or {}) do
    call('PUBLISH', root .. 'state:' .. encode(event.key), cmsgpack.pack({ event }))
end
return cmsgpack.pack(answers)
