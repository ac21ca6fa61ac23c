-- The delivery states that messages had before: of `ids`, those that are in `written`, which alternates id and state.
local function restore_states(attempts, ids, entries, written)
  local changed, kept, fresh = {}, {}, {}
  for i = 1, #written, 2 do
    changed[written[i]] = true
  end
  for i, id in ipairs(ids) do
    if changed[id] and entries[i] then
      kept[#kept + 1], kept[#kept + 2] = id, entries[i]
    elseif changed[id] then
      fresh[#fresh + 1] = id
    end
  end
  if #kept > 0 then
    call('HSET', attempts, unpack(kept))
  end
  if #fresh > 0 then
    call('HDEL', attempts, unpack(fresh))
  end
end
