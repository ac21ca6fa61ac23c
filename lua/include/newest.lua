-- The newest line of each message's failure record, also of one that was sent back from the dead
-- letters (it says so); '' for a message that has not failed.
local function newest_failures(failures, ids, entries)
  local retried, place, lines = {}, {}, {}
  for i, id in ipairs(ids) do
    lines[i] = ''
    if entries[i] ~= '-' then
      retried[#retried + 1], place[#place + 1] = id, i
    end
  end
  local records = #retried > 0 and call('HMGET', failures, unpack(retried)) or {}
  for i, at in ipairs(place) do
    local record = records[i] or '\n'
    lines[at] = string.match(record, '^.*\n(.+)\n$') or string.sub(record, 1, -2)
  end
  return #retried > 0 and lines or {}
end
