-- What is scheduled and due. While logical time is ahead of the wall, dates that the wall has not reached stand
-- among what is due, so more is looked at.
local function due_members(clock, scheduled, limit)
  if clock.now == clock.wall then
    return call('ZRANGEBYSCORE', scheduled, '-inf', clock.now, 'LIMIT', 0, limit)
  end
  local page = call('ZRANGEBYSCORE', scheduled, '-inf', clock.now, 'WITHSCORES', 'LIMIT', 0, 10 * limit)
  local due = {}
  for i = 1, #page, 2 do
    if #due < limit and tonumber(page[i + 1]) <= time_of(clock, page[i + 1]) then
      due[#due + 1] = page[i]
    end
  end
  return due
end
