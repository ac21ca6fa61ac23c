local call = redis.call
--[[ commit.lua: half -> scheduled and due

  The transaction is committed (its record in the namespace's slot says so), and here its halves become
  messages that are due now, in the order in which they were published. deliver.lua gives them to
  the groups of the route, as it does with what was published with a delay; the caller calls it at
  once, and if it cannot, the next worker does. A batch per call.

  FLAGS  allow-oom
  KEYS   meta scheduled halves half_of closed events counters message_groups
  ARGV   transaction worker decided_ms limit
  REPLY  halves committed, halves left
  COST   O(limit * log scheduled); 15 commands, 3 more for message groups
]]
-- @include clock
-- @include logical
-- @include history
-- @include halves
-- @include ownership
-- @include message_group_order

-- @bind
-- The due times of a transaction's messages are all past, and differ by fractions of a millisecond, so that
-- they are delivered in the order of their numbers.
local SPREAD_MS, STEPS = 8, 1024

local clock = read_clock(meta)
local members = halves_of(halves, transaction, limit)
close_transaction(closed, clock.now, transaction)
local due, ids, named, name_of = {}, {}, {}, {}
local base = math.min(decided_ms, clock.now) - SPREAD_MS
for i, member in ipairs(members) do
  local half = read_half(member)
  ids[i] = half.id
  if half.message_group ~= '' then
    named[#named + 1], name_of[half.id] = half.id, half.message_group
  end
  due[2 * i - 1] = string.format('%.10f', base + half.number / STEPS)
  due[2 * i] = half.id .. (half.tag ~= '' and ' ' .. half.tag or '')
end
if #members > 0 then
  if #named > 0 then -- their slots in the order of ordered groups, which deliver lets them enter
    number_messages(clock, meta, message_groups, named, name_of)
  end
  call('ZADD', scheduled, unpack(due))
  call('HDEL', half_of, unpack(ids))
  call('ZREM', halves, unpack(members))
  call('HINCRBY', counters, 'commit', #ids)
  append_history(clock, meta, events, 'commit', '', worker, ids, '', '')
end
return { #ids, #halves_of(halves, transaction, 1) }
