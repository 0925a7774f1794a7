-- needs: journal telling order limits endings
-- Takes ids. Returns for each whether its record went: only those of runs that are over do.
local answers = {}
fetch(request)
for n, id in ipairs(request) do
    local run = run_of(id)
    answers[n] = run and is_over(run) and not is_past(run)
    if answers[n] then forget(run) end
end
finish_script()
return cmsgpack.pack(answers)
