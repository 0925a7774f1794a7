-- Holds and their version.

-- Holds that agree have the same version, whatever came in between.
local function holds_changed()
    flush()
    local all = call('HGETALL', HOLDS)
    if #all == 0 then
        call('DEL', VERSION)
    else
        local digests = {}
        for n = 1, #all, 2 do digests[#digests + 1] = redis.sha1hex(all[n] .. ' ' .. all[n + 1]) end
        table.sort(digests)
        call('SET', VERSION, tonumber(redis.sha1hex(table.concat(digests)):sub(1, 12), 16))
    end
    tell('holds', {})
    work = true
end
