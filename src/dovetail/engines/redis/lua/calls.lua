-- What comes after the head of a call is the payload: bytes of any kind.
local function task_of(run)
    local blob = call('HGET', CALL, run.id)
    if not blob then return '' end
    local _, head = cmsgpack.unpack_one(blob, 4)
    return head[1]
end
