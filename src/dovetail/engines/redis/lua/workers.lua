-- Add the workers to an answer: what each says of itself, and when it was seen.
local function append_workers(answer)
    local seen = call('ZREVRANGE', SEEN, 0, -1, 'WITHSCORES')
    for n = 1, #seen, 2 do
        local said = call('HGET', WORKERS, seen[n])
        if said then
            answer[#answer + 1] = said
            answer[#answer + 1] = seen[n + 1]
        end
    end
end
