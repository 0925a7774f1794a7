-- Opens every script. All keys of a docket begin with its root, `{dovetail:<name>}:`, so that one slot holds them:
--
--   run              hash   id -> the record of a run, packed; it is all that a script has to know
--   call             hash   id -> what only the task has to know: its name, headers and arguments
--   result           hash   id -> what a run that is over has returned
--   errors:<id>      list   the error history of a run, packed, the newest last
--   all              zset   id by number: the order of arrival
--   over             zset   id by when its record may go: the runs that are over
--   counted          zset   `<task>:<state>` of runs that are kept by count, by how many stay
--   counted:<task>:<state>  zset   id by when it ended: those runs
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
--   origin           string when the first of these workers came
--
-- Names of queues, limits and keys are encoded where they become part of a key or of a member. The two KEYS never exist:
-- they make a cluster refuse the script while it moves the slot, when a part of the docket would be elsewhere.
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
local LATEST, EARLIEST = 253402300799999999, -62135596800000000 -- the ends of the calendar

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
local VERSION, WORKERS, SEEN, COUNTED = root .. 'version', root .. 'workers', root .. 'seen', root .. 'counted'

local function counted_in(bucket) return COUNTED .. ':' .. bucket end

-- The keys that hold what is over: while nothing is live, they go when the last of it may.
local function keys_of_the_past()
    local keys = { RUN, CALL, RESULT, ALL, OVER, NAMES, COUNTED }
    for _, bucket in ipairs(call('ZRANGE', COUNTED, 0, -1)) do keys[#keys + 1] = counted_in(bucket) end
    return keys
end

-- Give a command its arguments, some at a time.
local function in_parts(command, target, arguments)
    for from = 1, #arguments, AT_ONCE do
        call(command, target, unpack(arguments, from, math.min(from + AT_ONCE - 1, #arguments)))
    end
end

-- A moment is text; a delay is a number. Beyond 2^53 a number is not exact, so there the text is kept.
local function moment(due)
    if type(due) == 'string' then
        local number = tonumber(due)
        return math.abs(number) < EXACT and number or due
    end
    local number = math.min(math.max(now + due, EARLIEST), LATEST)
    return math.abs(number) < EXACT and number or string.format('%.0f', number)
end

-- A record says how long its call is if that is long, and that its result is: a claim brings only so much at a time.
local LONG = 16384
local function note_size(run, blob) run.size = #blob > LONG and #blob or nil end

local function due_of(run) return tonumber(run.due) end

-- What a run sorts by among those of its priority: place, due time, id. The id begins at its 18th byte.
local function rank(run)
    local due = due_of(run)
    if due < 0 then return struct.pack('>dBd', run.place or 0, 0, due + 1e17) .. run.id end
    return struct.pack('>dBd', run.place or 0, 1, due) .. run.id
end
