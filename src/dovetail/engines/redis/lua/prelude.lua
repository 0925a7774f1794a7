-- Opens every script. All keys of a docket begin with its root, `{dovetail:<name>}:`, so that one slot holds them:
--
--   run              hash   id -> the record of a run, packed; it is all that a script has to know
--   call             hash   id -> what only the task has to know: its name, headers and arguments
--   result           hash   id -> what a run that is over has returned
--   errors:<id>      list   the error history of a run, packed, the newest last
--   all              zset   id by number: the order of arrival
--   over             zset   id by when its record may go: the runs that are over
--   live             hash   key -> ids of its live runs, for keys that are not the run's own id
--   names            zset   `<key> <number> <id>` of every run with such a key, in that order
--   queues           set    queues in which something is ready, due, or running
--   ready:<queue>    zset   rank by priority: what may be claimed, in claim order
--   due:<queue>      zset   id by due time: what is scheduled
--   lease:<queue>    zset   id by the end of its lease: what is running
--   share:<queue>    hash   `:<group>` -> its last place; the empty field is the queue's virtual time
--   slots:<limit>    zset   ids of the runs that hold a slot
--   starts:<limit>   zset   `<expires> <id> <epoch>` by time: recent starts under a windowed limit
--   closing          zset   limit by when the last of its starts leaves its window
--   parked:<limit>   zset   rank by priority: what waits for room, in claim order
--   parked           zset   limits that runs are parked on
--   openings         zset   limit by when its window opens for those parked on it
--   children:<id>    zset   ids of the runs that were made to wait for this one, by number
--   holds, pauses    hash   what is held: identity -> hold; queue -> until when, 0 for ever
--   version          string changes with the holds
--   workers, seen    hash, zset   id -> what a worker says of itself; id by when it was last heard of
--
-- Names of queues, limits and keys are encoded where they become part of a key or of a member. The two KEYS never exist:
-- they make a cluster refuse the script while it moves the slot, when a part of the docket would be elsewhere.
--
-- Lua is not rolled back. So nothing is written while a script decides: changes are gathered in a journal, which `flush`
-- writes at the end, with few commands for many runs. What goes wrong before leaves no trace.

local root, call = KEYS[1], redis.call

-- The first write of a script decides whether it may run when memory is full. Redis 6.2 has no flag for that.
if ARGV[2] == 'free first' then call('DEL', KEYS[2]) end

-- Microseconds since 1970: the server's own, or, in tests, the caller's.
local now = tonumber(ARGV[1])
local is_real_time = not now
if is_real_time then
    local time = call('TIME')
    now = time[1] * 1000000 + time[2]
end

local request = cmsgpack.unpack(ARGV[3])
local BLOBS = 3 -- arguments before the first that is bytes

local EXACT = 9007199254740992 -- 2^53: whole numbers beyond it are kept as text
local AT_ONCE = 500            -- members in one command

local encoded = {}
local function encode(name)
    local known = encoded[name]
    if not known then
        known = name:gsub('[^%w_.-]', function(c) return string.format('%%%02X', c:byte()) end)
        encoded[name] = known
    end
    return known
end

local function key(kind, name) return root .. kind .. ':' .. encode(name) end

local RUN, CALL, RESULT, ALL, OVER = root .. 'run', root .. 'call', root .. 'result', root .. 'all', root .. 'over'
local LIVE, NAMES, QUEUES, PARKED = root .. 'live', root .. 'names', root .. 'queues', root .. 'parked'
local OPENINGS, CLOSING, HOLDS, PAUSES = root .. 'openings', root .. 'closing', root .. 'holds', root .. 'pauses'
local VERSION, WORKERS, SEEN = root .. 'version', root .. 'workers', root .. 'seen'

-- The journal

local known = {}   -- records by id; false: there is none
local changed = {} -- ids of records to be written
local scores = {}  -- sorted set -> member -> score; false: to go
local fields = {}  -- hash -> field -> value; false: to go
local pushed = {}  -- pairs of a list and what is added to it
local dropped = {} -- keys to go
local expiring = {} -- key -> when it may go, whether or not a worker is there; false: it stays
local touched = {} -- queues that something entered or left
local work = false -- something new may be claimed, now or at a time not known before
local events = {}

local function put(set, member, score)
    local members = scores[set]
    if not members then
        members = {}
        scores[set] = members
    end
    members[member] = score
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

-- Give a command its arguments, some at a time.
local function in_parts(command, target, arguments)
    for from = 1, #arguments, AT_ONCE do
        call(command, target, unpack(arguments, from, math.min(from + AT_ONCE - 1, #arguments)))
    end
end

local function write_scores()
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
    scores = {}
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
    for queue in pairs(touched) do
        if call('EXISTS', key('ready', queue), key('due', queue), key('lease', queue)) > 0 then
            call('SADD', QUEUES, queue)
        else
            call('SREM', QUEUES, queue)
            call('DEL', key('share', queue))
        end
    end
    touched = {}
end

local function flush()
    write_records()
    write_fields()
    write_scores()
    write_lists()
    write_lifetimes()
    write_queues()
end

-- Bytes by their value: Lua's own comparison of texts follows the server's locale.
local function is_before(a, b)
    for n = 1, math.min(#a, #b) do
        local x, y = a:byte(n), b:byte(n)
        if x ~= y then return x < y end
    end
    return #a < #b
end

-- The first members of a sorted set, at most so many, as this script leaves it.
local function first(set, at_most)
    local changes = scores[set]
    if not changes then return call('ZRANGE', set, 0, at_most - 1) end
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
