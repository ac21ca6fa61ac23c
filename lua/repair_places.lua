local call = redis.call
--[[ repair_places.lua: the lists of a group agree again about some messages

  The auditor (rqretry fsck) reads page by page while others work, so each message is looked at again
  here, and what is right by now is left alone. Nothing leaves a list unless the group has it in another
  one, has finished with it, or there is no body to deliver.

    put_back  owed and in no list: to the end of ready, or to its turn in the order
    settle    in more than one list: dead, in flight, the latest due time or a list stays, in this order;
              finished with: it leaves all lists, but a dead letter is owed again
    lost      listed without a body: in no list any more
    cause     a dead letter without a cause gets one; the cause of what is not dead goes
    clusters  an entry of fingerprints (it is named, and not its id) is there if such a dead letter is
    numbers   numbers and failures of a message that the group does not have go
    index     the index of due times is as early as the levels (no messages are named)

  FLAGS  allow-oom
  KEYS   meta config ready retry inflight attempts failures dead deaths due wake order heads bodies pending
         message_groups events counters fingerprints, then levels
  ARGV   group actor what, then ids or members
  REPLY  how many of the ids were looked at (the caller sends the others again), those that were repaired
  COST   O(messages * (ready + retry + levels * log waiting)); 5 commands, 10 and 1 a level for a message
]]
-- @include clock
-- @include logical
-- @include history
-- @include delivery_state
-- @include ownership
-- @include message_group_order
-- @include bounded_search
-- @include locate
-- @include fingerprints

-- @bind keys
keys.firm = { inflight, unpack(levels) }

local settings = call('HMGET', config, 'byte', 'ordered', 'view', 'floor')
if not settings[1] then
  return { #ARGV - 3, {} } -- the group's configuration is not here yet
end
local byte, view = settings[1], settings[3] == '1'
local clock = read_clock(meta)
local ordered = settings[2]
-- @include ordering
keys.floor = tonumber(settings[4]) or 1
if not view then
  table.insert(keys.firm, 1, dead)
end

local function is_owed(id)
  if view then
    return call('HEXISTS', deaths, id) == 1 and call('ZSCORE', dead, id)
  end
  local owed = call('HGET', pending, id)
  return owed and owns(byte, owed) and call('HEXISTS', bodies, id) == 1
end

local function slot_of(id)
  return keys.ordered == '1' and call('HGET', keys.message_groups, id)
end

local repairs = {}

function repairs.put_back(id)
  if not is_owed(id) or is_out(keys, id) then
    return false
  end
  local slot = slot_of(id)
  if not slot then
    send_out(keys, id)
    return true
  end
  local name, waits = message_group_of(slot), is_in_order(keys, id, slot)
  local head = call('HGET', keys.heads, name)
  if waits and head and head ~= id then
    return false
  end
  if not waits then
    call('ZADD', keys.order, 0, order_member(slot, id, byte))
  end
  if not head or head == id then
    send_out(keys, id)
    call('HSET', keys.heads, name, id)
  end
  return true
end

local function leave(id, firm, keep)
  for _, found in ipairs(firm) do
    if found ~= keep then
      call('ZREM', found.key, id)
    end
  end
  call('LREM', ready, 0, id)
  call('LREM', retry, 0, id)
end

-- The order of keys.firm is that of the truth, but of two levels the later one stays: no retry is early.
local function truest(firm)
  local best
  for _, found in ipairs(firm) do
    local waits = best and best.key ~= dead and best.key ~= inflight
    if not best or waits and found.score > best.score then
      best = found
    end
  end
  return best
end

local function thin_out(id)
  local here, there = copies(ready, id), copies(retry, id)
  if here + there < 2 then
    return false
  end
  if here > 1 then
    call('LREM', ready, 1 - here, id)
  end
  if here > 0 then
    call('LREM', retry, 0, id)
  else
    call('LREM', retry, 1 - there, id)
  end
  return true
end

local function has_finished(id)
  local owed = not view and call('HGET', pending, id)
  return not owns(byte, owed) and owed
end

function repairs.settle(id)
  local firm, owed = sorted_sets_with(keys, id), has_finished(id)
  local keep = truest(firm)
  if owed and keep and keep.key == dead then
    call('HSET', pending, id, owed .. byte)
  elseif owed then
    if not keep and copies(ready, id) + copies(retry, id) == 0 then
      return false
    end
    finish_in_order(keys, { id }, {})
    call('HDEL', failures, id)
    call('HDEL', attempts, id)
    leave(id, firm)
    return true
  end
  if not keep then
    return thin_out(id)
  end
  if not owed and #firm < 2 and copies(ready, id) + copies(retry, id) == 0 then
    return false
  end
  if keep.key == dead then
    finish_in_order(keys, { id }, {})
  end
  leave(id, firm, keep)
  call('ZADD', keys.wake, 0, '1')
  return true
end

function repairs.lost(id)
  if view or call('HEXISTS', bodies, id) == 1 or not is_out(keys, id) then
    return false
  end
  finish_in_order(keys, { id }, { id }, true)
  call('HDEL', pending, id)
  call('HDEL', failures, id)
  call('HDEL', attempts, id)
  forget_fingerprints(keys, { id })
  call('HDEL', deaths, id)
  leave(id, sorted_sets_with(keys, id))
  call('HINCRBY', counters, 'orphan:' .. group, 1)
  return true
end

function repairs.cause(id)
  local known = call('HEXISTS', deaths, id) == 1
  if view or known == (call('ZSCORE', dead, id) and true or false) then
    return false
  end
  if known then
    call('HDEL', deaths, id)
  else
    local _, attempt = read_entry(call('HGET', attempts, id), 1)
    call('HSET', deaths, id, attempt .. ' unknown')
    note_fingerprints(keys, { id })
  end
  return true
end

function repairs.clusters(member)
  local id = string.match(member, '%z([^%z]+)$')
  local right = not view and id and by_fingerprint(keys, { id })[1]
  if right == member then
    return call('ZADD', keys.fingerprints, 0, member) == 1
  end
  return call('ZREM', keys.fingerprints, member) == 1
end

function repairs.numbers(id)
  if is_out(keys, id) or is_owed(id) or is_in_order(keys, id, slot_of(id)) then
    return false
  end
  return call('HDEL', failures, id) + call('HDEL', attempts, id) > 0
end

local function index()
  local raised = {}
  for number, level in ipairs(levels) do
    local first, noted = call('ZRANGE', level, 0, 0, 'WITHSCORES')[2], call('ZSCORE', due, number)
    if first and (not noted or tonumber(noted) > tonumber(first)) then
      call('ZADD', due, first, number)
      raised[#raised + 1] = tostring(number)
    end
  end
  if #raised > 0 then
    call('ZADD', keys.wake, 0, '1')
  end
  return { 0, raised }
end

if what == 'index' then
  return index()
end
local SEARCHES_NOTHING = { cause = true, clusters = true }
local repaired, notes, messages = {}, {}, {}
local lists, commands = SEARCHES_NOTHING[what] and {} or { ready, retry }, 16 + 2 * #levels
local looked = while_bounded(lists, commands, #ARGV - 3, function(n)
  local subject = ARGV[3 + n]
  if repairs[what](subject) then
    repaired[#repaired + 1], notes[#notes + 1] = subject, what
    messages[#messages + 1] = string.match(subject, '[^%z]*$')
  end
end)
if #repaired > 0 then
  append_history(clock, meta, events, 'repair', group, actor, messages, table.concat(notes, ' '), '')
end
return { looked, repaired }
