local call = redis.call
--[[ deliver.lua: scheduled and due -> ready (of every group of the topic)

  A message published with a delay waits for the whole topic; its groups are those of the route at
  the time it falls due. The caller passes the groups it knows; a changed route writes nothing.
  Where a group takes only some tags, the caller has looked at what is due (scheduled.lua) and says
  for each message which groups it goes to; one that no group wants is counted and gone. A member
  is an id, or an id, a blank and the message's tag. A message of a transaction may have a message
  group, and enters the orders of ordered groups. Broadcast groups get all of them in a stream.

  FLAGS  allow-oom
  KEYS   meta bodies pending scheduled backlog events counters big ids_key id_expiry message_groups
         keyed message_keys, then ready and wake of each group, then order and heads of each ordered
         one, then broadcast, where the topic has a broadcast group
  ARGV   route_version worker limit expected_ms (the time by the caller's own clock, or '') hold_ms groups,
         then name and byte (and 'o' for an ordered one, 'q' where it orders messages without a message
         group, too) of each group, then member and targets (the bytes of its groups) of each message
         looked at (none: all that is due goes to every group)
  REPLY  OK, now_ms, messages delivered, next_scheduled_ms (from now; '' for none)
         or STALE_ROUTE, version, table
  COST   O(limit * groups); 12 commands and 1 a message and 4 a group, 8 more for what nobody wants (11
         with message keys), 5 for broadcast
]]
-- @include clock
-- @include logical
-- @include jump
-- @include due_members
-- @include history
-- @include message_keys
-- @include within_bytes
-- @include forget
-- @include ownership
-- @include message_group_order
-- @include undo
-- @include broadcast

-- @bind keys
local FIRST_KEY, FIRST_GROUP = 14, 7
local FIRST_MEMBER = FIRST_GROUP + 2 * groups
local looked = #ARGV >= FIRST_MEMBER

local current = call('HMGET', meta, 'route', 'table')
if (current[1] or '0') ~= route_version then
  return { 'STALE_ROUTE', current[1] or '0', current[2] or '' }
end
local clock = read_clock(meta, expected_ms)
local hold = clock.offset == 0 and held_back(clock, meta, expected_ms, hold_ms)
if hold then
  return { 'OK', clock.now, 0, hold }
end

local function still_due()
  local members, targets = {}, {}
  for at = FIRST_MEMBER, #ARGV, 2 do
    members[#members + 1], targets[#targets + 1] = ARGV[at], ARGV[at + 1]
  end
  local scores, due, theirs = call('ZMSCORE', scheduled, unpack(members)), {}, {}
  for i, member in ipairs(members) do
    if scores[i] and tonumber(scores[i]) <= time_of(clock, scores[i]) then
      due[#due + 1], theirs[#theirs + 1] = member, targets[i]
    end
  end
  return due, theirs
end

local queued = false
local function bytes_of_groups()
  local bytes = ''
  for group = 1, groups do
    local byte = ARGV[FIRST_GROUP + 2 * group - 1]
    bytes = bytes .. string.sub(byte, 1, 1)
    queued = queued or string.sub(byte, 2) == 'q'
  end
  return bytes
end

local members, asked
if looked then
  members, asked = still_due()
else
  members, asked = due_members(clock, scheduled, limit), {}
end
local stream, READ_BYTES, IN_LINES, PUSHED = broadcast_key(), 4194304, 2400, 40000

-- What is read for the stream is bounded, what enters lines, and what nobody wants; the rest is for the next call.
local function within_bounds()
  local ids, ordered = {}, 0
  for group = 1, groups do
    ordered = ordered + (#ARGV[FIRST_GROUP + 2 * group - 1] > 1 and 1 or 0)
  end
  for i = 1, math.min(#members, math.ceil(IN_LINES / ordered), math.ceil(PUSHED / groups)) do
    ids[i] = string.match(members[i], '^%S+')
  end
  return { unpack(members, 1, within_bytes(keys, ids, stream and READ_BYTES)) }
end

members = #members > 0 and within_bounds() or members
local live, targets, lost = {}, {}, {}
local function find_bodies()
  local everybody = bytes_of_groups()
  for i, member in ipairs(members) do
    local id = string.match(member, '^%S+')
    if call('HEXISTS', bodies, id) == 1 then
      live[#live + 1], targets[#targets + 1] = id, asked[i] or everybody
    else
      lost[#lost + 1] = id
    end
  end
end
find_bodies()

-- What a delivery that was cut has noted stays: its groups may have finished with the message.
local function note_who_owes()
  local noted, owed = call('HMGET', pending, unpack(live)), {}
  for i, id in ipairs(live) do
    targets[i] = noted[i] or targets[i]
    if #targets[i] > 1 then
      owed[#owed + 1], owed[#owed + 2] = id, targets[i]
    end
  end
  if #owed > 0 then
    call('HSET', pending, unpack(owed))
  end
end

local orders_of = orders_behind(FIRST_KEY + 2 * groups - 1)

local function slots_of(ids)
  local kept, slot_of = call('HMGET', message_groups, unpack(ids)), {}
  for i, id in ipairs(ids) do
    slot_of[id] = kept[i] or nil
  end
  return slot_of
end

-- Where one of the groups orders what has no message group.
local function number_the_rest(slot_of)
  local ids = {}
  for i, id in ipairs(live) do
    ids[#ids + 1] = not slot_of[id] and targets[i] ~= '' and id or nil
  end
  if #ids > 0 then
    local numbered = number_messages(clock, meta, message_groups, ids, {})
    for _, id in ipairs(ids) do
      slot_of[id] = numbered[id]
    end
  end
end

local function push_to_groups()
  local slot_of = call('EXISTS', message_groups) == 1 and slots_of(live) or {}
  if groups > 1 then
    note_who_owes()
  elseif groups == 0 and not stream then
    call('RPUSH', backlog, unpack(live))
  end
  if queued then
    number_the_rest(slot_of)
  end
  for group = 1, groups do
    local name, byte = ARGV[FIRST_GROUP + 2 * group - 2], ARGV[FIRST_GROUP + 2 * group - 1]
    local taken = {}
    for i, id in ipairs(live) do
      taken[#taken + 1] = string.find(targets[i], string.sub(byte, 1, 1), 1, true) and id or nil
    end
    local orders = orders_of(#byte > 1)
    if #taken > 0 then
      local ready, wake = KEYS[FIRST_KEY + 2 * group - 2], KEYS[FIRST_KEY + 2 * group - 1]
      push_new(orders, ready, wake, taken, slot_of, {})
      call('HINCRBY', counters, 'publish:' .. name, #taken)
    end
    if #taken < #live then
      call('HINCRBY', counters, 'filtered:' .. name, #live - #taken)
    end
  end
end

local function forget_unwanted()
  local unwanted = {}
  for i, id in ipairs(live) do
    unwanted[#unwanted + 1] = targets[i] == '' and id or nil
  end
  if #unwanted > 0 then
    if clock.order then
      call('HDEL', message_groups, unpack(unwanted))
    end
    forget(keys, '', clock.now, unwanted)
  end
end

-- What has no body any more: a commit that was cut and repeated has numbered it again.
local function forget_lost()
  if #lost > 0 and clock.order then
    call('HDEL', message_groups, unpack(lost))
  end
end

local function show_all()
  local data, body_of = call('HMGET', bodies, unpack(live)), {}
  for i, id in ipairs(live) do
    body_of[id] = data[i]
  end
  cast(clock, meta, stream, live, body_of)
end

local function write()
  if stream then
    show_all()
  end
  push_to_groups()
  if looked or groups == 0 and stream then
    forget_unwanted()
  end
end

if #live > 0 then
  write()
end
forget_lost()
if #members > 0 then
  call('ZREM', scheduled, unpack(members))
end
if #live > 0 then
  append_history(clock, meta, events, 'deliver', '', worker, live, '', '')
end
local next_due = call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2]
if #live == 0 and next_due then
  keep_time(clock, meta, true)
end
return { 'OK', clock.now, #members, ms_until(clock, next_due) }
