-- Ids that the caller chose: is one known, and is it the id of the same message? Digests tell; a message
-- that was published without one matches any.
local ANY = ''
-- An id whose message is not yet written completely has this before its digest. A call whose ids are all
-- new lists them under this name in `meta` instead.
local BEGUN = '?'

-- If the last such call was cut, mark each of its ids by itself.
local function mark_begun(keys)
  local cut, begun = call('HGET', keys.meta, BEGUN), {}
  if cut then
    for id in string.gmatch(cut, '%S+') do
      begun[#begun + 1], begun[#begun + 2] = id, BEGUN
    end
    if call('HEXISTS', keys.ids_key, begun[1]) == 0 then -- they are stored last, all at once
      call('HSET', keys.ids_key, unpack(begun))
    end
    call('HDEL', keys.meta, BEGUN)
  end
end

-- Which of these ids have a body; a large one is not read.
local function which_are_stored(keys, ids)
  if call('EXISTS', keys.big) == 0 then
    return call('HMGET', keys.bodies, unpack(ids))
  end
  local stored = {}
  for i, id in ipairs(ids) do
    stored[i] = call('HEXISTS', keys.bodies, id) == 1
  end
  return stored
end

-- Returns two tables by id: the digest it is known with, or false; and which ids will be forgotten. `unadopted`
-- are those under which a body is stored that no message has.
local function look_up_chosen(keys, now, chosen, unadopted)
  mark_begun(keys)
  local known, forgotten = call('HMGET', keys.ids_key, unpack(chosen)), {}
  if call('EXISTS', keys.id_expiry) > 0 then -- where nothing was consumed there is none
    forgotten = call('ZMSCORE', keys.id_expiry, unpack(chosen))
  end
  local unknown, digests, expiring = {}, {}, {}
  for i, id in ipairs(chosen) do
    if forgotten[i] then
      expiring[id] = id
    end
    local expired = forgotten[i] and tonumber(forgotten[i]) <= now
    local begun = known[i] and string.sub(known[i], 1, 1) == BEGUN -- a call that was cut
    digests[id] = not expired and not begun and known[i]
    unknown[#unknown + 1] = not (known[i] or unadopted[id]) and id or nil
  end
  -- An id that a client made, published again by its name after an ambiguous answer: it is here.
  local stored = #unknown > 0 and which_are_stored(keys, unknown) or {}
  for i, id in ipairs(unknown) do
    digests[id] = stored[i] and ANY
  end
  return digests, expiring
end
