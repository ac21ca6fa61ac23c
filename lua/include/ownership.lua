-- Whether a group still owns a message, or it ended for the group. `owed` is what `pending` has of it: the
-- bytes of the groups that owe it, or nothing if it is one group's alone. With keys and an id it is looked
-- up, and so is whether there is a body and no dead letter. One function, since each takes time at each call.
local function owns(byte, owed, keys, id)
  if keys then
    if call('HEXISTS', keys.bodies, id) == 0 or call('ZSCORE', keys.dead, id) then
      return false
    end
    owed = call('HGET', keys.pending, id)
  end
  return not owed or string.find(owed, byte, 1, true) ~= nil
end
