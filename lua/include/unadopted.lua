-- Large bodies do not pass through a script, where each byte would be copied and hashed: they are written in front of
-- it, in its transaction. `incoming` has the checksums of those that no message has: a call's own, and what calls left
-- behind whose script could not run. All large bodies that messages have are in `big`.
local LARGE = 65536

local function is_unadopted(keys, id)
  return call('HEXISTS', keys.big, id) == 0 and call('HSTRLEN', keys.bodies, id) > LARGE
end

-- Deletes the bodies that no message has; returns how many.
local function drop_unadopted(keys, ids)
  local count = 0
  for _, id in ipairs(ids) do
    if is_unadopted(keys, id) then
      count = count + call('HDEL', keys.bodies, id)
    end
  end
  call('HDEL', keys.incoming, unpack(ids))
  return count
end
