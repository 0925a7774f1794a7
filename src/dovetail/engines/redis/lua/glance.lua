-- needs: journal order calls
-- Takes how many runs to show, and how many of those that are over to look at.
-- Returns {now, {queue, queued, scheduled, running, since when the first is due, or false}, waiting, parked, kept, running
-- runs, failed runs}, then the workers: what each says, and when it was seen. A run is {id, key, task, queue, state, attempt,
-- worker, started, finished, lease, error}.
local shown, examined = request[1], request[2]
local MOST = 500 -- queues, or limits, that one call looks at

local function told(run, lease)
    return {
        run.id, name_of(run), task_of(run), run.queue, run.state, run.attempt or 1, run.worker or false,
        run.started or false, run.finished or false, lease or false, run.error or false,
    }
end

-- What has become due joins the others only when somebody claims.
local function first_due(ready, due)
    local run = ready[1] and run_of(id_of(ready[1]))
    local since = run and due_of(run)
    local scheduled = tonumber(due[2])
    if scheduled and scheduled <= now and (not since or scheduled < since) then since = scheduled end
    return since or false
end

local queues, leases, live = {}, {}, 0
local names = call('SMEMBERS', QUEUES)
local from_each = math.max(1, math.floor(10 * shown / math.max(#names, 1)))
for n = 1, math.min(#names, MOST) do
    local name = names[n]
    local ready, due, lease = key('ready', name), key('due', name), key('lease', name)
    local queued, scheduled, running = call('ZCARD', ready), call('ZCARD', due), call('ZCARD', lease)
    local since = first_due(call('ZRANGE', ready, 0, 0), call('ZRANGE', due, 0, 0, 'WITHSCORES'))
    queues[n] = { name, queued, scheduled, running, since }
    live = live + queued + scheduled + running
    local held = call('ZRANGE', lease, 0, math.min(from_each, shown) - 1, 'WITHSCORES')
    for m = 1, #held, 2 do leases[#leases + 1] = { tonumber(held[m + 1]), held[m] } end
end

local parked = 0
for _, limit in ipairs(call('ZRANGE', PARKED, 0, MOST - 1)) do parked = parked + call('ZCARD', key('parked', limit)) end

table.sort(leases, function(a, b) return a[1] < b[1] end)
local running = {}
for n = 1, math.min(#leases, shown) do
    local run = run_of(leases[n][2])
    if run then running[#running + 1] = told(run, leases[n][1]) end
end

local over = call('ZREVRANGE', OVER, 0, examined - 1)
fetch(over)
local failures = {}
for _, id in ipairs(over) do
    local run = run_of(id)
    if run and run.state == 'failed' and not is_past(run) then failures[#failures + 1] = run end
end
table.sort(failures, function(a, b) return (a.finished or 0) > (b.finished or 0) end)
local failed = {}
for n = 1, math.min(#failures, shown) do failed[n] = told(failures[n]) end

-- Who waits for parents stands nowhere but among all.
local kept = call('ZCARD', OVER)
local waiting = math.max(call('ZCARD', ALL) - kept - live - parked, 0)
if #names > MOST then waiting = 0 end
local answer = { cmsgpack.pack({ now, queues, waiting, parked, kept, running, failed }) }
local seen = call('ZREVRANGE', SEEN, 0, -1, 'WITHSCORES')
for n = 1, #seen, 2 do
    local said = call('HGET', WORKERS, seen[n])
    if said then
        answer[#answer + 1] = said
        answer[#answer + 1] = seen[n + 1]
    end
end
return answer
