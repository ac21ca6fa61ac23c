local call = redis.call
--[[ roster.lua: read only; who is alive, from the namespace's slot

  FLAGS  no-writes
  KEYS   meta workers worker_details
  ARGV   -
  REPLY  now_ms, names, details, lives since
  COST   O(workers); 4 commands
]]
-- @include clock
-- @include logical

-- @bind
local clock = read_clock(meta)
local names = call('ZRANGEBYSCORE', workers, '(' .. clock.now, '+inf', 'LIMIT', 0, 5000)
local abouts, since = {}, {}
local kept = #names > 0 and call('HMGET', worker_details, unpack(names)) or {}
for i = 1, #names do
  since[i], abouts[i] = string.match(kept[i] or '', '^(%d+) (.*)$')
  since[i], abouts[i] = since[i] or '', abouts[i] or ''
end
return { clock.now, names, abouts, since }
