-- A message's failure record: a line per attempt, "attempt time_ms json"; behind the time "+ms", if the
-- message is to be delivered again so long after it. The first 3 and the last 16 are kept, so that a message that
-- fails for ever keeps how it began and how it ends.
local function add_failure(record, attempt, now, json, delay)
  local line = attempt .. ' ' .. now .. (delay or '') .. ' ' .. json .. '\n'
  if not record then
    return line
  end
  record = record .. line
  local _, lines = string.gsub(record, '\n', '\n')
  if lines <= 19 then
    return record
  end
  local fourth = 1
  for _ = 1, 3 do
    fourth = string.find(record, '\n', fourth, true) + 1
  end
  local fifth = string.find(record, '\n', fourth, true) + 1
  return string.sub(record, 1, fourth - 1) .. string.sub(record, fifth)
end
