-- Whether a group still owns a message, or it ended for the group. `owed` is what `pending` has of it: the
-- bytes of the groups that owe it, or nothing if it is one group's alone.
local function owes(owed, byte)
  return not owed or string.find(owed, byte, 1, true) ~= nil
end

local function owns(keys, byte, id)
  if call('HEXISTS', keys.bodies, id) == 0 or call('ZSCORE', keys.dead, id) then
    return false
  end
  return owes(call('HGET', keys.pending, id), byte)
end
