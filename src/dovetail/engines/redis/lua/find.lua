-- needs: journal order calls matching
-- Takes a query: see `matching`. Returns {next cursor or false, whether that is the end, records packed}, then for each
-- record the call, the result and the lines of its error history.
local runs, last, is_end = chosen()
local answer, heads = { '' }, {}
for _, run in ipairs(runs) do
    local blob = call('HGET', CALL, run.id)
    if blob then
        heads[#heads + 1] = run
        if run.state == 'running' then run.lease = tonumber(call('ZSCORE', key('lease', run.queue), run.id)) end
        answer[#answer + 1] = blob
        answer[#answer + 1] = run.has_result and call('HGET', RESULT, run.id) or ''
        answer[#answer + 1] = run.failures and call('LRANGE', root .. 'errors:' .. run.id, 0, -1) or {}
    end
end
answer[1] = cmsgpack.pack({ last, is_end, heads })
return answer
