local call = redis.call
--[[ lease.lua: ready -> inflight

  Take up to `want` messages, from the preferred lane first and the other one after it. What the
  lists hold is a hint: an id that is in flight, dead, without a body or not owed to this group is
  a leftover and is dropped. The lists are peeked, the in-flight set is written, and only then are
  they trimmed, so a cut leaves a duplicate id and never a lost one. Where a write is refused, nothing
  is leased.

  A group may have its share of max_inflight in flight here and no more; the call that ends a lease of a
  full group wakes it, so a lease that leaves work behind because of that wakes nobody. A group with
  a rate leases only for a caller that holds tokens. In an ordered group an id that is not the head
  of its message group is a leftover too; and a leftover that is the head lets the next one go.

  A group that consumes another one's dead letters (a view) has the other one's set of them for its
  `dead`: what was redriven or purged meanwhile is a leftover, and so is what it has finished with.

  A large body does not pass through here, where each byte would be copied and hashed: its consumer reads it
  while it holds the lease.

  FLAGS  allow-oom
  KEYS   meta config ready retry inflight attempts dead due wake bodies big pending scheduled events
         counters failures order heads message_groups, then deaths and origins (the other group's failures)
         of a group that consumes dead letters
  ARGV   group worker want byte_limit visibility_ms prefer ('ready' | 'retry') tokens ('1' | '0') expected_ms
         (the time by the caller's own clock; '' where it has just looked)
  REPLY  status, next_due_ms, next_deadline_ms, next_scheduled_ms (from now; '' for none), left, ids,
         bodies ('' for a large one), entries ('' if all are first attempts, else one per id, '-' for
         lease_no:1:0:0), errors ('' if there are none, else per id the newest line of its failure record, ''
         for none; on a first attempt in a view why the message died), now_ms, rate, lease_no (of those without
         an entry); or NO_GROUP alone
         status is OK; LIMITED if the group now has in flight all that it may, with messages or without;
         PAUSED, or RATED (it needs tokens), always without messages
  COST   O(want + log inflight); 18 commands, 3 where numbers are looked into (every 10 ms), 7 where a message
         waits, failed, is large or owed to several groups, 1 where the lists have leftovers, 1 with
         max_inflight, 2 in an ordered group; 1 a message where one is over 64 KiB
]]
-- @include clock
-- @include logical
-- @include history
-- @include ownership
-- @include last_failure
-- @include undo

-- Functions are made at each call, and whatever they share with what is around them takes longer than they do. So
-- they get what they need: `keys`, and in `o` what is known of this lease.

-- What ordered groups need is made only where a message ever had a message group.
local function load_ordering()
-- @include message_group_order
  return message_group_of, finish_in_order
end

-- What is needed only where the numbers of leases are looked into, or a message has an entry.
local function load_lease_numbers()
-- @include incarnation
-- @include delivery_state
-- @include lease_numbers
  return find_floor, adopt_floor, number_leases
end

local function peek_lists(first, second, want)
  local ids = call('LRANGE', first, '0', want - 1)
  local from_first = #ids
  if from_first < want then
    for i, id in ipairs(call('LRANGE', second, '0', want - from_first - 1)) do
      ids[from_first + i] = id
    end
  end
  return ids, from_first
end

local function first_score(key)
  return call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]
end

local function remaining(clock, key)
  return ms_until(clock, first_score(key))
end

-- Why nothing may be leased.
local function refusal(paused, full, has_to_pay)
  return paused == '1' and 'PAUSED' or full and 'LIMITED' or has_to_pay and 'RATED'
end

-- Of an ordered group: who is not the head of its message group.
local function out_of_turn(keys, ids)
  if not (keys.used and keys.ordered == '1') then
    return {}
  end
  local waits, asked, names, message_group_of = {}, {}, {}, load_ordering()
  for i, slot in ipairs(call('HMGET', keys.message_groups, unpack(ids))) do
    if slot then
      asked[#asked + 1], names[#names + 1] = ids[i], message_group_of(slot)
    end
  end
  for i, head in ipairs(#asked > 0 and call('HMGET', keys.heads, unpack(names)) or {}) do
    waits[asked[i]] = head and head ~= asked[i] or nil
  end
  return waits
end

-- Whether any id may be a leftover, or too large for this lease.
local function is_choosy(keys, o)
  return o.view or o.odd and call('EXISTS', keys.dead, keys.pending, keys.big) > 0
end

local SMALL = 2048 -- what a body counts that is not listed in `big`, because it is at most 8 KiB

-- Whether all are to be leased, unless one stands in the lists twice or is in flight: nothing is dead, large
-- or out of turn. So it is in most calls: nothing is copied, and writing tells what is in flight, because it
-- keeps its deadline. For that its deadline must be another one.
local function are_plain(keys, o, waits, byte_limit)
  if o.choosy or next(waits) or SMALL * #o.ids > byte_limit then
    return false
  end
  return not o.earliest or call('ZCOUNT', keys.inflight, o.until_ms, o.until_ms) == 0
end

local function looked_up(o, count, command, key)
  return o.choosy and call(count, key) > 0 and call(command, key, unpack(o.ids)) or {}
end

-- Which of the ids are to be leased, and how many were looked at.
local function choose(keys, o, waits, byte_limit)
  local LARGE = 65536 -- a larger body is not read here
  local ids, taken, seen, bytes = o.ids, {}, {}, 0
  local leased = o.earliest and call('ZMSCORE', keys.inflight, unpack(ids)) or {}
  local is_dead = looked_up(o, 'ZCARD', 'ZMSCORE', keys.dead)
  local owed = looked_up(o, 'HLEN', 'HMGET', o.view and keys.deaths or keys.pending)
  local sizes = looked_up(o, 'HLEN', 'HMGET', keys.big)
  local function size_of(i)
    local size = sizes[i] and tonumber(sizes[i]) or SMALL
    o.large[ids[i]] = size > LARGE or nil
    return size
  end
  local function is_owed(i)
    if o.view then
      return is_dead[i] and owed[i]
    end
    return not is_dead[i] and owns(keys.byte, owed[i])
  end
  local all_owed = #is_dead + #owed == 0 and not o.view
  for i = 1, #ids do
    local id = ids[i]
    if not (all_owed or is_owed(i)) then
      o.strays[#o.strays + 1] = id
    elseif not (leased[i] or seen[id] or waits[id]) then
      bytes = bytes + size_of(i)
      if bytes > byte_limit and #taken > 0 then
        return taken, i - 1
      end
      taken[#taken + 1], seen[id] = id, true
    end
  end
  return taken, #ids
end

-- Some have no body any more: those that have one, and their numbers.
local function without_orphans(keys, o, taken, stored, numbers)
  local kept, missing = {}, {}
  o.found, o.texts = {}, {}
  for i = 1, #taken do
    if stored[i] then
      o.found[#o.found + 1], o.texts[#o.texts + 1], kept[#kept + 1] = taken[i], stored[i], numbers[i] or false
    else
      missing[#missing + 1] = taken[i]
    end
  end
  local leased = o.plain and o.earliest and call('ZMSCORE', keys.inflight, unpack(missing)) or {}
  for i, id in ipairs(missing) do
    o.orphans[#o.orphans + 1] = not leased[i] and id or nil
  end
  return kept
end

local function read_bodies(keys, large, taken)
  if not next(large) then
    return call('HMGET', keys.bodies, unpack(taken))
  end
  local stored = {}
  for i, id in ipairs(taken) do
    if large[id] then
      stored[i] = call('HEXISTS', keys.bodies, id) == 1 and ''
    else
      stored[i] = call('HGET', keys.bodies, id)
    end
  end
  return stored
end

local function read_messages(keys, o, taken)
  local stored = read_bodies(keys, o.large, taken)
  local numbers = o.odd and call('HLEN', keys.attempts) > 0 and call('HMGET', keys.attempts, unpack(taken)) or {}
  o.found, o.texts = taken, stored
  for i = 1, #taken do
    if not stored[i] then
      numbers = without_orphans(keys, o, taken, stored, numbers)
      break
    end
  end
  for i = 1, (o.view or #numbers > 0) and #o.found or 0 do
    o.entries[i], o.all_first = numbers[i] or '-', o.all_first and not numbers[i]
  end
end

-- Returns how many were looked at.
local function read_chosen(keys, o, byte_limit)
  if #o.ids == 0 then
    return 0
  end
  local waits = out_of_turn(keys, o.ids)
  local taken, looked_at = o.ids, #o.ids
  o.plain = are_plain(keys, o, waits, byte_limit)
  if not o.plain then
    taken, looked_at = choose(keys, o, waits, byte_limit)
  end
  if #taken > 0 then
    read_messages(keys, o, taken)
  end
  return looked_at
end

-- Of a plain call: what was in flight before is not leased, and what stood in the lists twice once.
local function leave_out_repeated(keys, o)
  local deadlines, seen = call('ZMSCORE', keys.inflight, unpack(o.found)), {}
  local all = { o.found, o.texts, o.entries, o.errors }
  local kept = { {}, {}, {}, {} }
  o.all_first = true
  for i, id in ipairs(o.found) do
    if not seen[id] and tonumber(deadlines[i]) == o.deadline then
      local at = #kept[1] + 1
      for column = 1, 4 do
        kept[column][at] = all[column][i]
      end
      seen[id], o.all_first = true, o.all_first and (o.entries[i] or '-') == '-'
    end
  end
  o.found, o.texts, o.entries, o.errors = kept[1], kept[2], kept[3], kept[4]
end

-- What was in the lists and is not leased: a view has marks of it, and messages without a body have bytes.
local function forget_leftovers(keys, o, group)
  if o.view and #o.strays > 0 then
    call('HDEL', keys.failures, unpack(o.strays))
    call('HDEL', keys.attempts, unpack(o.strays))
    call('HDEL', keys.deaths, unpack(o.strays))
  end
  if #o.orphans > 0 then
    call('HDEL', keys.failures, unpack(o.orphans))
    call('HDEL', keys.attempts, unpack(o.orphans))
    call('HDEL', keys.pending, unpack(o.orphans))
    call('HINCRBY', keys.counters, 'orphan:' .. group, #o.orphans)
  end
end

-- A leftover may still be the head of its message group: the call that ended it, or sent it back, was cut.
local function let_next_go(keys, o)
  local _, finish_in_order = load_ordering()
  finish_in_order(keys, o.strays, {})
  finish_in_order(keys, o.orphans, o.orphans, true)
end

-- Returns the lowest number that these leases may have, and whether those without an entry have it. It is
-- looked into where it was not just now: another server may have lost what an earlier one wrote.
local function lowest_number(keys, clock, own, verified)
  local TRUSTED_MS = 10 -- no server is replaced faster
  local RAISED_EVERY_MS = 1800000 -- half as long as ids are remembered
  if own and own == clock.floor then
    local since = clock.now - verified
    if since >= 0 and since < TRUSTED_MS and clock.now - own < RAISED_EVERY_MS then
      return tonumber(own), true
    end
  end
  local find_floor, adopt_floor = load_lease_numbers()
  own = tonumber(own) or 1
  local floor = find_floor(keys, clock, own, RAISED_EVERY_MS)
  return floor, floor == own or adopt_floor(keys, own, floor)
end

local function write_in_flight(keys, o)
  if o.view or not o.all_first then
    o.errors = newest_failures(keys.failures, o.found, o.entries, o.origins)
  end
  local members = {}
  for i = 1, #o.found do
    members[2 * i - 1], members[2 * i] = o.until_ms, o.found[i]
  end
  if #members > 0 and call('ZADD', keys.inflight, 'NX', unpack(members)) < #o.found then
    leave_out_repeated(keys, o)
  end
  if #o.found > 0 and not (o.all_first and o.adopted) then
    local _, _, number_leases = load_lease_numbers()
    number_leases(keys.attempts, o.found, o.entries, o.floor, o.adopted)
    o.entry_text = table.concat(o.entries, ' ')
  end
end

local function trim_lists(first, second, scanned, from_first)
  if scanned > 0 then
    call('LTRIM', first, math.min(scanned, from_first), '-1')
  end
  if scanned > from_first then
    call('LTRIM', second, scanned - from_first, '-1')
  end
end

-- How many will be in the lists once they are trimmed.
local function count_left(keys, o)
  if #o.ids == o.want or #o.strays + #o.orphans > 0 then -- the lists were not read to their ends, or got followers
    return call('LLEN', keys.ready) + call('LLEN', keys.retry) - o.scanned
  end
  return #o.ids - o.scanned
end

-- Others learn of a short lease at once; of a longer one when they look the next time.
local function has_news(o, visibility_ms)
  local LOOKED_AT_MS = 20000 -- every blocked consumer looks at least this often
  return #o.found > 0 and visibility_ms < LOOKED_AT_MS and (not o.earliest or o.deadline < o.earliest)
end

local function write_all(keys, clock, o, group, worker, visibility_ms)
  write_in_flight(keys, o)
  o.left = count_left(keys, o)
  local full = o.room and #o.found >= o.room
  if not full and (o.left > 0 or has_news(o, visibility_ms)) then
    call('ZADD', keys.wake, '0', '1')
  end
  if #o.found > 0 then
    call('HINCRBY', keys.counters, 'lease:' .. group, #o.found)
    append_history(clock, keys.meta, keys.events, 'lease', group, worker, o.found, o.entry_text, '')
    o.earliest = math.min(o.earliest or o.deadline, o.deadline)
  elseif o.odd or o.earliest then
    keep_time(clock, keys.meta)
  end
  o.status = full and 'LIMITED' or 'OK'
end

local function prepare_writes(keys, clock, o, group, first)
  if #o.strays + #o.orphans > 0 then
    let_next_go(keys, o)
    forget_leftovers(keys, o, group)
  end
  if #o.found > 0 then
    o.floor, o.adopted = lowest_number(keys, clock, o.own, o.verified)
  end
  if o.scanned > 0 then
    call('LTRIM', first, '0', '-1') -- changes nothing: only once it may be trimmed is anything leased
  end
end

-- @bind keys
keys.deaths = KEYS[20]

local settings = call('HMGET', config, 'version', 'paused', 'byte', 'max_inflight', 'rate', 'view', 'ordered',
  'floor', 'verified')
if not settings[1] then
  return { 'NO_GROUP' }
end
local clock = read_clock(meta, expected_ms)
local byte, ordered, most, rate = settings[3], settings[7], tonumber(settings[4] or ''), settings[5] or ''
-- @include ordering
local room = most and most - call('ZCARD', inflight)

local refused = refusal(settings[2], most and room <= 0, rate ~= '' and not tokens)
if refused then
  keep_time(clock, meta)
  return {
    refused, remaining(clock, due), remaining(clock, inflight), remaining(clock, scheduled), 0, {}, {}, '', '',
    clock.now, rate, 1,
  }
end
local first, second = ready, retry
if prefer == 'retry' then
  first, second = retry, ready
end
local view, deadline = settings[6] == '1', clock.now + visibility_ms
local o = {
  want = math.min(want, room or want), room = room, view = view, origins = KEYS[21], own = settings[8],
  verified = settings[9], deadline = deadline,
  until_ms = string.format('%d', deadline), -- spelled once: a number would be spelled for each message
  ids = false, scanned = 0, found = {}, texts = {}, entries = {}, errors = '', entry_text = '', all_first = true,
  strays = {}, orphans = {}, large = {}, floor = 1, adopted = true,
}
local ids, from_first = peek_lists(first, second, o.want)
o.ids = ids

-- One question for six: in most groups none of them is there.
o.odd = call('EXISTS', dead, view and keys.deaths or pending, big, attempts, due, scheduled) > 0
local due_in, scheduled_in = '', ''
if o.odd then
  due_in, scheduled_in = remaining(clock, due), remaining(clock, scheduled)
end
-- The first that ends of what others hold; where there is none, nothing is in flight.
o.earliest = tonumber(first_score(inflight))
o.choosy = is_choosy(keys, o)
o.scanned = read_chosen(keys, o, byte_limit)

prepare_writes(keys, clock, o, group, first)
all_or_undo(write_all, function()
  if #o.found > 0 then
    call('ZREM', inflight, unpack(o.found))
  end
end, keys, clock, o, group, worker, visibility_ms)
trim_lists(first, second, o.scanned, from_first)
return {
  o.status, due_in, ms_until(clock, o.earliest), scheduled_in, o.left, o.found,
  o.texts, o.entry_text, #o.errors > 0 and o.errors or '', clock.now, rate, o.floor,
}
