-- needs: journal telling holding order limits endings soundness
-- Looks at a part, and changes nothing.
-- Takes a step and what it needs, and returns what it says: see soundness.lua.
return cmsgpack.pack(steps[request[1]](unpack(request, 2)))
