-- needs: journal telling holding order limits endings soundness
-- Looks at a part, and puts it right. What it takes and returns stands in soundness.lua; a step of members goes on behind
-- those that are left.
local answer = steps[request[1]](unpack(request, 2))
if request[1] == 'members' and answer[1] then answer[1] = answer[1] - answer[2] end
finish_script()
return cmsgpack.pack(answer)
