-- needs: journal telling order limits endings placing
-- Takes groups of drafts; the call of each as bytes, in the same order.
-- Returns for each group {placing, id, state, placing, id, state, ...}, or {false, run, reference} if a parent is unknown,
-- {false, run, false} if it would wait for itself.
local answers, blob = {}, BLOBS
for n, drafts in ipairs(request) do
    local answer, told, worked, begun = {}, #events, work, has_begun
    local ids = {}
    for m, draft in ipairs(drafts) do ids[m] = draft.id end
    fetch(ids)
    for m, draft in ipairs(drafts) do
        local name = draft.key or draft.id
        local placing, id, state = schedule(draft, ARGV[blob + m])
        if not placing then
            roll_back()
            for last = told + 1, #events do events[last] = nil end
            answer, work, has_begun = { false, name, unknown_parent }, worked, begun
            break
        end
        answer[3 * m - 2], answer[3 * m - 1], answer[3 * m] = placing, id, state
    end
    blob = blob + #drafts
    answers[n] = answer
    -- A group is written before the next begins, so that one which fails has nothing but its own to undo.
    if #request > 1 then flush() end
end
finish_script()
return cmsgpack.pack(answers)
