local call = redis.call
--[[ deliver.lua: scheduled and due -> ready (of every group of the topic)

  A message published with a delay waits for the whole topic; its groups are those of the route at
  the time it falls due. The caller passes the groups it knows; a changed route writes nothing.

  FLAGS  allow-oom
  KEYS   meta route bodies pending scheduled backlog events counters, then ready and wake of each group
  ARGV   route_version worker limit groups, then name and byte of each group
  REPLY  OK, now_ms, messages delivered, next_scheduled_ms (from now; '' for none)
         or STALE_ROUTE, version, table
  COST   O(limit * groups); 11 commands and 1 a message and 3 a group
]]
-- @include clock
-- @include logical
-- @include history

local meta, route, bodies, pending, scheduled = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local backlog, events, counters = KEYS[6], KEYS[7], KEYS[8]
local route_version, worker, limit, groups = ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local FIRST_KEY, FIRST_GROUP = 9, 5

local current = call('HMGET', route, 'version', 'table')
if (current[1] or '0') ~= route_version then
  return { 'STALE_ROUTE', current[1] or '0', current[2] or '' }
end
local clock = read_clock(meta)
local ids, live = call('ZRANGEBYSCORE', scheduled, '-inf', clock.now, 'LIMIT', 0, limit), {}
for _, id in ipairs(ids) do
  live[#live + 1] = call('HEXISTS', bodies, id) == 1 and id or nil
end

local function push_to_groups()
  local owed, bytes = {}, ''
  for group = 1, groups do
    bytes = bytes .. ARGV[FIRST_GROUP + 2 * group - 1]
  end
  if groups > 1 then
    -- What a delivery that was cut has noted stays: its groups may have finished with the message.
    local noted = call('HMGET', pending, unpack(live))
    for i, id in ipairs(live) do
      owed[2 * i - 1], owed[2 * i] = id, noted[i] or bytes
    end
    call('HSET', pending, unpack(owed))
  elseif groups == 0 then
    call('RPUSH', backlog, unpack(live))
  end
  for group = 1, groups do
    local ready, wake = KEYS[FIRST_KEY + 2 * group - 2], KEYS[FIRST_KEY + 2 * group - 1]
    local length = call('RPUSH', ready, unpack(live))
    call('HINCRBY', counters, 'publish:' .. ARGV[FIRST_GROUP + 2 * group - 2], #live)
    if length == #live then
      call('ZADD', wake, 0, '1')
    end
  end
end

if #live > 0 then
  push_to_groups()
end
if #ids > 0 then
  call('ZREM', scheduled, unpack(ids))
end
if #live > 0 then
  append_history(clock, meta, events, 'deliver', '', worker, live, '', '')
end
local next_due = call('ZRANGE', scheduled, 0, 0, 'WITHSCORES')[2]
return { 'OK', clock.now, #ids, next_due and math.max(0, math.ceil(next_due - clock.now)) or '' }
