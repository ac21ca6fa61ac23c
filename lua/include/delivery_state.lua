-- A message's numbers in one group, "lease_no:attempt:expiries:postpones": of the current lease,
-- else of the next one. No entry means floor:1:0:0, of its place (include/lease_numbers.lua), so a message
-- that never failed stores nothing. An entry that cannot be read is that of a first attempt, without a number:
-- the next lease gives it one.
-- Most entries of a call are alike, so each is read once.
local entries_read = {}

local function read_entry(text, floor)
  if not text then
    return floor, 1, 0, 0
  end
  local known = entries_read[text]
  if not known then
    local lease_no, attempt, expiries, postpones = string.match(text, '^(%d+):(%d+):(%d+):(%d+)$')
    known = { tonumber(lease_no or 0), tonumber(attempt or 1), tonumber(expiries or 0), tonumber(postpones or 0) }
    entries_read[text] = known
  end
  return known[1], known[2], known[3], known[4]
end

local function spell_entry(lease_no, attempt, expiries, postpones)
  return lease_no .. ':' .. attempt .. ':' .. expiries .. ':' .. postpones
end
