local call = redis.call
--[[ publish_with_options.lua: nothing -> ready (of every group of the topic), or -> scheduled

  Messages that are more than a body under an id which the client made: with an id of the caller's, a
  delay, a tag, a message group, keys, a large body, or for a topic that filters or has broadcast groups.
  What publish.lua promises (lanes, routes, a full topic), this script promises, too.

  A large body is stored right in front of the script, in its transaction, and becomes the message's here, or
  is dropped. If another one is stored under an id of the caller's, which a call that was cut left behind, that is
  dropped, nothing is published, and the call is to be made again.

  An id that is a half of an undecided transaction is refused: whether it will have been published
  nobody knows yet. Where a group takes only some tags, the caller says for each message which groups
  it goes to. One that no group wants is accepted, counted and not stored. What is delayed waits with
  its tag, and is given its groups when it is due (deliver.lua). Broadcast groups have no messages of
  their own: they get all of them in a stream, and where a topic has no other group nothing is stored.

  FLAGS  none
  KEYS   meta lane bodies big pending backlog events counters ids_key id_expiry scheduled
         message_groups half_of keyed message_keys incoming, then ready and wake of each group, then order and
         heads of each ordered one, then broadcast, where the topic has a broadcast group, then the
         lane of the call in front, if any (not both)
  ARGV   route_version seq checksum lane_ttl_ms worker blob in_front ('' for none) groups messages mode
         ('named': each message has an id of the caller's and nothing else, and the ids differ; 'filtered':
         each says which groups it goes to; else ''; '+' behind it: some have large bodies), then name and
         byte (and 'o' for an ordered one, 'q' where it orders messages without a message group, too) of each
         group, then id and body (a zero byte and its checksum for a large one) of each message, then options
         of each message (the digest, '' for an id the client made, alone, or between tabs digest, delay_ms,
         '' for none, '@' and a date, message group, message keys with blanks between, and the bytes of its
         groups, 'filtered', or, of one that is delayed, its tag)
  REPLY  OK | DUPLICATE, now_ms, verdicts ('' or one character per message: A accepted, D duplicate,
         C another body has this id, H a half of an undecided transaction has it)
         or STALE_ROUTE, version, table or FULL, stored, limit
         or LANE_CONFLICT or LANE_GAP: the call in front was not done; or AGAIN: it is to be made again
  COST   O(messages * groups); 8 commands and 3 a group, 8 more for ids that the caller chose and
         that are new, up to 15 more where one may be known, 1 more where a group takes only some, 3 more
         for message groups and 3 for an ordered group, 3 for broadcast, 2 for message keys (and 1 for
         each 3000 of them), 1 behind a call that is not answered; 5 for each large body, and 1
]]
-- @include clock
-- @include logical
-- @include history
-- @include lane
-- @include fan_out

