-- needs: journal order workers
-- Takes the number of the run before the first to look at. Returns {now, number of the last, whether it was the last,
-- {queue, state, count, oldest due, ...}}, then, on the first call, the workers: what each says, and when it was seen.
local EXAMINED = 500
local after = request[1]

local found = call('ZRANGEBYSCORE', ALL, '(' .. string.format('%.0f', after), '+inf', 'LIMIT', 0, EXAMINED)
fetch(found)
local counts, last = {}, after
for _, id in ipairs(found) do
    local run = run_of(id)
    if run then
        if not is_past(run) then
            -- What has become due joins the others only when somebody claims.
            local is_due = run.state == 'scheduled' and not run.parked and due_of(run) <= now
            local state = is_due and 'queued' or run.state
            local name = state .. ' ' .. run.queue
            local count = counts[name]
            if not count then
                count = { run.queue, state, 0, run.due }
                counts[name] = count
            end
            count[3] = count[3] + 1
            if due_of(run) < tonumber(count[4]) then count[4] = run.due end
        end
    end
end
-- The last that was looked for: its record may be gone, and the next call goes on behind it all the same.
if #found > 0 then last = tonumber(call('ZSCORE', ALL, found[#found])) end
local listed = {}
for _, count in pairs(counts) do listed[#listed + 1] = count end
local answer = { cmsgpack.pack({ now, last, #found < EXAMINED, listed }) }
if after == 0 then append_workers(answer) end
return answer
