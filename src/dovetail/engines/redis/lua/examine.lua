-- needs: journal telling holding order limits endings soundness
-- Looks at a part, and changes nothing. What it takes and returns stands in soundness.lua.
return cmsgpack.pack(steps[request[1]](unpack(request, 2)))
