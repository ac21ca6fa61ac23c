local call = redis.call
--[[ repair_owners.lua: who owes these messages, where that does not agree with who has them

  Like repair_places.lua, for what groups share: each message is looked at again, in the places of all groups.
  What no group has is owed from now on by the groups that its tag is for, and repair_places.lua puts it back for
  each of them; before there is a group, it goes to the backlog. A byte of a group that is not there is
  cleared. What several groups have is owed by each of them, or the first to finish would take the body
  away from the others. A body is never deleted here: rather a group gets a message again.

  FLAGS  allow-oom
  KEYS   meta bodies pending scheduled backlog half_of message_groups events, then ready retry inflight dead
         order and levels of each group
  ARGV   actor level_count group_count, then byte of each group, then id, member (of scheduled) and targets (the bytes
         of the groups that its tag is for) of each message
  REPLY  how many messages were looked at (the caller sends the others again), for each of them the bytes
         that owe it now ('' if none were written), and those that were changed
  COST   O(messages * groups * (ready + retry + levels * log waiting)); 3 commands and 1 a group, then 7
         and 5 a group and 1 a level of it for a message
]]
-- @include clock
-- @include logical
-- @include history
-- @include delivery_state
-- @include ownership
-- @include message_group_order
-- @include bounded_search
-- @include locate

-- @bind
local FIRST_KEY, KEYS_EACH, FIRST, STRIDE = 9, 5 + level_count, 4 + group_count, 3

local clock = read_clock(meta)
local groups, lists, known = {}, { backlog }, ''
for n = 1, group_count do
  local at = FIRST_KEY + KEYS_EACH * (n - 1)
  groups[n] = {
    byte = ARGV[3 + n], ready = KEYS[at], retry = KEYS[at + 1], order = KEYS[at + 4],
    firm = { KEYS[at + 2], KEYS[at + 3], unpack(KEYS, at + 5, at + KEYS_EACH - 1) },
  }
  lists[#lists + 1], lists[#lists + 2] = KEYS[at], KEYS[at + 1]
  known = known .. ARGV[3 + n]
end

local function holders(id, slot)
  local found = ''
  for _, group in ipairs(groups) do
    if is_out(group, id) or is_in_order(group, id, slot) then
      found = found .. group.byte
    end
  end
  return found
end

local function of_known(owed)
  local kept = ''
  for byte in string.gmatch(owed, '.') do
    kept = kept .. (string.find(known, byte, 1, true) and byte or '')
  end
  return kept
end

local function is_elsewhere(id, member)
  return call('HEXISTS', bodies, id) == 0 or call('ZSCORE', scheduled, member)
    or call('HEXISTS', half_of, id) == 1 or copies(backlog, id) > 0
end

-- Who is to owe the message; nil where all is right.
local function owners(id, member, targets)
  if is_elsewhere(id, member) then
    return nil
  end
  local owed = call('HGET', pending, id)
  local kept = owed and of_known(owed) or ''
  if kept ~= '' then
    return kept ~= owed and kept or nil
  end
  local have = holders(id, call('HGET', message_groups, id))
  if #have == 1 and not owed then
    return nil
  end
  return have ~= '' and have or targets
end

local verdicts, adopted, notes = {}, {}, {}
local commands = 8 + (5 + level_count) * group_count
local looked = while_bounded(lists, commands, (#ARGV - FIRST + 1) / STRIDE, function(n)
  local at = FIRST + STRIDE * (n - 1)
  local id = ARGV[at]
  local bytes = owners(id, ARGV[at + 1], ARGV[at + 2])
  if bytes == '' then
    call('RPUSH', backlog, id)
    call('HDEL', pending, id)
  elseif bytes then
    call('HSET', pending, id, bytes)
  end
  verdicts[n] = bytes or ''
  if bytes then
    adopted[#adopted + 1], notes[#notes + 1] = id, 'adopt'
  end
end)
if #adopted > 0 then
  append_history(clock, meta, events, 'repair', '', actor, adopted, table.concat(notes, ' '), '')
end
return { looked, verdicts, adopted }
