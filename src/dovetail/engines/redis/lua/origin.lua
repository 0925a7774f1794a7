-- The origin stays while any worker is there. Who finds another one than before knows that the keys were removed meanwhile.
local ORIGIN = root .. 'origin'
