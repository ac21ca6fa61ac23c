-- How many of these, from the first one on, a call may end: memory is given back at 16 MiB a millisecond, and a
-- message key takes up to 6 µs. Of few it is not asked, as long as each is no larger than a message may be.
local FREED_BYTES, LARGEST, FREED_KEYS, MOST_KEYS = 67108864, 4194304, 1200, 16

local function first_within(count, limit, stored, members, measure)
  local values, sum = call('HMGET', stored, unpack(members, 1, count)), 0
  for i = 1, count do
    sum = sum + measure(values[i])
    if i > 1 and sum > limit then
      return i - 1
    end
  end
  return count
end

local function key_count(text)
  return select(2, string.gsub(text or '', '[^ ]+', ''))
end

local function within_bytes(o, members, limit, count)
  count = math.min(#members, count or #members)
  limit = limit or FREED_BYTES
  if count * LARGEST > limit and call('HLEN', o.big) > 0 then
    count = first_within(count, limit, o.big, members, function(size)
      return tonumber(size or 0)
    end)
  end
  if count * MOST_KEYS > FREED_KEYS and call('HLEN', o.keyed) > 0 then
    count = first_within(count, FREED_KEYS, o.keyed, members, key_count)
  end
  return count
end

-- Those of `ended` that are too many for one call stay as they are: returns which. The answers about all
-- that were named (none: all are OK) tell.
local function put_off(o, named, ended, answers, limit, count)
  local waits, within = {}, within_bytes(o, ended, limit or nil, count or nil)
  if within == #ended then
    return waits
  end
  named = { unpack(named) } -- `ended` may be the same table
  for i = #ended, within + 1, -1 do
    waits[ended[i]], ended[i] = true, nil
  end
  for i = 1, #named do
    local answer = answers[i] or 'OK'
    answers[i] = answer == 'OK' and waits[named[i]] and 'LATER' or answer
  end
  return waits
end
