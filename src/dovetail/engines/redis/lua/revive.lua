-- needs: journal telling order limits endings
-- Takes pairs of an id and whether there are new arguments; these as bytes. Returns for each whether it goes again.

-- The parents of a run that are kept, and of those one that fell, if any.
local function parents_of(run)
    local parents, fallen = {}, nil
    for _, id in ipairs(run.parents or {}) do
        local parent = run_of(id)
        if parent then
            parents[#parents + 1] = parent
            if parent.state == 'failed' or parent.state == 'cancelled' then fallen = parent end
        end
    end
    return parents, fallen
end

local function put_back_to_work(run, parents)
    local unmet = {}
    for _, parent in ipairs(parents) do
        if not is_over(parent) then unmet[#unmet + 1] = parent.id end
    end
    remove(OVER, run.id)
    count_out(run)
    has_begun = true
    if run.has_result then write(RESULT, run.id, false) end
    run.due, run.attempt, run.crashes, run.epoch = now, nil, nil, next_epoch(run)
    run.doomed, run.finished, run.expires, run.has_result, run.error = nil, nil, nil, nil, nil
    run.worker, run.started, run.stop = nil, nil, nil
    changed[run.id] = true
    if run.failures then expiring[root .. 'errors:' .. run.id] = false end
    if run.children then expiring[root .. 'children:' .. run.id] = false end
    hold_key(run)
    if #unmet > 0 then
        run.state, run.unmet = 'waiting', unmet
    else
        make_ready(run)
    end
    tell_pending(run)
end

-- Bring back a run that a parent's end had cancelled, unless another parent still keeps it from running.
local function revive_child(child)
    local parents, fallen = parents_of(child)
    if fallen and not child.after_failure then
        child.doomed, changed[child.id] = fallen.id, true
        return false
    end
    if #live_of(name_of(child)) > 0 then return false end
    put_back_to_work(child, parents)
    return true
end

local function revive_dependents(run)
    local revived = { run }
    while #revived > 0 do
        local parent = table.remove(revived)
        local ids = parent.children and first(root .. 'children:' .. parent.id, 1000000) or {}
        fetch(ids)
        for _, id in ipairs(ids) do
            local child = run_of(id)
            if child and child.state == 'cancelled' and child.doomed == parent.id and revive_child(child) then
                revived[#revived + 1] = child
            end
        end
    end
end

local function revive(id, arguments)
    local run = run_of(id)
    if not run or not is_over(run) or is_past(run) or #live_of(name_of(run)) > 0 then return false end
    if arguments then
        local old = call('HGET', CALL, id)
        local new = old:sub(1, 4 + struct.unpack('>I4', old)) .. arguments
        write(CALL, id, new)
        note_size(run, new)
    end
    put_back_to_work(run, (parents_of(run)))
    revive_dependents(run)
    return true
end

local answers, blob = {}, BLOBS
for n, each in ipairs(request) do
    if each[2] then blob = blob + 1 end
    answers[n] = revive(each[1], each[2] and ARGV[blob])
end
finish_script()
return cmsgpack.pack(answers)
