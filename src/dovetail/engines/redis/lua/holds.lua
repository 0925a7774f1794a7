-- Returns the holds that are not past their time: identity, what is kept of it, and so on.
local found = {}
local all = call('HGETALL', HOLDS)
for n = 1, #all, 2 do
    local ends = cmsgpack.unpack(all[n + 1])[1]
    if ends == 0 or ends > now then
        found[#found + 1] = all[n]
        found[#found + 1] = all[n + 1]
    end
end
return found
