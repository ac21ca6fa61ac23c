-- What broadcast groups get: one stream entry per call, holding the batch, for ten minutes. Readers keep
-- their place themselves; the running number of the first message tells them what they have missed.
local CAST_KEPT_MS = 600000

-- The stream is the last key, where the topic has a broadcast group.
local function broadcast_key()
  local last = KEYS[#KEYS]
  return string.find(last, ':broadcast$') and last or nil
end

-- Without ids it only wakes the readers.
local function cast(clock, meta, stream, ids, body_of)
  local kept = call('HMGET', meta, 'cast_ms', 'cast_seq', 'cast_count')
  local ms, seq, count = tonumber(kept[1]) or 0, tonumber(kept[2]) or 0, tonumber(kept[3]) or 0
  if clock.now > ms then
    ms, seq = clock.now, 0
  else
    seq = seq + 1
  end
  call('HSET', meta, 'cast_ms', ms, 'cast_seq', seq, 'cast_count', count + #ids)
  local fields = { 'n', count }
  for _, id in ipairs(ids) do
    fields[#fields + 1], fields[#fields + 2] = id, body_of[id]
  end
  call('XADD', stream, 'MINID', '=', (ms - CAST_KEPT_MS) .. '-0', ms .. '-' .. seq, unpack(fields))
end
