-- The journal. Lua is not rolled back, so nothing is written while a script decides: changes are gathered here, and
-- `flush` writes them at the end, with few commands for many runs. What goes wrong before leaves no trace.

local known = {}   -- records by id; false: there is none
local changed = {} -- ids of records to be written
local scores = {}  -- sorted set -> member -> score; false: to go
local grown = {}   -- sorted sets that something is to be added to
local fronts = {}  -- sorted set -> its first members, as far as read; how many of them go; whether these are all
local popped = {}  -- sorted set -> how many of its first members go, before anything else
local fields = {}  -- hash -> field -> value; false: to go
local pushed = {}  -- pairs of a list and what is added to it
local dropped = {} -- keys to go
local expiring = {} -- key -> when it may go, whether or not a worker is there; false: it stays
local entered = {} -- queues that something came into
local left = {}    -- queues that something went out of
local thinned = {} -- of what is counted: where a run was taken out
local has_begun = false -- a run was made live
local has_ended = false -- a run was over, or was forgotten
local work = false -- something new may be claimed, now or at a time not known before
local events = {}

local function put(set, member, score)
    local members = scores[set]
    if not members then
        members = {}
        scores[set] = members
    end
    members[member] = score
    if score then grown[set] = true end
end

local function remove(set, member) put(set, member, false) end

local function write(hash, field, value)
    local values = fields[hash]
    if not values then
        values = {}
        fields[hash] = values
    end
    values[field] = value
end

local function read(hash, field)
    local values = fields[hash]
    if values and values[field] ~= nil then return values[field] end
    return call('HGET', hash, field)
end

