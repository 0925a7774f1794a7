-- Events: hints, told at the end of a script, and made only if somebody listens.
--
-- Channels: work, stop, holds; state and progress of all runs; state:<key> and progress:<key> of one. Who listens for one
-- key also listens on `keyed`, where nothing is ever said: that somebody is there is the message.

local listeners = call('PUBSUB', 'NUMSUB', root .. 'state', root .. 'progress', root .. 'keyed')
local hears_all = { state = listeners[2] > 0, progress = listeners[4] > 0 }
local hears_keys = listeners[6] > 0
local tells_states = hears_all.state or hears_keys

local function tell(kind, event)
    event.kind = kind
    events[#events + 1] = event
end

local function tell_state(run, details)
    if not tells_states then return end
    details.key, details.id, details.state = name_of(run), run.id, run.state
    tell('state', details)
end

local function tell_pending(run)
    if tells_states then tell_state(run, { when = run.due }) end
end

-- Say everything: one message for each channel that is not a key's own.
local function say()
    local spoken = {}
    for _, event in ipairs(events) do
        local kind = event.kind
        if hears_all[kind] ~= false then
            spoken[kind] = spoken[kind] or {}
            table.insert(spoken[kind], event)
        end
        if hears_keys and hears_all[kind] ~= nil then
            call('PUBLISH', root .. kind .. ':' .. encode(event.key), cmsgpack.pack({ event }))
        end
    end
    if work then call('PUBLISH', root .. 'work', '') end
    for kind, told in pairs(spoken) do call('PUBLISH', root .. kind, cmsgpack.pack(told)) end
end

-- While nothing is live the docket goes by itself when the last retention ends: no worker need be there to sweep it.
local function set_lifetime()
    if has_begun and call('PTTL', ALL) >= 0 then
        for _, each in ipairs(keys_of_the_past()) do call('PERSIST', each) end
    end
    if has_ended and call('ZCARD', ALL) == call('ZCARD', OVER) then
        local last = call('ZREVRANGE', OVER, 0, 0, 'WITHSCORES')[2]
        for _, each in ipairs(last and keys_of_the_past() or {}) do call('PEXPIREAT', each, math.ceil(last / 1000)) end
    end
end

local function finish_script()
    flush()
    if is_real_time then set_lifetime() end
    say()
end
