local call = redis.call
--[[ renew.lua: inflight -> inflight

  Push the deadline of leases that are still ours; the receipt stays valid. A deadline only grows:
  a renewal that was overtaken on its way must not shorten a lease. No history: it says nothing.

  FLAGS  allow-oom
  KEYS   meta config inflight attempts dead bodies pending
  ARGV   visibility_ms expected_ms (as in lease.lua), then id and lease_no of each message
  REPLY  OK | STALE | GONE of each message
  COST   O(messages * log inflight); 9 commands, 3 more for a message that is not OK
]]
-- @include clock
-- @include logical
-- @include delivery_state
-- @include ownership
-- @include fence

-- @bind keys

local settings = call('HMGET', config, 'byte', 'floor')
keys.floor = tonumber(settings[2]) or 1
local clock = read_clock(meta, expected_ms)
local ids, verdicts = fence(keys, settings[1] or '', 3, 2)
local members = {}
for i, id in ipairs(ids) do
  if verdicts[i] == 'OK' then
    members[#members + 1], members[#members + 2] = clock.now + visibility_ms, id
  end
end
if #members > 0 then
  call('HSET', meta, 'mark', clock.now, 'offset', clock.offset)
  call('ZADD', inflight, 'XX', 'GT', unpack(members))
end
return verdicts
