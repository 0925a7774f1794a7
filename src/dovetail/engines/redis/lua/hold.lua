-- needs: journal telling holding
-- Takes holds to lay, {identity, queue it pauses or false, until or 0, reason, owner, since or false}.
-- A hold that is there already keeps its beginning.
local is_changed = false

local function lay(identity, queue, ends, reason, owner, since)
    local old = read(HOLDS, identity)
    if old then
        local laid = cmsgpack.unpack(old)
        if laid[1] == ends and laid[2] == reason and laid[3] == owner then return end
        since = laid[4]
    end
    write(HOLDS, identity, cmsgpack.pack({ ends, reason, owner, since or now, queue }))
    if queue then write(PAUSES, queue, string.format('%.0f', ends)) end
    is_changed = true
end

for _, each in ipairs(request) do lay(unpack(each, 1, 6)) end
if is_changed then holds_changed() end
finish_script()
return 1
