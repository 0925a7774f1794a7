-- needs: journal telling holding order limits endings soundness
-- Looks at a part, and puts it right.
-- Takes a step and what it needs, and returns what it says: see soundness.lua.
local answer = steps[request[1]](unpack(request, 2))
-- What is removed moves the others up: the next step begins that much earlier.
if request[1] == 'members' and answer[1] then answer[1] = answer[1] - answer[2] end
finish_script()
return cmsgpack.pack(answer)
