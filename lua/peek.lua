local call = redis.call
--[[ peek.lua: read only; where is this message, for one group of one partition

  FLAGS  no-writes
  KEYS   meta config ready retry inflight attempts failures dead deaths bodies pending scheduled backlog
         order heads message_groups, then levels
  ARGV   id most (how many entries of the lists to look through)
  REPLY  now_ms, body, pending bytes, own byte, entry, inflight deadline, dead since, death, failure
         record, scheduled due, index in ready, in retry, in backlog, paused, level and due of each
         level that holds it, stored, messages in flight, the group's part of max_inflight, rate, who
         else is out of its message group and how many are ahead of it ('' wherever there is nothing)
  COST   O(most + levels * log waiting); 23 commands and 1 a level
]]
-- @include clock
-- @include logical
-- @include ownership
-- @include message_group_order

-- @bind
local clock = read_clock(meta)
local waiting = {}
for i = 17, #KEYS do
  local due = call('ZSCORE', KEYS[i], id)
  if due then
    waiting[#waiting + 1] = { i - 16, due }
  end
end
local settings = call('HMGET', config, 'byte', 'paused', 'max_inflight', 'rate')

-- Who else is out of its message group, and how many stand before it.
local function behind()
  local slot = call('HGET', message_groups, id)
  local member = slot and order_member(slot, id, settings[1])
  if not (slot and call('ZSCORE', order, member)) then
    return '', ''
  end
  local name = message_group_of(slot)
  local head = call('HGET', heads, name) or ''
  return head == id and '' or head, call('ZLEXCOUNT', order, '[' .. name .. '\0', '(' .. member)
end
local head, ahead = behind()
local function index_in(list)
  local index = most > 0 and call('LPOS', list, id, 'MAXLEN', most)
  most = most - (index or math.min(most, call('LLEN', list)))
  return index or ''
end
local in_retry, in_backlog = index_in(retry), index_in(backlog) -- the short ones first
return {
  clock.now, call('HGET', bodies, id) or '', call('HGET', pending, id) or '', settings[1] or '',
  call('HGET', attempts, id) or '', call('ZSCORE', inflight, id) or '',
  call('ZSCORE', dead, id) or '', call('HGET', deaths, id) or '', call('HGET', failures, id) or '',
  call('ZSCORE', scheduled, id) or '', index_in(ready), in_retry, in_backlog,
  settings[2] or '0', waiting, call('HEXISTS', bodies, id),
  call('ZCARD', inflight), settings[3] or '', settings[4] or '', head, ahead,
}
