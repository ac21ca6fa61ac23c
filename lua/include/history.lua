-- The history: one stream entry per call, holding the batch. Its id comes from logical time, so a
-- clock that goes back cannot make XADD fail. Bounded in bytes: past the limit the oldest entries
-- go, a few per call, and are counted; `lost` is the last of them, for readers that lag behind. The second
-- part of an id is the number of the entry, from 1 on: a reader that misses one knows (docs/decisions/0117).
local ENTRY_OVERHEAD, DROPPED = 64, 8

-- With `before`, a time, older ones go too. Returns how many went, and when the first was made that stays.
local function drop_oldest(clock, meta, events, before)
  local oldest, ids, first = call('XRANGE', events, '-', '+', 'COUNT', DROPPED), {}, nil
  for i, entry in ipairs(oldest) do
    local at = before and tonumber(string.match(entry[1], '^%d+'))
    if clock.bytes <= clock.limit and not (at and at <= before) then
      first = at
      break
    end
    local size = ENTRY_OVERHEAD
    for field = 2, #entry[2], 2 do
      size = size + #entry[2][field]
    end
    clock.bytes = clock.bytes - size
    ids[i] = entry[1]
  end
  if #ids > 0 then
    call('XDEL', events, unpack(ids))
    call('HINCRBY', meta, 'dropped', #ids)
    call('HSET', meta, 'lost', ids[#ids])
  end
  return #ids, first
end

-- ids and notes run in step; notes is '' where every message has the usual outcome. `times`, where there are any:
-- see include/handler_times.lua.
local function append_history(clock, meta, events, verb, group, worker, ids, notes, blob, times)
  clock.seq, clock.mark = clock.seq + 1, clock.now
  local batch = table.concat(ids, ' ')
  clock.bytes = clock.bytes + ENTRY_OVERHEAD + #verb + #group + #worker + #batch + #notes + #blob
    + #(times or '')
  if clock.bytes > clock.limit then
    drop_oldest(clock, meta, events)
  end
  -- Numbers are spelled here, as whole ones: left to the server that takes several times as long.
  local spell, offset = string.format, '0'
  local now, seq, bytes = spell('%d', clock.now), spell('%d', clock.seq), spell('%d', clock.bytes)
  if clock.offset > 0 then
    offset = spell('%d', clock.offset)
  end
  call('HSET', meta, 'mark', now, 'offset', offset, 'seq', seq, 'bytes', bytes)
  local id = now .. '-' .. seq
  if times and times ~= '' then
    call('XADD', events, id, 'e', verb, 'g', group, 'w', worker, 'i', batch, 'd', notes, 'b', blob, 't', times)
  else
    call('XADD', events, id, 'e', verb, 'g', group, 'w', worker, 'i', batch, 'd', notes, 'b', blob)
  end
end