local function write_scores()
    for set, count in pairs(popped) do call('ZREMRANGEBYRANK', set, 0, count - 1) end
    popped = {}
    for set, members in pairs(scores) do
        local added, gone = {}, {}
        for member, score in pairs(members) do
            if score then
                added[#added + 1] = score
                added[#added + 1] = member
            else
                gone[#gone + 1] = member
            end
        end
        in_parts('ZREM', set, gone)
        in_parts('ZADD', set, added)
    end
    scores, grown, fronts = {}, {}, {}
end

local function write_records()
    for id in pairs(changed) do
        local run = known[id]
        if run then
            run.id = nil
            write(RUN, id, cmsgpack.pack(run))
            run.id = id
        else
            write(RUN, id, false)
        end
    end
    changed = {}
end

local function write_fields()
    for hash, values in pairs(fields) do
        local set, gone = {}, {}
        for field, value in pairs(values) do
            if value then
                set[#set + 1] = field
                set[#set + 1] = value
            else
                gone[#gone + 1] = field
            end
        end
        in_parts('HDEL', hash, gone)
        in_parts('HSET', hash, set)
    end
    fields = {}
end

local function write_lists()
    for _, pair in ipairs(pushed) do
        call('RPUSH', pair[1], pair[2])
        call('LTRIM', pair[1], -20, -1)
    end
    in_parts('DEL', KEYS[2], dropped)
    pushed, dropped = {}, {}
end

-- In tests time is the caller's, which the server's own expiry does not follow.
local function write_lifetimes()
    for each, moment in pairs(is_real_time and expiring or {}) do
        if moment then
            call('PEXPIREAT', each, math.ceil(moment / 1000))
        else
            call('PERSIST', each)
        end
    end
    expiring = {}
end

-- A queue in which nothing is left is forgotten, and with it the places of its groups.
local function write_queues()
    for queue in pairs(entered) do call('SADD', QUEUES, queue) end
    for queue in pairs(left) do
        if call('EXISTS', key('ready', queue), key('due', queue), key('lease', queue)) == 0 then
            call('SREM', QUEUES, queue)
            call('DEL', key('share', queue))
        end
    end
    entered, left = {}, {}
end

-- What is counted no longer has to be looked at once nothing is left of it.
local function write_counts()
    for bucket in pairs(thinned) do
        if call('EXISTS', counted_in(bucket)) == 0 then call('ZREM', COUNTED, bucket) end
    end
    thinned = {}
end

local function flush()
    write_records()
    write_fields()
    write_scores()
    write_counts()
    write_lists()
    write_lifetimes()
    write_queues()
end

-- Bytes by their value: Lua's own comparison of texts follows the server's locale. Eight at a time, as ids begin alike.
local function is_before(a, b)
    local shorter, from = math.min(#a, #b), 1
    while from + 7 <= shorter do
        local a1, a2 = struct.unpack('>I4I4', a, from)
        local b1, b2 = struct.unpack('>I4I4', b, from)
        if a1 ~= b1 then return a1 < b1 end
        if a2 ~= b2 then return a2 < b2 end
        from = from + 8
    end
    for n = from, shorter do
        local x, y = a:byte(n), b:byte(n)
        if x ~= y then return x < y end
    end
    return #a < #b
end

-- The first members of a sorted set that only gets smaller. One after the other is taken from its front, so what was read
-- is kept: to begin anew each time would take the square of their number.
local function first_left(set, changes, at_most)
    local kept = fronts[set] or { members = {}, gone = 0, is_all = false }
    fronts[set] = kept
    local found, n = {}, kept.gone + 1
    while #found < at_most do
        local member = kept.members[n]
        if member then
            if changes[member] == nil then
                found[#found + 1] = member
            elseif #found == 0 then
                kept.gone = n
            end
            n = n + 1
        elseif kept.is_all then
            break
        else
            local count = #kept.members
            local more = call('ZRANGE', set, count, count + math.max(count, at_most, 10) - 1)
            for _, each in ipairs(more) do kept.members[#kept.members + 1] = each end
            kept.is_all = #more == 0
        end
    end
    return found
end

-- The first members of a sorted set, at most so many, as this script leaves it.
local function first(set, at_most)
    local changes = scores[set]
    if not changes then return call('ZRANGE', set, 0, at_most - 1) end
    if not grown[set] then return first_left(set, changes, at_most) end
    local gone, found = 0, {}
    for _ in pairs(changes) do gone = gone + 1 end
    local stored = call('ZRANGE', set, 0, at_most + gone - 1, 'WITHSCORES')
    for n = 1, #stored, 2 do
        if changes[stored[n]] == nil then found[#found + 1] = { tonumber(stored[n + 1]), stored[n] } end
    end
    for member, score in pairs(changes) do
        if score then found[#found + 1] = { score, member } end
    end
    table.sort(found, function(a, b)
        if a[1] ~= b[1] then return a[1] < b[1] end
        return is_before(a[2], b[2])
    end)
    local members = {}
    for n = 1, math.min(at_most, #found) do members[n] = found[n][2] end
    return members
end

-- Records

local function unpacked(id, packed)
    if not packed then return false end
    local run = cmsgpack.unpack(packed)
    run.id = id
    return run
end

-- Read the records of many runs with one command.
local function fetch(ids)
    local missing = {}
    for _, id in ipairs(ids) do
        if known[id] == nil then missing[#missing + 1] = id end
    end
    for from = 1, #missing, AT_ONCE do
        local some = { unpack(missing, from, math.min(from + AT_ONCE - 1, #missing)) }
        for n, packed in ipairs(call('HMGET', RUN, unpack(some))) do known[some[n]] = unpacked(some[n], packed) end
    end
end

local function run_of(id)
    local run = known[id]
    if run == nil then
        run = unpacked(id, call('HGET', RUN, id))
        known[id] = run
    end
    return run
end

local function name_of(run) return run.key or run.id end

local OVER_STATES = { completed = true, failed = true, cancelled = true }
local function is_over(run) return OVER_STATES[run.state] or false end
local function is_past(run) return run.expires ~= nil and run.expires <= now end

-- Also unlike any that another history of this store has given: after a failover that lost it, a claim stays void.
local function next_epoch(run) return math.max((run.epoch or 0) + 1, now) end

-- Lists in records

local function without(list, value)
    local rest = {}
    for _, each in ipairs(list) do
        if each ~= value then rest[#rest + 1] = each end
    end
    return rest
end

local function contains(list, value)
    for _, each in ipairs(list or {}) do
        if each == value then return true end
    end
    return false
end
