-- When handlers ran, for the history: of each message of a call two halves (IEEE 754 binary16), the seconds from
-- its lease to the start of its handler and those that this ran (docs/decisions/0116). Worked out by the worker;
-- here only what belongs to messages that are not done is cut out.
local TIMES_WIDTH = 4

local function times_of(done, ids, times)
  if #done == #ids or #times ~= TIMES_WIDTH * #ids then
    return #done == #ids and times or ''
  end
  local at, kept = {}, {}
  for i, id in ipairs(ids) do
    at[id] = at[id] or (i - 1) * TIMES_WIDTH
  end
  for n, id in ipairs(done) do
    kept[n] = string.sub(times, at[id] + 1, at[id] + TIMES_WIDTH)
  end
  return table.concat(kept)
end
