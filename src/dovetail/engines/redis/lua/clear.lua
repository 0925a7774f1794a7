-- needs: journal telling order limits endings calls matching
-- Takes a query of pending runs: see `matching`. Cancels the next of them.
-- Returns {next cursor or false, whether that is the end, how many were cancelled}.
local runs, last, is_end = chosen()
local cancelled, turns = 0, {}

local function cancel(run)
    if is_over(run) then return end -- it fell with one that it hung on
    turns[#turns + 1] = run.turn
    cancelled = cancelled + 1 + end_by_store(run, 'cancelled')
end

for _, run in ipairs(runs) do
    if run.children then cancel(run) end
end
for _, run in ipairs(runs) do
    if not run.children then cancel(run) end
end
for _, turn in ipairs(turns) do pass_turn_on(turn) end
finish_script()
return cmsgpack.pack({ last, is_end, cancelled })
