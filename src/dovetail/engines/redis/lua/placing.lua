-- Placing runs: who holds the key, what the newcomer does about it, and where it waits.

local LINGER = 10000000 -- microseconds that a completed run's record stays once its key is used again

local last_number
local newest = {} -- key -> id of the run that this script has placed last under it
local unknown_parent -- or false, if it is known and waits for the run that is to wait for it

local function next_number()
    if not last_number then
        last_number = tonumber(call('ZREVRANGE', ALL, 0, 0, 'WITHSCORES')[2] or 0)
    end
    last_number = last_number + 1
    return last_number
end

-- The run that is meant by an id or a key: the newest that is kept.
local function parent_of(reference)
    local run = run_of(reference)
    if run and not is_past(run) then return run end
    run = newest[reference] and run_of(newest[reference])
    if run and not is_past(run) then return run end
    local ids = named(reference, 20)
    fetch(ids)
    for _, id in ipairs(ids) do
        run = run_of(id)
        if run and not is_past(run) then return run end
    end
end

-- The parents of a run, each once; nothing, and the culprit noted, if one does not exist.
local function parents_of(references)
    local parents, seen = {}, {}
    for _, reference in ipairs(references) do
        local parent = parent_of(reference)
        if not parent then
            unknown_parent = reference
            return nil
        end
        if not seen[parent.id] then
            seen[parent.id] = true
            parents[#parents + 1] = parent
        end
    end
    table.sort(parents, function(a, b) return a.seq < b.seq end)
    return parents
end

-- Whether one of these waits for a run, itself or through others.
local function wait_for(runs, awaited)
    local seen, ids = {}, {}
    for _, run in ipairs(runs) do ids[#ids + 1] = run.id end
    while #ids > 0 do
        fetch(ids)
        local further = {}
        for _, id in ipairs(ids) do
            if id == awaited then return true end
            local run = not seen[id] and run_of(id)
            seen[id] = true
            for _, parent in ipairs(run and run.unmet or {}) do further[#further + 1] = parent end
        end
        ids = further
    end
    return false
end

-- What is over gives way to the newcomer soon; failures keep their retention, and so does what is kept by count. Of the
-- others the newest few are all that can be left.
local function let_linger(name)
    local ids = named(name, 10)
    fetch(ids)
    for _, id in ipairs(ids) do
        local run = run_of(id)
        local gives_way = run and not run.counted and (run.state == 'completed' or run.state == 'cancelled')
        if gives_way and run.expires > now + LINGER then
            run.expires = now + LINGER
            changed[id] = true
            put(OVER, id, run.expires)
        end
    end
end

-- What hung on a run hangs on the one that replaced it.
local function inherit(run, replaced)
    local from, to = root .. 'children:' .. replaced.id, root .. 'children:' .. run.id
    local ids = first(from, 1000000)
    fetch(ids)
    for _, id in ipairs(ids) do
        local child = run_of(id)
        if child then
            child.parents = without(child.parents, replaced.id)
            table.insert(child.parents, run.id)
            if contains(child.unmet, replaced.id) then
                child.unmet = without(child.unmet, replaced.id)
                table.insert(child.unmet, run.id)
            end
            changed[id], run.children = true, true
            put(to, id, child.seq)
        end
    end
end

local function hang_on(run, parents)
    run.parents, run.unmet = {}, {}
    for _, parent in ipairs(parents) do
        table.insert(run.parents, parent.id)
        put(root .. 'children:' .. parent.id, run.id, run.seq)
        if not is_over(parent) then table.insert(run.unmet, parent.id) end
        if not parent.children then
            parent.children, changed[parent.id] = true, true
        end
        if is_over(parent) then
            if run.wants_results then feed(parent) else expire_with_record(parent) end
        end
    end
    if #run.unmet == 0 then run.unmet = nil end
end

local function fallen(parents)
    for _, parent in ipairs(parents) do
        if parent.state == 'failed' or parent.state == 'cancelled' then return parent end
    end
end

-- Put a new run where it belongs. `draft` is its record so far, with `due` as it was given and `after`.
local function place(draft, blob, replaced)
    local run, after = draft, draft.after
    run.after, run.conflict, run.instead_of = nil, nil, nil
    local parents = after and parents_of(after)
    if after and not parents then return nil end
    if parents and replaced and replaced.children and wait_for(parents, replaced.id) then
        unknown_parent = false
        return nil
    end
    run.due, run.created, run.seq = moment(run.due), now, next_number()
    if run.key then
        let_linger(run.key)
        put(NAMES, name_entry(run), 0)
        newest[run.key] = run.id
    end
    known[run.id], changed[run.id] = run, true
    write(CALL, run.id, blob)
    note_size(run, blob)
    put(ALL, run.id, run.seq)
    has_begun = true
    if parents then hang_on(run, parents) end
    if replaced and replaced.children then inherit(run, replaced) end
    local culprit = parents and not run.after_failure and fallen(parents)
    if culprit then
        run.state = 'waiting'
        close_by_store(run, 'cancelled', doomed_text(culprit.id), culprit.id)
        expire_with_record(run)
        run.epoch = nil
        tell_end(run)
        if run.children then settle_children(run, false) end
        return run
    end
    hold_key(run)
    if run.unmet then
        run.state = 'waiting'
    else
        line_up(run)
    end
    tell_pending(run)
    return run
end

local function postpone(pending, draft)
    if pending.postponed == draft.id then return end
    local turn = pending.turn
    withdraw(pending)
    pending.due, pending.postponed, pending.turn = moment(draft.due), draft.id, nil
    if pending.state == 'waiting' then return end
    line_up(pending)
    pass_turn_on(turn)
    tell_pending(pending)
end

local function replace(pending, draft, blob)
    local turn = pending.turn
    withdraw(pending)
    forget(pending)
    pass_turn_on(turn)
    return place(draft, blob, pending)
end

-- Schedule one run: how it was placed, the id of the run that holds the key, and that one's state.
local function schedule(draft, blob)
    local kept = run_of(draft.id)
    if kept then return 'placed', kept.id, kept.state end
    local conflict = draft.conflict or 'keep'
    local holders = live_of(draft.key or draft.id)
    local pending
    for _, holder in ipairs(holders) do
        if holder.state ~= 'running' then pending = holder end
    end
    local holder = pending or holders[1]
    if draft.instead_of and not holder then return 'kept', draft.instead_of, 'cancelled' end
    if draft.instead_of and holder.id ~= draft.instead_of then return 'kept', holder.id, holder.state end
    if holder and (conflict == 'keep' or (pending and conflict == 'keep_pending')) then
        return 'kept', holder.id, holder.state
    end
    local placing, run = 'placed', nil
    if pending and conflict == 'postpone' then
        postpone(pending, draft)
        return 'postponed', pending.id, pending.state
    elseif pending then
        placing, run = 'replaced', replace(pending, draft, blob)
    else
        run = place(draft, blob)
        if holder and conflict == 'replace' then placing = 'replaced' end
    end
    if run then return placing, run.id, run.state end
end

-- Undo what a group of requests has noted so far.
local function roll_back()
    known, changed, scores, fields, pushed, dropped = {}, {}, {}, {}, {}, {}
    grown, fronts = {}, {}
    thinned, expiring, entered, left, newest, shares, held, started, last_number = {}, {}, {}, {}, {}, {}, {}, {}, nil
end
