-- The task and the headers of a run. What comes after the head of a call is the payload: bytes of any kind.
local function head_of(run)
    local blob = call('HGET', CALL, run.id)
    if not blob then return '', {} end
    local _, head = cmsgpack.unpack_one(blob, 4)
    return head[1], type(head[2]) == 'table' and head[2] or {}
end

local function task_of(run)
    local task = head_of(run)
    return task
end
