-- What broadcast groups get: one stream entry per call, holding the batch, for ten minutes, and within
-- a limit in bytes: past it the oldest go. Readers keep their place themselves; the running number of
-- the first message tells them what they have missed.
--
-- Bytes are summed in segments, a part of the limit each, so that nothing is read to be dropped:
-- `cast_marks` has the last entry and the bytes of each full one, `cast_bytes` those of the rest.
local CAST_KEPT_MS, CAST_LIMIT, SEGMENTS, CAST_OVERHEAD = 600000, 67108864, 64, 64

-- The stream is the last key, where the topic has a broadcast group.
local function broadcast_key()
  local last = KEYS[#KEYS]
  return string.find(last, ':broadcast$') and last or nil
end

-- A full segment ends with this entry: the new marks, and the last entry that is to be dropped.
local function close_segment(meta, limit, ms, seq, bytes)
  local marks, kept, sum = {}, '', bytes
  for at, size in string.gmatch(call('HGET', meta, 'cast_marks') or '', '(%S+):(%d+)') do
    marks[#marks + 1] = { at = at, size = tonumber(size) }
  end
  for i = #marks, 1, -1 do
    sum = sum + marks[i].size
    if sum > limit - limit / SEGMENTS then -- the next segment has room, too
      return kept .. ms .. '-' .. seq .. ':' .. bytes, marks[i].at
    end
    kept = marks[i].at .. ':' .. marks[i].size .. ' ' .. kept
  end
  return kept .. ms .. '-' .. seq .. ':' .. bytes
end

-- The first entry that stays: of those that are young enough, and behind the last one to be dropped.
local function first_kept(ms, dropped, kept_ms)
  local oldest = math.max(0, ms - math.max(CAST_KEPT_MS, sane(kept_ms)))
  if dropped then
    local at, seq = string.match(dropped, '^(%d+)-(%d+)$')
    if tonumber(at) >= oldest then
      return at .. '-' .. seq + 1
    end
  end
  return oldest .. '-0'
end

-- Without ids it only wakes the readers.
local function cast(clock, meta, stream, ids, body_of)
  local kept = call('HMGET', meta, 'cast_ms', 'cast_seq', 'cast_count', 'cast_bytes', 'cast_limit')
  local ms, seq, count = sane(kept[1]), sane(kept[2]), sane(kept[3])
  ms = kept[1] and ms == 0 and clock.now or ms
  if clock.now > ms then
    ms, seq = clock.now, 0
  else
    seq = seq + 1
  end
  local fields, bytes, limit = { 'n', count }, sane(kept[4]) + CAST_OVERHEAD, tonumber(kept[5]) or CAST_LIMIT
  for _, id in ipairs(ids) do
    fields[#fields + 1], fields[#fields + 2] = id, body_of[id]
    bytes = bytes + #id + #body_of[id]
  end
  local marks, dropped
  if bytes >= limit / SEGMENTS then
    marks, dropped = close_segment(meta, limit, ms, seq, bytes)
    bytes = 0
  end
  all_or_undo(function()
    call('HSET', meta, 'cast_ms', ms, 'cast_seq', seq, 'cast_count', count + #ids, 'cast_bytes', bytes,
      unpack(marks and { 'cast_marks', marks } or {}))
    call('XADD', stream, 'MINID', '=', first_kept(ms, dropped, clock.keep), ms .. '-' .. seq, unpack(fields))
  end, function()
    call('HSET', meta, 'cast_count', count) -- no reader has missed anything
  end)
end
