-- Says what of a worker's work this user may not do on the keys and channels of the docket. Changes nothing.
-- Takes commands with their arguments, and returns the names of those that are denied.
local MAKES = { HSET = true, RPUSH = true, SADD = true, SET = true, SUBSCRIBE = true, ZADD = true }

local function may(command)
    if redis.acl_check_cmd then return redis.acl_check_cmd(unpack(command)) end
    -- Before Redis 7 one can only try, on a key that never exists; what would make one is left out.
    if MAKES[command[1]] then return true end
    local answer = redis.pcall(unpack(command))
    return type(answer) ~= 'table' or not answer.err or not answer.err:find("The user executing the script can't", 1, true)
end

local denied = {}
for _, command in ipairs(request) do
    if not may(command) then denied[#denied + 1] = command[1] end
end
return cmsgpack.pack(denied)
