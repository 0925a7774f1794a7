-- needs: journal telling order limits endings
-- Takes keys and whether running runs are asked to stop. Returns 'cancelled', 'stopping', 'over' or 'unknown' for each.
local keys, stops_running = request[1], request[2]

local function was_known(name)
    local own = run_of(name)
    if own and not own.key and not is_past(own) then return true end
    local ids = named(name, 20)
    fetch(ids)
    for _, id in ipairs(ids) do
        local run = run_of(id)
        if run and not is_past(run) then return true end
    end
    return false
end

local function cancel(name)
    local run = live_of(name)[1]
    if not run then return was_known(name) and 'over' or 'unknown' end
    if run.state == 'running' then
        if not stops_running then return 'over' end
        run.stop, changed[run.id] = true, true
        tell('stop', { key = name, id = run.id })
        return 'stopping'
    end
    local turn = run.turn
    end_by_store(run, 'cancelled')
    pass_turn_on(turn)
    return 'cancelled'
end

local answers = {}
for n, name in ipairs(keys) do answers[n] = cancel(name) end
finish_script()
return cmsgpack.pack(answers)
