-- needs: journal telling order limits endings
-- Takes the request's id and reports, {key, id or false, epoch or false, increment, total or false, message or false,
-- whether to clear the message}. Returns for each whether it was noted.
local asked, reports = request[1], request[2]
local noted = {} -- runs that this request reports on: a report of one that is made again counts once

local function newest_of(name, id)
    if id then
        local run = run_of(id)
        return run and name_of(run) == name and run
    end
    local latest = named(name, 1)[1]
    return latest and run_of(latest) or run_of(name)
end

local function report(name, id, epoch, increment, total, message, clears)
    local run = newest_of(name, id)
    if not run or run.state ~= 'running' or (epoch and run.epoch ~= epoch) then return false end
    if run.reported_by == asked and not noted[run.id] then return true end
    noted[run.id], run.reported_by = true, asked
    local before = run.progress or { current = 0, total = 100 }
    local text = message or before.message
    if clears then text = nil end
    run.progress = {
        current = before.current + increment, total = total or before.total, message = text, updated = now,
    }
    changed[run.id] = true
    if hears_all.progress or hears_keys then
        tell('progress', { key = name, id = run.id, progress = run.progress })
    end
    return true
end

local answers = {}
for n, each in ipairs(reports) do answers[n] = report(unpack(each, 1, 7)) end
finish_script()
return cmsgpack.pack(answers)
