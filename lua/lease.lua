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
         lease_no:1:0:0), errors (none, or per id the newest line of its failure record, '' for none; on a first
         attempt in a view why the message died), now_ms, rate, lease_no (of those without an entry); or NO_GROUP
         alone
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

-- @bind keys
local deaths, origins = KEYS[20], KEYS[21]
local SMALL = 2048 -- what a body counts that is not listed in `big`, because it is at most 8 KiB
local TRUSTED_MS = 10 -- no server is replaced faster
local LARGE = 65536 -- a larger body is not read here
local RAISED_EVERY_MS = 1800000 -- half as long as ids are remembered
local LOOKED_AT_MS = 20000 -- every blocked consumer looks at least this often

local settings = call('HMGET', config, 'version', 'paused', 'byte', 'max_inflight', 'rate', 'view', 'ordered',
  'floor', 'verified')
if not settings[1] then
  return { 'NO_GROUP' }
end
local clock = read_clock(meta, expected_ms)
local byte, most, rate = settings[3], tonumber(settings[4] or ''), settings[5] or ''
local view = settings[6] == '1'
local held = most and call('ZCARD', inflight) or 0

local function first_score(key)
  return call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]
end

local function remaining(key)
  return ms_until(clock, first_score(key))
end

local function refusal()
  if settings[2] == '1' then
    return 'PAUSED'
  elseif most and held >= most then
    return 'LIMITED'
  end
  return rate ~= '' and not tokens and 'RATED'
end

local refused = refusal()
if refused then
  keep_time(clock, meta)
  return {
    refused, remaining(due), remaining(inflight), remaining(scheduled), 0, {}, {}, '', {}, clock.now, rate, 1,
  }
end
want = most and math.min(want, most - held) or want
local first, second = ready, retry
if prefer == 'retry' then
  first, second = retry, ready
end

local ids, from_first = peek_lists(first, second, want)

local strays, orphans, scheduled_in, due_in = {}, {}, '', ''

-- One question for six: in most groups none of them is there.
local odd = call('EXISTS', dead, view and deaths or pending, big, attempts, due, scheduled) > 0
if odd then
  due_in, scheduled_in = remaining(due), remaining(scheduled)
end

-- The first that ends of what others hold; where there is none, nothing is in flight.
local earliest = tonumber(first_score(inflight))

-- Whether any id may be a leftover, or too large for this lease.
local function is_choosy()
  return view or odd and call('EXISTS', dead, pending, big) > 0
end
local choosy = is_choosy()

local function looked_up(count, command, key)
  return choosy and call(count, key) > 0 and call(command, key, unpack(ids)) or {}
end

local ordered = settings[7]
-- @include ordering

-- Of an ordered group: who is not the head of its message group.
local function out_of_turn()
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

local deadline = clock.now + visibility_ms
local until_ms = string.format('%d', deadline) -- spelled once: a number would be spelled for each message

-- Whether all are to be leased, unless one stands in the lists twice or is in flight: nothing is dead, large
-- or out of turn. So it is in most calls: nothing is copied, and writing tells what is in flight, because it
-- keeps its deadline. For that its deadline must be another one.
local plain
local function are_plain(waits)
  if choosy or next(waits) or SMALL * #ids > byte_limit then
    return false
  end
  return not earliest or call('ZCOUNT', inflight, until_ms, until_ms) == 0
end

local large = {} -- ids of messages whose bodies are

