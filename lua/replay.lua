local call = redis.call
--[[ replay.lua: committed -> ready, as far as bodies are kept

  One page of what a group has finished with in a time (`location` is what it has consumed), or of what
  all groups have finished with (`location` is what is kept), for a group that comes. A message starts again at
  attempt 1, for this group only; its lease number is above all that were given out, so old receipts stay
  stale, and a line of its failure record says when it was replayed. What other groups still owe is
  stored already; what is owed by this one is passed by, and so is what is not kept any more. What a page is about
  leaves `location`, so the next call goes on from there, however this one ended. In an ordered group a
  message has the place in its message group that it had.

  FLAGS  none
  KEYS   meta config ready inflight attempts failures dead bodies big pending kept kept_bodies location events
         counters wake order heads message_groups keyed message_keys
  ARGV   group actor record (one line of JSON for the failure record) since upto (times in ms: the first
         that counts and the first that does not) limit route (the version that the caller knows: behind a newer
         one nothing is given)
  REPLY  entries looked at (0: nothing is left; -1: the route is newer), messages given
  COST   O(limit * log size); 25 commands, 3 where some have message keys, 2 a message
]]
-- @include clock
-- @include logical
-- @include history
-- @include delivery_state
-- @include failures
-- @include ownership
-- @include message_keys
-- @include message_group_order
-- @include kept

-- @bind keys
local BIG, READ_BYTES = 8192, 1048576

local settings = call('HMGET', config, 'byte', 'ordered', 'floor')
local byte = settings[1]
local clock, version = read_clock(meta, nil, false, 'route')
local ordered = settings[2]
-- @include ordering
if tonumber(version or 0) > route then
  return { -1, 0 }
end
local ids = byte and call('ZRANGEBYSCORE', location, since, '(' .. upto, 'LIMIT', 0, limit) or {}
if #ids == 0 then
  return { 0, 0 }
end

-- No more than so many bytes of bodies.
local function shorten()
  local bytes = 0
  for i, id in ipairs(ids) do
    bytes = bytes + call('HSTRLEN', kept_bodies, id)
    if i > 1 and bytes > READ_BYTES then
      return { unpack(ids, 1, i - 1) }
    end
  end
  return ids
end
ids = shorten()

local given, owing, restored, dropped = {}, {}, {}, {}

-- Whether a message that is stored is to be given: only other groups owe it.
local function is_others(owed)
  return owed and not owns(byte, owed)
end

local function sort_out()
  local owed, kept_at = call('HMGET', pending, unpack(ids)), call('ZMSCORE', kept, unpack(ids))
  local texts = call('HMGET', kept_bodies, unpack(ids))
  for i, id in ipairs(ids) do
    if call('HEXISTS', bodies, id) == 1 then
      given[#given + 1] = is_others(owed[i]) and id or nil
    elseif kept_at[i] and texts[i] then
      given[#given + 1], owed[i] = id, ''
      restored[#restored + 1], restored[#restored + 2] = id, texts[i]
    end
    if given[#given] == id then
      owing[#owing + 1], owing[#owing + 2] = id, owed[i] .. byte
    end
    dropped[#dropped + 1] = kept_at[i] and id or nil
  end
end

-- Numbers and message groups, and message keys, of those that are stored again.
local function restore_details()
  local fields, slots, rows = {}, {}, {}
  for at = 1, #restored, 2 do
    fields[#fields + 1] = '\0' .. restored[at]
  end
  local function add(to, id, text)
    if text ~= '' then
      to[#to + 1], to[#to + 2] = id, text
    end
  end
  for i, text in ipairs(call('HMGET', kept_bodies, unpack(fields))) do
    local slot, names = string.match(text or '\t', '^([^\t]*)\t(.*)$')
    add(slots, restored[2 * i - 1], slot)
    add(rows, restored[2 * i - 1], names)
  end
  if #slots > 0 then
    call('HSET', message_groups, unpack(slots))
  end
  if #rows > 0 then
    note_keys(keyed, message_keys, rows)
  end
end

-- Above every number that was given out, also to those without an entry.
local function start_again()
  local number, entries, records = math.max(clock.now, sane(clock.floor), sane(settings[3])) + 1, {}, {}
  local entry, line = spell_entry(number, 1, 0, 0), add_failure(nil, 0, clock.now, record)
  for i, id in ipairs(given) do
    entries[2 * i - 1], entries[2 * i] = id, entry
    records[2 * i - 1], records[2 * i] = id, line
  end
  call('HSET', meta, 'floor', number)
  call('HSET', attempts, unpack(entries))
  call('HSET', failures, unpack(records))
end

-- Of a message group the first goes out, unless one of it is out.
local function list()
  local out, heads_now = given, {}
  if ordered == '1' and keys.used then
    local slot_of, slots = {}, call('HMGET', message_groups, unpack(given))
    for i, id in ipairs(given) do
      slot_of[id] = slots[i] or ''
    end
    table.sort(given, function(a, b)
      return slot_of[a] < slot_of[b]
    end)
    for i, id in ipairs(given) do
      slots[i] = slot_of[id] ~= '' and slot_of[id]
    end
    out, heads_now = enter_order(keys, given, slots, {})
  end
  if #out > 0 then
    call('RPUSH', ready, unpack(out))
    call('ZADD', wake, 0, '1')
  end
  set_heads(keys, heads_now)
end

local function store()
  local sizes = {}
  for at = 1, #restored, 2 do
    if #restored[at + 1] > BIG then
      sizes[#sizes + 1], sizes[#sizes + 2] = restored[at], #restored[at + 1]
    end
  end
  call('HSET', bodies, unpack(restored))
  if #sizes > 0 then
    call('HSET', big, unpack(sizes))
  end
end

local function give()
  if #restored > 0 then
    restore_details()
  end
  start_again()
  list()
  call('HSET', pending, unpack(owing))
  if #restored > 0 then
    store()
  end
  call('HINCRBY', counters, 'publish:' .. group, #given) -- what a group was given, less what it ended, is what it has
  call('HINCRBY', counters, 'replay:' .. group, #given)
  append_history(clock, meta, events, 'replay', group, actor, given, '', '')
end

local function answer()
  if #given > 0 then
    give()
  end
  call('ZREM', location, unpack(ids))
  if #dropped > 0 then
    drop_kept(keys, dropped)
  end
  return { #ids, #given }
end
sort_out()
return answer()
