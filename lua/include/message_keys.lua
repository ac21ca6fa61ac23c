-- Message keys, by which stored messages are found: `keyed` holds the keys of each message, separated by
-- blanks; `index` is a lex set of key, zero byte and id. Both are deleted before the body, and the index
-- before `keyed`: what a cut leaves, a repetition removes.
local KEYS_AT_ONCE = 3000 -- Lua passes 8000 values at most

-- rows: id and keys of each message.
local function note_keys(keyed, index, rows)
  local members = {}
  for i = 1, #rows, 2 do
    for key in string.gmatch(rows[i + 1], '[^ ]+') do
      members[#members + 1], members[#members + 2] = 0, key .. '\0' .. rows[i]
    end
  end
  call('HSET', keyed, unpack(rows))
  for at = 1, #members, 2 * KEYS_AT_ONCE do
    call('ZADD', index, unpack(members, at, math.min(#members, at + 2 * KEYS_AT_ONCE - 1)))
  end
end

local function forget_keys(keyed, index, ids)
  if call('HLEN', keyed) == 0 then
    return
  end
  local carried, members, found = call('HMGET', keyed, unpack(ids)), {}, {}
  for i, id in ipairs(ids) do
    found[#found + 1] = carried[i] and id or nil
    for key in string.gmatch(carried[i] or '', '[^ ]+') do
      members[#members + 1] = key .. '\0' .. id
    end
  end
  for at = 1, #members, KEYS_AT_ONCE do
    call('ZREM', index, unpack(members, at, math.min(#members, at + KEYS_AT_ONCE - 1)))
  end
  if #found > 0 then
    call('HDEL', keyed, unpack(found))
  end
end
