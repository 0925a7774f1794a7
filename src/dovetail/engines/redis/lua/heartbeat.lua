-- needs: journal telling origin
-- Takes worker (its id), whether it leaves, lease, and pairs of id and epoch; what it says of itself as bytes.
-- Returns {ids whose claim is void, ids that were asked to stop, version of the holds, origin}.
local worker, leaving, lease, claims = unpack(request, 1, 4)
local DAY = 86400000

local ids, lost, stopping = {}, {}, {}
for n = 1, #claims, 2 do ids[#ids + 1] = claims[n] end
fetch(ids)
for n = 1, #claims, 2 do
    local run = run_of(claims[n])
    if not run or run.state ~= 'running' or run.epoch ~= claims[n + 1] then
        lost[#lost + 1] = claims[n]
    else
        put(key('lease', run.queue), run.id, now + lease)
        if run.stop then stopping[#stopping + 1] = run.id end
    end
end
if leaving then
    write(WORKERS, worker, false)
    remove(SEEN, worker)
else
    write(WORKERS, worker, ARGV[BLOBS + 1])
    put(SEEN, worker, now)
end
finish_script()
local origin = tonumber(call('GET', ORIGIN))
if leaving then
    if call('EXISTS', SEEN) == 0 then call('DEL', ORIGIN) end
elseif not origin then
    origin = now
    call('SET', ORIGIN, string.format('%.0f', now))
end
if is_real_time then
    for _, each in ipairs({ WORKERS, SEEN, ORIGIN }) do call('PEXPIRE', each, DAY) end
end
return cmsgpack.pack({ lost, stopping, tonumber(call('GET', VERSION) or 0), origin or 0 })
