-- How many of these, from the first one on, a call may free: memory is given back at 16 MiB a millisecond.
-- Of few it is not asked, as long as each is no larger than a message may be.
local FREED_BYTES, LARGEST = 67108864, 4194304

local function within_bytes(big, ids, most)
  most = most or FREED_BYTES
  if #ids * LARGEST <= most or call('HLEN', big) == 0 then
    return #ids
  end
  local sizes, bytes = call('HMGET', big, unpack(ids)), 0
  for i = 1, #ids do
    bytes = bytes + tonumber(sizes[i] or 0)
    if i > 1 and bytes > most then
      return i - 1
    end
  end
  return #ids
end

-- Those of `done` that are too many bytes for one call stay as they are: returns which, and how many. The
-- verdicts of `ids` (none: all are OK) tell.
local function put_off(big, ids, done, verdicts)
  local later, late, within = {}, 0, within_bytes(big, done)
  if within == #done then
    return later, late
  end
  ids = { unpack(ids) } -- `done` may be the same table
  for i = #done, within + 1, -1 do
    later[done[i]], done[i], late = true, nil, late + 1
  end
  for i = 1, #ids do
    local verdict = verdicts[i] or 'OK'
    verdicts[i] = verdict == 'OK' and later[ids[i]] and 'LATER' or verdict
  end
  return later, late
end
