local call = redis.call
--[[ purge_blocked.lua: blocked -> gone, on behalf of an operator

  Messages of an ordered group that wait in line behind another one of their message group. Who is
  out (the head) lies in a list or a sorted set: see purge_list.lua and purge.lua.

  FLAGS  allow-oom
  KEYS   meta config order heads message_groups attempts failures bodies big pending ids_key id_expiry
         events counters keyed message_keys dead
  ARGV   group actor membership ('' or the byte that the group had: under another one nothing is done),
         then members of the order
  REPLY  OK | GONE | LATER (too many bytes or message keys for one call) of each message
  COST   O(messages * log line); 18 commands, up to 5 more where some have message keys
]]
-- @include clock
-- @include logical
-- @include history
-- @include message_keys
-- @include within_bytes
-- @include forget
-- @include ownership
-- @include membership
-- @include message_group_order

-- @bind keys
local members, names, asked = { unpack(ARGV, 4) }, {}, {}

for i, member in ipairs(members) do
  names[i] = string.match(member, '^%Z+')
  asked[i] = id_of_member(member, names[i])
end
local byte = call('HGET', config, 'byte') or ''
local clock = read_clock(meta)
local here = scores_under(membership, byte, order, members)
local known, is_dead = call('HMGET', heads, unpack(names)), call('ZMSCORE', dead, unpack(asked))
local verdicts, gone, ids, seen = {}, {}, {}, {}
for i, member in ipairs(members) do
  local id = asked[i]
  -- Who is dead stands here only where a call was cut; the dead letter is not what is purged.
  local blocked = here[i] and known[i] ~= id and not is_dead[i] and not seen[id]
  verdicts[i], seen[id] = blocked and 'OK' or 'GONE', true
  gone[#gone + 1] = blocked and member or nil
  ids[#ids + 1] = blocked and id or nil
end

-- What a redrive had moved is, should it come again, where it was published; as leave_order has it.
local function restore_slots(last)
  if #last == #ids then
    return
  end
  local slots = call('HMGET', message_groups, unpack(ids))
  local restored = select(4, read_leaving({ byte = byte }, ids, slots))
  if #restored > 0 then
    call('HSET', message_groups, unpack(restored))
  end
end

put_off(keys, asked, ids, verdicts)
if #ids > 0 then
  local last = forget(keys, byte, clock.now, ids)
  call('HDEL', failures, unpack(ids))
  call('HDEL', attempts, unpack(ids))
  if #last > 0 then
    call('HDEL', message_groups, unpack(last))
  end
  call('ZREM', order, unpack(gone, 1, #ids))
  restore_slots(last)
  free_ids(keys, last)
  call('HINCRBY', counters, 'purge:' .. group, #ids)
  append_history(clock, meta, events, 'purge', group, actor, ids, '', '')
end
return verdicts