-- Which of the ids are to be leased, and how many were looked at.
local function choose()
  local waits = out_of_turn()
  plain = are_plain(waits)
  if plain then
    return ids, #ids
  end
  local taken, seen, bytes = {}, {}, 0
  local leased = earliest and call('ZMSCORE', inflight, unpack(ids)) or {}
  local is_dead = looked_up('ZCARD', 'ZMSCORE', dead)
  local owed = looked_up('HLEN', 'HMGET', view and deaths or pending)
  local sizes = looked_up('HLEN', 'HMGET', big)
  local function size_of(i)
    local size = sizes[i] and tonumber(sizes[i]) or SMALL
    large[ids[i]] = size > LARGE or nil
    return size
  end
  local function is_owed(i)
    if view then
      return is_dead[i] and owed[i]
    end
    return not is_dead[i] and owns(byte, owed[i])
  end
  local all_owed = #is_dead + #owed == 0 and not view
  for i = 1, #ids do
    local id = ids[i]
    if not (all_owed or is_owed(i)) then
      strays[#strays + 1] = id
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

local found, texts, members, entries, all_first = {}, {}, {}, {}, true

-- Some have no body any more: those that have one, and their numbers.
local function without_orphans(taken, stored, numbers)
  local kept, missing = {}, {}
  found, texts = {}, {}
  for i = 1, #taken do
    if stored[i] then
      found[#found + 1], texts[#texts + 1], kept[#kept + 1] = taken[i], stored[i], numbers[i] or false
    else
      missing[#missing + 1] = taken[i]
    end
  end
  local leased = plain and earliest and call('ZMSCORE', inflight, unpack(missing)) or {}
  for i, id in ipairs(missing) do
    orphans[#orphans + 1] = not leased[i] and id or nil
  end
  return kept
end

local function read_bodies(taken)
  if not next(large) then
    return call('HMGET', bodies, unpack(taken))
  end
  local stored = {}
  for i, id in ipairs(taken) do
    if large[id] then
      stored[i] = call('HEXISTS', bodies, id) == 1 and ''
    else
      stored[i] = call('HGET', bodies, id)
    end
  end
  return stored
end

local function read_messages(taken)
  local stored = read_bodies(taken)
  local numbers = odd and call('HLEN', attempts) > 0 and call('HMGET', attempts, unpack(taken)) or {}
  found, texts = taken, stored
  for i = 1, #taken do
    if not stored[i] then
      numbers = without_orphans(taken, stored, numbers)
      break
    end
  end
  for i = 1, #found do
    members[2 * i - 1], members[2 * i] = until_ms, found[i]
  end
  for i = 1, (view or #numbers > 0) and #found or 0 do
    entries[i], all_first = numbers[i] or '-', all_first and not numbers[i]
  end
end

-- Of a plain call: what was in flight before is not leased, and what stood in the lists twice once.
local function leave_out_repeated(errors)
  local deadlines, seen = call('ZMSCORE', inflight, unpack(found)), {}
  local all = { found, texts, entries, errors }
  local kept = { {}, {}, {}, {} }
  all_first = true
  for i, id in ipairs(found) do
    if not seen[id] and tonumber(deadlines[i]) == deadline then
      local at = #kept[1] + 1
      for column = 1, 4 do
        kept[column][at] = all[column][i]
      end
      seen[id], all_first = true, all_first and (entries[i] or '-') == '-'
    end
  end
  found, texts, entries = kept[1], kept[2], kept[3]
  return kept[4]
end

local function read_chosen()
  local taken, looked_at = choose()
  if #taken > 0 then
    read_messages(taken)
  end
  return looked_at
end
local scanned = #ids > 0 and read_chosen() or 0
-- What was in the lists and is not leased: a view has marks of it, and messages without a body have bytes.
local function forget_leftovers()
  if view and #strays > 0 then
    call('HDEL', failures, unpack(strays))
    call('HDEL', attempts, unpack(strays))
    call('HDEL', deaths, unpack(strays))
  end
  if #orphans > 0 then
    call('HDEL', failures, unpack(orphans))
    call('HDEL', attempts, unpack(orphans))
    call('HDEL', pending, unpack(orphans))
    call('HINCRBY', counters, 'orphan:' .. group, #orphans)
  end
end

-- Returns the lowest number that these leases may have, and whether those without an entry have it. It is
-- looked into where it was not just now: another server may have lost what an earlier one wrote.
local function lowest_number()
  local own = settings[8]
  if own and own == clock.floor then
    local since = clock.now - settings[9]
    if since >= 0 and since < TRUSTED_MS and clock.now - own < RAISED_EVERY_MS then
      return tonumber(own), true
    end
  end
  local find_floor, adopt_floor = load_lease_numbers()
  own = tonumber(own) or 1
  local floor = find_floor(keys, clock, own, RAISED_EVERY_MS)
  return floor, floor == own or adopt_floor(keys, own, floor)
end

local floor, adopted = 1, true
local function write_in_flight()
  local errors = (view or not all_first) and newest_failures(failures, found, entries, origins) or {}
  if #found == 0 then
    return errors, ''
  end
  local added = call('ZADD', inflight, 'NX', unpack(members))
  if added < #found then
    errors = leave_out_repeated(errors)
  end
  if not (all_first and adopted) then
    local _, _, number_leases = load_lease_numbers()
    number_leases(attempts, found, entries, floor, adopted)
  end
  return errors, all_first and adopted and '' or table.concat(entries, ' ')
end
-- A leftover may still be the head of its message group: the call that ended it, or sent it back, was cut.
local function let_next_go()
  local _, finish_in_order = load_ordering()
  finish_in_order(keys, strays, {})
  finish_in_order(keys, orphans, orphans, true)
end
local function trim_lists()
  if scanned > 0 then
    call('LTRIM', first, math.min(scanned, from_first), '-1')
  end
  if scanned > from_first then
    call('LTRIM', second, scanned - from_first, '-1')
  end
end
-- How many will be in the lists once they are trimmed.
local function count_left()
  if #ids == want or #strays + #orphans > 0 then -- the lists were not read to their ends, or got followers
    return call('LLEN', ready) + call('LLEN', retry) - scanned
  end
  return #ids - scanned
end
-- Others learn of a short lease at once; of a longer one when they look the next time.
local function has_news()
  return #found > 0 and visibility_ms < LOOKED_AT_MS and (not earliest or deadline < earliest)
end
local status, left, errors, entry_text = 'OK', 0, {}, ''
local function write_all()
  errors, entry_text = write_in_flight()
  left = count_left()
  local full = most and held + #found >= most
  if not full and (left > 0 or has_news()) then
    call('ZADD', wake, '0', '1')
  end
  if #found > 0 then
    call('HINCRBY', counters, 'lease:' .. group, #found)
    append_history(clock, meta, events, 'lease', group, worker, found, entry_text, '')
    earliest = math.min(earliest or deadline, deadline)
  elseif odd or earliest then
    keep_time(clock, meta)
  end
  status = full and 'LIMITED' or 'OK'
end
local function prepare_writes()
  if #strays + #orphans > 0 then
    let_next_go()
    forget_leftovers()
  end
  if #found > 0 then
    floor, adopted = lowest_number()
  end
  if scanned > 0 then
    call('LTRIM', first, '0', '-1') -- changes nothing: only once it may be trimmed is anything leased
  end
end
prepare_writes()
all_or_undo(write_all, function()
  if #found > 0 then
    call('ZREM', inflight, unpack(found))
  end
end)
trim_lists()
return {
  status, due_in, ms_until(clock, earliest), scheduled_in, left, found,
  texts, entry_text, errors, clock.now, rate, floor,
}
