-- A group is finished with these messages: clear its byte, and delete the body of each message
-- that no other group still owes. Clearing a byte is idempotent, where a counter would not be.
-- The order is pending byte, body; the caller removes its own index (in-flight, dead) last.
local ID_KEPT_MS = 3600000

local function clear_bytes(pending, byte, ids)
  if call('HLEN', pending) == 0 then
    return ids
  end
  local owed, last, emptied, kept = call('HMGET', pending, unpack(ids)), {}, {}, {}
  for i, id in ipairs(ids) do
    local at = owed[i] and string.find(owed[i], byte, 1, true)
    local rest = owed[i] or ''
    if at then
      rest = string.sub(rest, 1, at - 1) .. string.sub(rest, at + 1)
    end
    if rest == '' then
      last[#last + 1] = id
      emptied[#emptied + 1] = owed[i] and id or nil
    elseif at then
      kept[#kept + 1], kept[#kept + 2] = id, rest
    end
  end
  if #kept > 0 then
    call('HSET', pending, unpack(kept))
  end
  if #emptied > 0 then
    call('HDEL', pending, unpack(emptied))
  end
  return last
end

-- Ids given by callers are remembered for an hour after their message is gone.
local function start_id_expiry(keys, now, ids)
  if call('HLEN', keys.ids_key) == 0 then
    return
  end
  local digests, leaving = call('HMGET', keys.ids_key, unpack(ids)), {}
  for i, id in ipairs(ids) do
    if digests[i] then
      leaving[#leaving + 1], leaving[#leaving + 2] = now + ID_KEPT_MS, id
    end
  end
  if #leaving > 0 then
    call('ZADD', keys.id_expiry, unpack(leaving))
  end
end

-- Whoever removes a message may publish its id again at once; called last, when nothing is left of the message that a
-- repeated call could take for the new one. The lease numbers of that one must not be those of this one: without these
-- fields the next lease raises them (include/lease_numbers.lua).
local function free_ids(keys, ids)
  if #ids > 0 and call('HLEN', keys.ids_key) > 0 then
    call('HDEL', keys.meta, 'floor', 'incarnation')
    call('HDEL', keys.ids_key, unpack(ids))
    call('ZREM', keys.id_expiry, unpack(ids))
  end
end

-- Returns those whose body is gone, and whether one of them had none any more: a call that was cut has ended it.
local function forget(keys, byte, now, ids)
  local last = ids
  if call('EXISTS', keys.pending, keys.ids_key, keys.big, keys.keyed) > 0 then -- one question for four
    last = clear_bytes(keys.pending, byte, ids)
    if #last == 0 then
      return last, false
    end
    start_id_expiry(keys, now, last)
    if call('HLEN', keys.big) > 0 then
      call('HDEL', keys.big, unpack(last))
    end
    forget_keys(keys.keyed, keys.message_keys, last)
  end
  return last, call('HDEL', keys.bodies, unpack(last)) < #last
end
