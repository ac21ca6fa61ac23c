-- The record of a transaction in the namespace's slot: the only truth about how it was decided.
-- One text, fields between tabs; the last one names the partitions (topic:partition) that hold halves. What
-- a later version has behind it is kept.
local FIELDS = {
  'state', 'group', 'topic', 'by', 'opened', 'after', 'every', 'most', 'checks', 'claim',
  'decided', 'decider', 'reason', 'partitions',
}

local function read_transaction(text)
  local record, at = {}, 0
  for field in string.gmatch(text .. '\t', '([^\t]*)\t') do
    at = at + 1
    record[FIELDS[at] or at] = field
  end
  return record
end

local function spell_transaction(record)
  local values = {}
  for i, name in ipairs(FIELDS) do
    values[i] = record[name] or ''
  end
  while record[#values + 1] do
    values[#values + 1] = record[#values + 1]
  end
  return table.concat(values, '\t')
end

-- Until when the record of a finished transaction is kept, to answer a repeated decision.
local function kept_until(now)
  return now + 600000
end

local function undecided(record)
  return record.state == 'open' or record.state == 'parked'
end
