local call = redis.call
--[[ publish.lua: nothing -> ready (of every group of the topic), or -> scheduled

  Publishing is repeatable. A lane is one producer's line into this partition with at most one call
  unresolved: the same number with the same checksum is that call again and is answered as it was.
  The client fans out: it passes the groups of the route it knows, and a changed route writes
  nothing. While a topic has no group its messages wait in the backlog, which the first group takes.
  A call that would store more messages than the topic may hold stores none. An id that is a half of an
  undecided transaction is refused: whether it will have been published nobody knows yet.

  A producer may send a call before the one in front of it, on another lane or on the same, is
  answered. It says what that lane will hold then; until it does, the call writes nothing, so that
  nothing overtakes a call that was refused.

  Where a group takes only some tags, the caller says for each message which groups it goes to. One
  that no group wants is accepted, counted and not stored. What is delayed waits with its tag, and
  is given its groups when it is due (deliver.lua). Broadcast groups have no messages of their own:
  they get all of them in a stream, and where a topic has no other group nothing is stored.

  FLAGS  none
  KEYS   meta route lane bodies big pending backlog events counters; with more than 2 words ids id_expiry
         scheduled message_groups half_of keyed message_keys; then ready and wake of each group; and with
         more than 2 words line and heads of each ordered one, and broadcast, where the topic has a
         broadcast group; with 2 or 3 words the lane of the call in front, where that is not answered
  ARGV   route_version seq checksum lane_ttl_ms worker blob groups messages words (2 to 7 a message),
         then name and byte (and 'o' for an ordered one) of each group, then id, body,
         digest ('' for an id the client made), delay_ms ('' for none, '@' and a date), as the fifth
         word the bytes of its groups (the tag of one that is delayed), and as the sixth its message
         group ('' for none), and as the seventh its message keys, with blanks between, of each message;
         with 2 words all ids are made by the client, nothing is delayed, no group is a broadcast group
         and blob, if any, is the ids packed, with 3 it is so but for the ids, which are all the
         caller's and differ, and their digests come behind all bodies, with 4 all go to every group and none has
         a tag, with 5 none has a message group, with 6 none has message keys; with 2 or 3 words at last
         what its lane holds, up to the verdicts, once the call in front is done, where it is not answered
  REPLY  OK | DUPLICATE, now_ms, verdicts ('' or a letter per message: A accepted, D duplicate,
         C another body has this id, H a half of an undecided transaction has it)
         or STALE_ROUTE, version, table or FULL, stored, limit
         or LANE_CONFLICT or LANE_GAP: the call in front was not done
  COST   O(messages * groups); 10 commands and 3 a group, 8 more for ids that the caller chose and
         that are new, up to 15 more where one may be known, 1 more where a group takes only some, 3 more
         for message groups and 3 for an ordered group, 3 for broadcast, 2 for message keys (and 1 for
         each 3000 of them), 1 behind a call that is not answered
]]
-- @include clock
-- @include logical
-- @include history

local BEGUN_CALL = '?' -- BEGUN of include/dedup