-- Messages of any kind. It takes thirty functions, which would be a third of the time of a call with one
-- message that has but an id, so they are made in here; and all of these capture next to nothing, which takes
-- time at each call, too. Returns what was accepted and the verdicts; nothing if there is no room.
local function publish_each(time, room, incoming)
-- @include dedup
-- @include message_keys
-- @include forget
-- @include ownership
-- @include message_group_order
-- @include undo
-- @include broadcast

  local meta, bodies, big, pending, backlog, counters = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[8]
  local ids_key, id_expiry, scheduled, message_groups = KEYS[9], KEYS[10], KEYS[11], KEYS[12]
  local half_of, keyed, message_keys, FIRST_KEY = KEYS[13], KEYS[14], KEYS[15], 17
  local groups, messages, mode, FIRST_GROUP = tonumber(ARGV[8]), tonumber(ARGV[9]), ARGV[10], 11
  local FIRST_MESSAGE, BIG = FIRST_GROUP + 2 * groups, 8192
  local BEHIND = FIRST_MESSAGE + 2 * messages -- where the options begin
  local now, by_options, bytes_of_groups = time.now, {}, ''
  local queued = false
  for group = 1, groups do
    local byte = ARGV[FIRST_GROUP + 2 * group - 1]
    bytes_of_groups = bytes_of_groups .. string.sub(byte, 1, 1)
    queued = queued or string.sub(byte, 2) == 'q'
  end

  -- Digest, delay, message group, keys, and the bytes of its groups or its tag.
  local function read_options(text)
    if not string.find(text, '\t', 1, true) then
      return { digest = text, delay = '', name = '', names = '', where = '' }
    end
    local digest, delay, name, names, where = string.match(text, '^([^\t]*)\t([^\t]*)\t([^\t]*)\t([^\t]*)\t(.*)$')
    return { digest = digest, delay = delay, name = name, names = names, where = where }
  end

  -- Id, body and options of a message; few options differ.
  local function message(i)
    local at, text = FIRST_MESSAGE + 2 * (i - 1), ARGV[BEHIND + i - 1]
    by_options[text] = by_options[text] or read_options(text)
    return ARGV[at], ARGV[at + 1], by_options[text]
  end

  -- Ids the caller chose: known already, and with the same body?
  local digests, expiring, halves = {}, {}, {}
  local function look_up_ids()
    local chosen = {}
    for i = 1, messages do
      local id, _, options = message(i)
      chosen[#chosen + 1] = options.digest ~= '' and id or nil
    end
    if #chosen > 0 then
      local keys = { meta = meta, ids_key = ids_key, id_expiry = id_expiry, bodies = bodies, big = big }
      digests, expiring = look_up_chosen(keys, now, chosen, incoming.unadopted)
      local some = call('EXISTS', half_of) > 0 and call('HMGET', half_of, unpack(chosen)) or {}
      for i, half in ipairs(some) do
        halves[chosen[i]] = half
      end
    end
  end

  local added, made = 0, {} -- bodies that were not there, and what each group got
  local stored, sizes, begun, remembered, reborn, waiting, pushed = {}, {}, {}, {}, {}, {}, {}
  local accepted, verdicts, all_new, unwanted = {}, {}, true, {}
  local filtered = string.find(mode, 'filtered', 1, true)
  local targets = filtered and groups > 0 and {} or nil -- by id, where messages differ in them
  local named, name_of, slot_of = {}, {}, {} -- messages with a message group
  local carried = {} -- id and message keys of those that have some
  local stream, shown, body_of = broadcast_key(), {}, {}
  local nobody = groups == 0 and stream -- no group has messages of its own

  -- One that no group wants has no body, so there is nothing to find by its keys.
  local function keep(id, body, options)
    local size = #body
    if incoming.texts[id] then
      size = incoming.adopt(id)
    else
      stored[#stored + 1], stored[#stored + 2] = id, body
    end
    if options.names ~= '' then
      carried[#carried + 1], carried[#carried + 2] = id, options.names
    end
    if size > BIG then
      sizes[#sizes + 1], sizes[#sizes + 2] = id, size
    end
  end

  -- A delay in milliseconds, or '@' and a date in milliseconds.
  local function wait_until(id, delay_ms, tag)
    local date = tonumber(string.match(delay_ms, '^@(%d+)$'))
    local due = date and date - 1 / 2048 or now + delay_ms
    waiting[#waiting + 1], waiting[#waiting + 2] = due, id .. (tag == '' and '' or ' ' .. tag)
  end

  local function push(id, options)
    pushed[#pushed + 1] = id
    if targets then
      targets[id] = options.where
    end
    if queued or options.name ~= '' then
      named[#named + 1], name_of[id] = id, options.name ~= '' and options.name or nil
    end
  end

  local function accept(id, body, options)
    accepted[#accepted + 1] = id
    local delayed = options.delay ~= ''
    local wanted = delayed or not (nobody or targets and options.where == '')
    if wanted then
      keep(id, body, options)
    else
      unwanted[#unwanted + 1] = id
    end
    if stream and not delayed then
      shown[#shown + 1], body_of[id] = id, body
    end
    if delayed then
      wait_until(id, options.delay, options.where)
    elseif wanted then
      push(id, options)
    end
  end

  local function remember(id, digest)
    digests[id] = digest
    begun[#begun + 1], begun[#begun + 2] = id, BEGUN .. digest
    remembered[#remembered + 1], remembered[#remembered + 2] = id, digest
    reborn[#reborn + 1] = expiring[id]
  end

  local function judge(id, digest)
    if digest ~= '' and halves[id] then
      return 'H'
    elseif digest ~= '' and digests[id] then
      return (digests[id] == digest or digests[id] == ANY) and 'D' or 'C'
    end
    return 'A'
  end

  look_up_ids()
  for i = 1, messages do
    local id, body, options = message(i)
    verdicts[i] = judge(id, options.digest)
    if verdicts[i] == 'A' then
      if incoming.texts[id] and incoming.drop_other(id, options.digest) then
        return nil, 'AGAIN'
      end
      accept(id, body, options)
      if options.digest ~= '' then
        remember(id, options.digest)
      end
    else
      all_new = false
    end
  end
  if #stored / 2 + incoming.adopted > math.max(0, room) then
    return nil
  end

  local function note_owing()
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
      slot_of = number_messages(time, meta, message_groups, named, name_of)
    end
    if groups > 1 then
      note_owing()
    elseif groups == 0 and #pushed > 0 then
      call('RPUSH', backlog, unpack(pushed))
      made[1] = { ready = backlog, pushed = #pushed }
    end
    local orders_of = orders_behind(FIRST_KEY + 2 * groups - 1)
    for group = 1, groups do
      local ready, wake = KEYS[FIRST_KEY + 2 * group - 2], KEYS[FIRST_KEY + 2 * group - 1]
      local name, byte = ARGV[FIRST_GROUP + 2 * group - 2], ARGV[FIRST_GROUP + 2 * group - 1]
      local taken = targeted(string.sub(byte, 1, 1))
      made[group] = { ready = ready, orders = orders_of(#byte > 1) }
      push_new(made[group].orders, ready, wake, taken, slot_of, made[group])
      if #taken > 0 then
        call('HINCRBY', counters, 'publish:' .. name, #taken)
      end
      local passed_over = #pushed + #unwanted - #taken
      if passed_over > 0 then
        call('HINCRBY', counters, 'filtered:' .. name, passed_over)
      end
    end
  end

  local function store()
    if #stored > 0 then
      added = call('HSET', bodies, unpack(stored))
    end
    if #sizes > 0 then
      call('HSET', big, unpack(sizes))
    end
    if #carried > 0 then
      note_keys(keyed, message_keys, carried)
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

  local function remember_ids()
    call('HSET', ids_key, unpack(remembered))
    if #unwanted > 0 then
      start_id_expiry({ ids_key = ids_key, id_expiry = id_expiry }, now, unwanted)
    end
  end

  local function write()
    if #begun > 0 then
      call('HSET', ids_key, unpack(begun))
    end
    if #reborn > 0 then
      call('ZREM', id_expiry, unpack(reborn))
    end
    if #stored + incoming.adopted > 0 then
      store()
    end
    if #pushed + #unwanted > 0 then
      push_to_groups()
    end
    show_and_schedule()
    if #remembered > 0 then
      remember_ids()
    end
    note_accepted(verdicts)
  end

  -- What was written before a write was refused, unless a call that was cut has stored some bodies before.
  local function take_back_each()
    if #accepted == 0 or added + incoming.fresh < #stored / 2 + incoming.adopted then
      return
    end
    call('HDEL', ids_key, unpack(accepted))
    call('ZREM', id_expiry, unpack(accepted))
    for _, key in ipairs({ bodies, big, message_groups, pending }) do
      call('HDEL', key, unpack(accepted))
    end
    forget_keys(keyed, message_keys, accepted)
    for _, group in ipairs(made) do
      take_back_pushed(group)
    end
    for i = 2, #waiting, 2 do
      call('ZREM', scheduled, waiting[i])
    end
  end
  verdicts = all_new and '' or table.concat(verdicts)
  all_or_undo(write, take_back_each)
  return accepted, verdicts
end

local function is_any_in(key, read, ids)
  for _, found in ipairs(call(read, key, unpack(ids))) do
    if found then
      return true
    end
  end
end

-- Whether any of the caller's ids may be known; if not, nothing need be looked up by id.
local function is_any_known(now, ids, begun)
  local ids_key, id_expiry = KEYS[9], KEYS[10]
  if call('EXISTS', KEYS[13]) + call('HEXISTS', KEYS[1], begun) > 0 or is_any_in(ids_key, 'HMGET', ids)
    or is_any_in(KEYS[3], 'HMGET', ids) then
    return true
  end
  -- A sweep that was cut has forgotten ids, but not that they are to be forgotten.
  return #call('ZRANGEBYSCORE', id_expiry, '-inf', now, 'LIMIT', '0', '1') > 0
    and is_any_in(id_expiry, 'ZMSCORE', ids)
end

-- Bodies under ids that the caller chose, with nothing else, all for every group. Returns the ids; nothing
-- where one may be known.
local function publish_named(now, groups, messages)
  local meta, FIRST_KEY, FIRST_GROUP, BIG, BEGUN_CALL = KEYS[1], 17, 11, 8192, '?' -- BEGUN of include/dedup
  local ids, digests, sizes, FIRST_MESSAGE = {}, {}, {}, FIRST_GROUP + 2 * groups
  local BEHIND = FIRST_MESSAGE + 2 * messages
  for i = 1, messages do
    local id, size = ARGV[FIRST_MESSAGE + 2 * i - 2], #ARGV[FIRST_MESSAGE + 2 * i - 1]
    ids[i], digests[2 * i - 1], digests[2 * i] = id, id, ARGV[BEHIND + i - 1]
    if size > BIG then
      sizes[#sizes + 1], sizes[#sizes + 2] = id, size
    end
  end
  if is_any_known(now, ids, BEGUN_CALL) then
    return nil
  end
  call('HSET', meta, BEGUN_CALL, table.concat(ids, ' '))
  call('HSET', KEYS[3], unpack(ARGV, FIRST_MESSAGE, BEHIND - 1))
-- @include fan_out_or_undo
  call('HDEL', meta, BEGUN_CALL)
  return ids
end

local function publish_all(incoming)
  local clock, version, most = read_clock(KEYS[1], nil, false, 'route', 'most')
  local answer, limit = answer_at_once(clock.now, version), tonumber(most or 0)
  if answer then
    return answer
  end
  local messages, mode = tonumber(ARGV[9]), ARGV[10]
  local room = limit > 0 and limit - call('HLEN', KEYS[3]) + incoming.count or math.huge
  local accepted, verdicts
  if mode == 'named' and messages <= room then
    accepted, verdicts = publish_named(clock.now, tonumber(ARGV[8]), messages), ''
  end
  if not accepted then
    accepted, verdicts = publish_each(clock, room, incoming)
  end
  if not accepted then
    return verdicts and { verdicts } or { 'FULL', limit - room, limit }
  end
  return answer_accepted(clock, #accepted, accepted, verdicts)
end

-- The same, some of whose bodies are large.
local function publish_large()
-- @include unadopted
-- @include incoming
  local ids, texts = {}, {}
  for at = 11 + 2 * ARGV[8], 9 + 2 * ARGV[8] + 2 * ARGV[9], 2 do
    if string.byte(ARGV[at + 1]) == 0 then
      ids[#ids + 1], texts[#texts + 1] = ARGV[at], ARGV[at + 1]
    end
  end
  return with_incoming({ bodies = KEYS[3], big = KEYS[4], incoming = KEYS[16] }, ids, texts, publish_all)
end

if string.sub(ARGV[10], -1) == '+' then
  return publish_large()
end
return publish_all({ texts = {}, unadopted = {}, count = 0, adopted = 0, fresh = 0 })
