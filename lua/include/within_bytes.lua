-- How many of these, from the first one on, a call may free: memory is given back at 16 MiB a millisecond.
-- Of few it is not asked, as long as each is no larger than a message may be.
local FREED_BYTES, LARGEST = 67108864, 4194304

local function within_bytes(sizes_key, members, limit)
  limit = limit or FREED_BYTES
  if #members * LARGEST <= limit or call('HLEN', sizes_key) == 0 then
    return #members
  end
  local sizes, bytes = call('HMGET', sizes_key, unpack(members)), 0
  for i = 1, #members do
    bytes = bytes + tonumber(sizes[i] or 0)
    if i > 1 and bytes > limit then
      return i - 1
    end
  end
  return #members
end

-- Those of `ended` that are too many bytes for one call stay as they are: returns which. The answers about all
-- that were named (none: all are OK) tell.
local function put_off(sizes_key, named, ended, answers)
  local waits, within = {}, within_bytes(sizes_key, ended)
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
