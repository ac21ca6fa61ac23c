local call = redis.call
--[[ prepare.lua: nothing -> half (of a transaction, seen by no group until it is committed)

  The body is stored, and the half waits with what commit needs of it. Repeating the call changes
  nothing, and after the decision nothing more of the transaction is taken: the transaction's number
  of each message tells a repeat from another message. The decision is forgotten after a time, so a call
  says when, by the partition's own time, its caller last heard from here; one that is older than that, or
  of another time, stores nothing, and the answer is the time for the next. Large bodies are stored in front of
  the script, as for publish_with_options.lua.

  FLAGS  none
  KEYS   meta bodies big ids_key id_expiry halves half_of closed events counters keyed message_keys incoming
  ARGV   route_version transaction worker seen_ms blob, then number, id, body (a zero byte and its checksum for
         a large one), digest ('' for an id the client made), tag, message_group and keys (with blanks between)
         of each message
  REPLY  OK, now_ms, a letter per message: A accepted, D duplicate (published before, and not a part of
         the transaction), C another body has this id, H a half of another transaction has it
         or STALE_ROUTE, version, table or FULL, stored, limit or CLOSED or LATE, now_ms
         or AGAIN: the call is to be made again
  COST   O(messages * log halves); 17 commands, 2 more where some have message keys; 5 for each large body, and 1
]]
-- @include clock
-- @include logical
-- @include history
-- @include dedup
-- @include halves
-- @include message_keys
-- @include unadopted
-- @include incoming
-- @include undo

-- @bind keys
local FIRST, STRIDE = 6, 7
local BIG = 8192

local function prepare_all(found)
  local clock = read_clock(meta)
  local now = clock.now
  if call('ZSCORE', closed, transaction) then
    return { 'CLOSED' }
  elseif may_come_late(now, seen_ms) then
    call('HSET', meta, 'mark', now, 'offset', clock.offset)
    return { 'LATE', now }
  end
  local current = call('HMGET', meta, 'route', 'table', 'most')
  if (current[1] or '0') ~= route_version then
    return { 'STALE_ROUTE', current[1] or '0', current[2] or '' }
  end

  local ids, digests, members = {}, {}, {}
  local function read_halves()
    local chosen = {}
    for at = FIRST, #ARGV, STRIDE do
      local id = ARGV[at + 1]
      ids[#ids + 1] = id
      chosen[#chosen + 1] = ARGV[at + 3] ~= '' and id or nil
      local number = string.format('%08d', ARGV[at])
      members[#ids] = table.concat({ transaction, number, id, ARGV[at + 4], ARGV[at + 5] }, ' ')
    end
    if #chosen > 0 then
      digests = look_up_chosen(keys, now, chosen, found.unadopted)
    end
  end
  read_halves()
  local there = call('HMGET', half_of, unpack(ids))

  local stored, sizes, begun, remembered, reborn, lexed, noted, carried = {}, {}, {}, {}, {}, {}, {}, {}
  local accepted, verdicts, taken = {}, {}, {}

  local function remember(id, digest)
    if digest ~= '' then
      remembered[#remembered + 1], remembered[#remembered + 2] = id, digest
      reborn[#reborn + 1] = id
    end
  end

  local function accept(i, id, body, digest, names)
    taken[id] = true
    accepted[#accepted + 1] = id
    local size = #body
    if found.texts[id] then
      size = found.adopt(id)
    else
      stored[#stored + 1], stored[#stored + 2] = id, body
    end
    lexed[#lexed + 1], lexed[#lexed + 2] = 0, members[i]
    noted[#noted + 1], noted[#noted + 2] = id, members[i]
    if names ~= '' then
      carried[#carried + 1], carried[#carried + 2] = id, names
    end
    if size > BIG then
      sizes[#sizes + 1], sizes[#sizes + 2] = id, size
    end
    if digest ~= '' then
      begun[#begun + 1], begun[#begun + 2] = id, BEGUN .. digest
    end
    remember(id, digest)
  end

  local function judge(i, id, digest)
    local ours = there[i] and string.sub(there[i], 1, #transaction + 1) == transaction .. ' '
    local known = digest ~= '' and digests[id]
    if there[i] and not ours then
      return 'H'
    elseif known and known ~= digest and known ~= ANY then
      return 'C'
    end
    return (known or there[i] or taken[id]) and 'D' or 'A'
  end

  local function judge_all()
    for i, id in ipairs(ids) do
      local at = FIRST + STRIDE * (i - 1)
      local body, digest = ARGV[at + 2], ARGV[at + 3]
      if there[i] == members[i] then
        verdicts[i] = 'A' -- this very call, again: what it left to do of the id's memory is done below
        remember(id, digest)
      else
        verdicts[i] = judge(i, id, digest)
        if verdicts[i] == 'A' and found.texts[id] and found.drop_other(id, digest) then
          return { 'AGAIN' }
        elseif verdicts[i] == 'A' then
          accept(i, id, body, digest, ARGV[at + 6])
        end
      end
    end
  end
  -- The answer where the topic cannot hold these, too.
  local function full()
    local most = tonumber(current[3] or 0)
    local here = most > 0 and #accepted > 0 and call('HLEN', bodies) - found.count
    if here and here + #accepted > most then
      return { 'FULL', here, most }
    end
  end
  local refused = judge_all() or full()
  if refused then
    return refused
  end

  local added = 0
  local function store()
    if #begun > 0 then
      call('HSET', ids_key, unpack(begun))
    end
    added = #stored > 0 and call('HSET', bodies, unpack(stored)) or 0
    if #carried > 0 then
      note_keys(keyed, message_keys, carried)
    end
    if #sizes > 0 then
      call('HSET', big, unpack(sizes))
    end
    call('ZADD', halves, unpack(lexed))
    call('HSET', half_of, unpack(noted))
  end

  -- Unless a call that was cut has stored some bodies before.
  local function take_back()
    if added + found.fresh == #accepted then
      for _, key in ipairs({ ids_key, bodies, big, half_of }) do
        call('HDEL', key, unpack(accepted))
      end
      forget_keys(keyed, message_keys, accepted)
      for i = 2, #lexed, 2 do
        call('ZREM', halves, lexed[i])
      end
    end
  end
  if #accepted > 0 then
    all_or_undo(store, take_back)
  end
  if #remembered > 0 then
    call('HSET', ids_key, unpack(remembered))
    call('ZREM', id_expiry, unpack(reborn))
  end
  if #accepted > 0 then
    call('HINCRBY', counters, 'prepare', #accepted)
    append_history(clock, meta, events, 'prepare', '', worker, accepted, '', blob)
  end
  return { 'OK', now, table.concat(verdicts) }
end

local ids, texts = {}, {}
for at = FIRST, #ARGV, STRIDE do
  if string.byte(ARGV[at + 2]) == 0 then
    ids[#ids + 1], texts[#texts + 1] = ARGV[at + 1], ARGV[at + 2]
  end
end
if #ids > 0 then
  return with_incoming(keys, ids, texts, prepare_all)
end
return prepare_all({ texts = {}, unadopted = {}, count = 0, fresh = 0 })
