-- needs: journal telling order limits workers
-- Takes the id of a run, how many are counted before it, and how many who hold a slot are named. Returns nothing if it is
-- not live; else {now, state, epoch, limit it is parked on or false, how many are before it, and of each of its limits
-- {limit, taken, ids of some who hold a slot, when it opens or 0}}, then the workers: what each says, and when it was seen.
local id, counted, named = unpack(request, 1, 3)

local function is_due(run) return run.state == 'scheduled' and due_of(run) <= now end

local function ahead_of(run)
    if run.parked then return call('ZRANK', key('parked', run.parked), rank(run)) or 0 end
    if run.state == 'queued' then return call('ZRANK', key('ready', run.queue), rank(run)) or 0 end
    if not is_due(run) then return 0 end
    -- What is ready, or became due before: that will have a place by the time this run has one.
    return call('ZCOUNT', key('ready', run.queue), '-inf', negated_priority(run))
        + call('ZCOUNT', key('due', run.queue), '-inf', '(' .. string.format('%.0f', due_of(run)))
end

local function use_of(limit)
    if not limit[3] then
        return { limit, slots_held(limit[1]), call('ZRANGE', key('slots', limit[1]), 0, named - 1), 0 }
    end
    local opens = opens_at(limit)
    return { limit, limit[2] - math.max(room_in(limit), 0), {}, opens > now and opens or 0 }
end

local run = run_of(id)
if not run or is_over(run) then return {} end
local uses = {}
for _, limit in ipairs(run.limits or {}) do uses[#uses + 1] = use_of(limit) end
local answer = { cmsgpack.pack({
    now, run.state, run.epoch or 0, run.parked or false, math.min(ahead_of(run), counted), uses,
}) }
append_workers(answer)
return answer
