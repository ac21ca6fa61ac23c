local call = redis.call
--[[ purge.lua: dead | waiting_retry | inflight -> gone, on behalf of an operator

  One call is about one sorted set of the group: its dead letters, a delay level, or (where the group
  leaves) what is in flight. What is ready lies in lists: see purge_list.lua.

  FLAGS  allow-oom
  KEYS   meta config attempts failures location (the sorted set) deaths bodies big pending ids_key id_expiry
         inflight events counters ready wake order heads message_groups dead keyed message_keys
         fingerprints
  ARGV   group actor membership ('' or the byte that the group had: under another one nothing is done),
         then ids
  REPLY  OK | GONE | LATER (too many bytes or message keys for one call) of each message
  COST   O(messages * log size); 18 commands, up to 5 more where some have message keys
]]
-- @include clock
-- @include logical
-- @include history
-- @include message_keys
-- @include within_bytes
-- @include forget
-- @include fingerprints
-- @include ownership
-- @include membership
-- @include message_group_order

-- @bind keys

local settings = call('HMGET', config, 'byte', 'ordered', 'view')
local byte = settings[1] or ''
local clock = read_clock(meta)
local ordered = settings[2]
-- @include ordering
local verdicts, purged, seen = {}, {}, {}
local scores = scores_under(membership, byte, location, ids)
for i, id in ipairs(ids) do
  local here = scores[i] and not seen[id]
  verdicts[i], seen[id] = here and 'OK' or 'GONE', true
  purged[#purged + 1] = here and id or nil
end
put_off(keys, ids, purged, verdicts)
if #purged > 0 then
  call('HDEL', failures, '') -- these change nothing: what cannot be removed is not forgotten
  call('ZREM', location, '')
  -- The body of a dead letter is not that of a group that looks at it.
  local last = settings[3] == '1' and {} or forget(keys, byte, clock.now, purged)
  call('HDEL', failures, unpack(purged))
  call('HDEL', attempts, unpack(purged))
  finish_in_order(keys, purged, last, true)
  call('ZREM', inflight, unpack(purged))
  forget_fingerprints(keys, purged)
  call('HDEL', deaths, unpack(purged))
  call('ZREM', location, unpack(purged))
  free_ids(keys, last)
  call('HINCRBY', counters, 'purge:' .. group, #purged)
  append_history(clock, meta, events, 'purge', group, actor, purged, '', '')
end
return verdicts
