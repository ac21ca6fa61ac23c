local call = redis.call
--[[ subscribe.lua: install a newer route; backlog -> ready of the topic's first group

  The catalog decides which groups a topic has and who was first; this copies its word into one
  partition, newer wins. Until the first group comes, messages wait in the backlog, and it takes all
  of them: by renaming the list, or in bounded steps when its own list is not empty.

  FLAGS  allow-oom
  KEYS   meta route backlog ready wake counters     (ready and wake of the first group)
  ARGV   version table group ('' when the topic has none) limit max_messages (0 for no limit)
  REPLY  messages still in the backlog
  COST   O(1), O(limit) when the ready list is not empty; 8 commands
]]
local meta, route, backlog, ready, wake = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local counters = KEYS[6]
local version, route_table, group, limit = tonumber(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local max_messages = ARGV[5]

if version > tonumber(call('HGET', route, 'version') or 0) then
  call('HSET', route, 'version', version, 'table', route_table, 'limit', max_messages)
end
call('HSETNX', meta, 'mark', 0)
local waiting = call('LLEN', backlog)
if waiting == 0 or group == '' then
  return 0
end
local taken = waiting
if call('EXISTS', ready) == 0 then
  call('RENAME', backlog, ready)
else
  taken = math.min(waiting, limit)
  for _ = 1, taken do
    call('LMOVE', backlog, ready, 'LEFT', 'RIGHT')
  end
end
call('HINCRBY', counters, 'publish:' .. group, taken)
call('ZADD', wake, 0, '1')
return waiting - taken
