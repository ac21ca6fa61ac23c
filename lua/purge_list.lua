local call = redis.call
--[[ purge_list.lua: ready -> gone, on behalf of an operator

  The head of one list of a group, a window per call. Without answers all of it goes; else the caller
  has looked at the messages and says of each whether it goes or stays. What stays moves to the tail,
  so that calls go once around the list. A leftover (in flight, dead, or not owed to this group) only
  leaves the list, and lets the next of its message group go if it still is the head. The window ends
  before a message that the caller has not looked at.

  FLAGS  allow-oom
  KEYS   meta config location (the list) attempts failures dead inflight bodies big pending ids_key id_expiry
         events counters ready wake order heads message_groups keyed message_keys
  ARGV   group actor limit membership ('' or the byte that the group had: under another one nothing is done),
         then id and answer ('1' goes, '0' stays) of each message looked at
  REPLY  messages gone, window
  COST   O(limit); 18 commands, up to 5 more where some have message keys
]]
-- @include clock
-- @include logical
-- @include history
-- @include message_keys
-- @include within_bytes
-- @include forget
-- @include ownership
-- @include membership
-- @include looked_at
-- @include message_group_order

-- @bind keys
local FIRST, STRIDE = 5, 2

local answers = {}
for at = FIRST, #ARGV, STRIDE do
  answers[ARGV[at]] = ARGV[at + 1]
end
local settings = call('HMGET', config, 'byte', 'ordered', 'view')
local byte = settings[1] or ''
local clock = read_clock(meta)
local ordered = settings[2]
-- @include ordering
local ids = call('LRANGE', location, 0, limit - 1)
if #ids == 0 or joined_again(byte, membership) then
  return { 0, 0 }
end
ids = { unpack(ids, 1, within_bytes(keys, ids)) }
for _, id in ipairs(#ARGV < FIRST and ids or {}) do
  answers[id] = '1'
end
local taken, kept, over, window = sort_out(keys, byte, ids, answers)
local gone = pick(ids, taken)
if #kept > 0 then
  call('RPUSH', location, unpack(kept))
end
local last = {}
if #gone > 0 then
  -- The body of a dead letter is not that of a group that looks at it.
  last = settings[3] == '1' and {} or forget(keys, byte, clock.now, gone)
  call('HDEL', failures, unpack(gone))
  call('HDEL', attempts, unpack(gone))
  finish_in_order(keys, gone, last, true)
end
finish_in_order(keys, over, {}) -- the call that ended them may have been cut before the next ones went out
if window > 0 then
  call('LTRIM', location, window, -1)
end
free_ids(keys, last)
if #gone > 0 then
  call('HINCRBY', counters, 'purge:' .. group, #gone)
  append_history(clock, meta, events, 'purge', group, actor, gone, '', '')
end
return { #gone, window }