-- Messages that are not bare ones: with an id that may be known, a delay, a tag, a message group or keys,
-- or for broadcast groups too. It takes thirty functions, which would be a third of the time of a call with
-- one plain message, so they are made in here; and it captures next to nothing, which takes time at each
-- call, too. Answers what was accepted and the verdicts; nothing where there is no room.
local function publish_each(time, room, FIRST_GROUP, BIG)
-- @include message_keys
-- @include forget
-- @include dedup
-- @include message_group_order
-- @include broadcast

  local meta, bodies, big, pending, backlog, counters = KEYS[1], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[9]
  local ids_key, id_expiry, scheduled, message_groups = KEYS[10], KEYS[11], KEYS[12], KEYS[13]
  local half_of, keyed, message_keys, FIRST_KEY = KEYS[14], KEYS[15], KEYS[16], 17
  local groups, messages, WORDS = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])
  local now, FIRST_MESSAGE = time.now, FIRST_GROUP + 2 * groups

  -- Id, body, digest and delay of a message.
  local function message(i)
    if WORDS == 3 then
      local at = FIRST_MESSAGE + 2 * (i - 1)
      return ARGV[at], ARGV[at + 1], ARGV[FIRST_MESSAGE + 2 * messages + i - 1], ''
    end
    local at = FIRST_MESSAGE + WORDS * (i - 1)
    return ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  end

  -- Ids the caller chose: known already, and with the same body?
  local chosen, digests, expiring, halves = {}, {}, {}, {}
  for i = 1, messages do
    local id, _, digest = message(i)
    if digest ~= '' then
      chosen[#chosen + 1] = id
    end
  end

  if #chosen > 0 then
    local keys = { meta = meta, ids = ids_key, id_expiry = id_expiry, bodies = bodies }
    digests, expiring = look_up_chosen(keys, now, chosen)
    local some = call('EXISTS', half_of) > 0 and call('HMGET', half_of, unpack(chosen)) or {}
    for i, half in ipairs(some) do
      halves[chosen[i]] = half
    end
  end

  -- A delay in milliseconds, or '@' and a date in milliseconds.
  local function due_of(delay_ms)
    return tonumber(string.match(delay_ms, '^@(%d+)$')) or now + delay_ms
  end

  local stored, sizes, begun, remembered, reborn, waiting, pushed = {}, {}, {}, {}, {}, {}, {}
  local accepted, verdicts, all_new, bytes_of_groups, unwanted = {}, {}, true, '', {}
  local targets = WORDS > 4 and groups > 0 and {} or nil -- by id, where messages differ in them
  local named, name_of, place_of = {}, {}, {} -- messages with a message group
  local carried = {} -- id and message keys of those that have some
  for group = 1, groups do
    bytes_of_groups = bytes_of_groups .. string.sub(ARGV[FIRST_GROUP + 2 * group - 1], 1, 1)
  end

  local stream, shown, body_of = broadcast_key(), {}, {}
  local nobody = groups == 0 and stream -- no group has messages of its own

  local function accept(id, body, delay_ms, targets_or_tag, message_group, names)
    local unowned = nobody or targets and targets_or_tag == ''
    local wanted = delay_ms ~= '' or not unowned
    accepted[#accepted + 1] = id
    if wanted then
      stored[#stored + 1], stored[#stored + 2] = id, body
      if names and names ~= '' then
        carried[#carried + 1], carried[#carried + 2] = id, names
      end
    else
      unwanted[#unwanted + 1] = id
    end
    if wanted and #body > BIG then
      sizes[#sizes + 1], sizes[#sizes + 2] = id, #body
    end
    if stream and delay_ms == '' then
      shown[#shown + 1], body_of[id] = id, body
    end
    if delay_ms ~= '' then
      local tag = targets_or_tag and targets_or_tag ~= '' and ' ' .. targets_or_tag or ''
      waiting[#waiting + 1], waiting[#waiting + 2] = due_of(delay_ms), id .. tag
    elseif wanted then
      pushed[#pushed + 1] = id
      if targets then
        targets[id] = targets_or_tag
      end
      if message_group and message_group ~= '' then
        named[#named + 1], name_of[id] = id, message_group
      end
    end
  end

  for i = 1, messages do
    local at = FIRST_MESSAGE + WORDS * (i - 1)
    local id, body, digest, delay_ms = message(i)
    if digest ~= '' and halves[id] then
      verdicts[i], all_new = 'H', false
    elseif digest ~= '' and digests[id] then
      local same = digests[id] == digest or digests[id] == ANY
      verdicts[i], all_new = same and 'D' or 'C', false
    else
      verdicts[i] = 'A'
      accept(id, body, delay_ms, WORDS > 4 and ARGV[at + 4], WORDS > 5 and ARGV[at + 5], WORDS > 6 and ARGV[at + 6])
      if digest ~= '' then
        digests[id] = digest
        begun[#begun + 1], begun[#begun + 2] = id, BEGUN .. digest
        remembered[#remembered + 1], remembered[#remembered + 2] = id, digest
        reborn[#reborn + 1] = expiring[id]
      end
    end
  end
  if #stored > 0 and #stored / 2 > room then
    return nil
  end

  local function note_who_owes()
    local owed = {}
    for _, id in ipairs(pushed) do
      local bytes = targets and targets[id] or bytes_of_groups
      if #bytes > 1 then
        owed[#owed + 1], owed[#owed + 2] = id, bytes
      end
    end
    if #owed > 0 then
      call('HSET', pending, unpack(owed))
    end
  end

  local lines_of = lines_behind(FIRST_KEY + 2 * groups - 1)

  local function targeted(byte)
    if not targets then
      return pushed
    end
    local taken = {}
    for _, id in ipairs(pushed) do
      taken[#taken + 1] = string.find(targets[id], byte, 1, true) and id or nil
    end
    return taken
  end

  local function push_to_groups()
    if #named > 0 then
      place_of = number_messages(meta, message_groups, named, name_of)
    end
    if groups > 1 then
      note_who_owes()
    elseif groups == 0 and #pushed > 0 then
      call('RPUSH', backlog, unpack(pushed))
    end
    for group = 1, groups do
      local ready, wake = KEYS[FIRST_KEY + 2 * group - 2], KEYS[FIRST_KEY + 2 * group - 1]
      local name, byte = ARGV[FIRST_GROUP + 2 * group - 2], ARGV[FIRST_GROUP + 2 * group - 1]
      local taken = targeted(string.sub(byte, 1, 1))
      push_new(lines_of(#byte > 1), ready, wake, taken, place_of)
      if #taken > 0 then
        call('HINCRBY', counters, 'publish:' .. name, #taken)
      end
      local filtered = #pushed + #unwanted - #taken
      if filtered > 0 then
        call('HINCRBY', counters, 'filtered:' .. name, filtered)
      end
    end
  end

  local function remember()
    call('HSET', ids_key, unpack(remembered))
    if #reborn > 0 then
      call('ZREM', id_expiry, unpack(reborn))
    end
    if #unwanted > 0 then
      start_id_expiry({ ids = ids_key, id_expiry = id_expiry }, now, unwanted)
    end
  end

  local function store()
    if #carried > 0 then
      note_keys(keyed, message_keys, carried)
    end
    call('HSET', bodies, unpack(stored))
    if #sizes > 0 then
      call('HSET', big, unpack(sizes))
    end
  end

  local function schedule()
    local first = call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')[2]
    call('ZADD', scheduled, unpack(waiting))
    if call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')[2] ~= first then
      for group = 1, groups do
        call('ZADD', KEYS[FIRST_KEY + 2 * group - 1], 0, '1')
      end
      return true
    end
  end

  local function show_and_schedule()
    local earlier = #waiting > 0 and schedule()
    if stream and (#shown > 0 or earlier) then
      cast(time, meta, stream, shown, body_of)
    end
  end

  if #accepted > 0 then
    if #begun > 0 then
      call('HSET', ids_key, unpack(begun))
    end
    if #stored > 0 then
      store()
    end
    if #pushed + #unwanted > 0 then
      push_to_groups()
    end
    show_and_schedule()
    if #remembered > 0 then
      remember()
    end
  end
  return accepted, all_new and '' or table.concat(verdicts)
end

-- Messages as most are: bare bodies, at once, all for every group; under ids that the client made or that
-- are all new. Answers the ids; nothing where one may be known.
local function publish_bare(now, bodies, groups, messages, named, FIRST_GROUP, BIG)
  local FIRST_MESSAGE, FIRST_KEY = FIRST_GROUP + 2 * groups, named and 17 or 10
  local BEHIND, ids, sizes = FIRST_MESSAGE + 2 * messages, {}, {}
  for i = 1, messages do
    local at = FIRST_MESSAGE + 2 * (i - 1)
    ids[i] = ARGV[at]
    if #ARGV[at + 1] > BIG then
      sizes[#sizes + 1], sizes[#sizes + 2] = ARGV[at], #ARGV[at + 1]
    end
  end

  if named then
    local meta, ids_key, id_expiry, half_of = KEYS[1], KEYS[10], KEYS[11], KEYS[14]
    local function is_any_in(key, read)
      for _, found in ipairs(call(read, key, unpack(ids))) do
        if found then
          return true
        end
      end
    end
    if call('EXISTS', half_of) + call('HEXISTS', meta, BEGUN_CALL) > 0 or is_any_in(ids_key, 'HMGET')
      or is_any_in(bodies, 'HMGET') then
      return nil
    end
    -- A sweep that was cut has forgotten ids, but not that they are to be forgotten.
    if #call('ZRANGEBYSCORE', id_expiry, '-inf', now, 'LIMIT', '0', '1') > 0 and is_any_in(id_expiry, 'ZMSCORE') then
      return nil
    end
    call('HSET', meta, BEGUN_CALL, table.concat(ids, ' '))
  end
  call('HSET', bodies, unpack(ARGV, FIRST_MESSAGE, BEHIND - 1))
  if #sizes > 0 then
    call('HSET', KEYS[5], unpack(sizes))
  end
  if groups == 0 then
    call('RPUSH', KEYS[7], unpack(ids))
  elseif groups > 1 then
    local bytes, owed = '', {}
    for group = 1, groups do
      bytes = bytes .. string.sub(ARGV[FIRST_GROUP + 2 * group - 1], 1, 1)
    end
    for i = 1, messages do
      owed[2 * i - 1], owed[2 * i] = ids[i], bytes
    end
    call('HSET', KEYS[6], unpack(owed))
  end
  for group = 1, groups do
    local at, name = FIRST_KEY + 2 * group - 2, ARGV[FIRST_GROUP + 2 * group - 2]
    if call('RPUSH', KEYS[at], unpack(ids)) == messages then
      call('ZADD', KEYS[at + 1], '0', '1')
    end
    call('HINCRBY', KEYS[9], 'publish:' .. name, ARGV[8])
  end
  if named then
    local digests = {}
    for i, id in ipairs(ids) do
      digests[2 * i - 1], digests[2 * i] = id, ARGV[BEHIND + i - 1]
    end
    call('HSET', KEYS[10], unpack(digests))
    call('HDEL', KEYS[1], BEGUN_CALL)
  end
  return ids
end

local meta, route, lane, bodies, events, counters = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[8], KEYS[9]
local route_version, seq, checksum, lane_ttl_ms = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local worker, blob, groups = ARGV[5], ARGV[6], tonumber(ARGV[7])
local FIRST_GROUP, BIG = 10, 8192

local clock = read_clock(meta)

-- The lane comes before the route: a repeated call must find its answer even if the route moved on.
local last = call('GET', lane)
if last then
  local last_seq = tonumber(string.match(last, '^%d+'))
  if last_seq >= seq then
    local last_sum, last_verdicts = string.match(last, '^%d+ (%S+) ?(%a*)$')
    if last_seq > seq or last_sum ~= checksum then
      return { 'LANE_CONFLICT' }
    end
    call('PEXPIRE', lane, lane_ttl_ms) -- a WAIT behind a call that wrote nothing confirms nothing
    return { 'DUPLICATE', clock.now, last_verdicts }
  end
end
local messages, WORDS = tonumber(ARGV[8]), tonumber(ARGV[9])
local FIRST_MESSAGE = FIRST_GROUP + 2 * groups
local in_front = WORDS < 4 and ARGV[FIRST_MESSAGE + WORDS * messages]
if in_front and string.sub(call('GET', KEYS[#KEYS]) or '', 1, #in_front) ~= in_front then
  return { 'LANE_GAP' }
end
local current = call('HMGET', route, 'version', 'limit')
if (current[1] or '0') ~= route_version then
  return { 'STALE_ROUTE', current[1] or '0', call('HGET', route, 'table') or '' }
end
local most = tonumber(current[2] or 0)
local room = most > 0 and most - call('HLEN', bodies) or math.huge

local accepted, verdicts = messages == 0 and room >= 0 and {}, ''
if not accepted and WORDS < 4 and messages <= room then
  accepted = publish_bare(clock.now, bodies, groups, messages, WORDS == 3, FIRST_GROUP, BIG)
end
if not accepted and WORDS > 2 then
  accepted, verdicts = publish_each(clock, room, FIRST_GROUP, BIG)
end
if not accepted then
  return { 'FULL', most - room, most }
end
local count = #accepted
if count > 0 then
  call('HINCRBY', counters, 'publish', count == messages and ARGV[8] or count)
end
call('SET', lane, ARGV[2] .. ' ' .. checksum .. (verdicts == '' and '' or ' ' .. verdicts), 'PX', lane_ttl_ms)
if count > 0 then
  -- The blob of plain messages is their ids, packed, where they are many.
  append_history(clock, meta, events, 'publish', '', worker, WORDS == 2 and blob ~= '' and {} or accepted, '', blob)
end
return { 'OK', clock.now, verdicts }
