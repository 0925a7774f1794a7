-- needs: journal telling holding
-- Takes pairs of the identity of a hold and the queue that it pauses, or false.
local is_changed = false

for _, each in ipairs(request) do
    local identity, queue = each[1], each[2]
    if read(HOLDS, identity) then
        write(HOLDS, identity, false)
        if queue then write(PAUSES, queue, false) end
        is_changed = true
    end
end
if is_changed then holds_changed() end
finish_script()
return 1
