local call = redis.call
--[[ tally.lua: a worker of a broadcast group says how attempts ended

  FLAGS  allow-oom
  KEYS   meta counters
  ARGV   group, then verb and count of each counter
  REPLY  verbs counted
  COST   O(verbs); 2 commands and 1 a verb
]]
-- @bind

call('HSETNX', meta, 'mark', 0)
for i = 2, #ARGV, 2 do
  call('HINCRBY', counters, ARGV[i] .. ':' .. group, ARGV[i + 1])
end
return (#ARGV - 1) / 2
