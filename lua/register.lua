local call = redis.call
--[[ register.lua: a worker says that it lives, and until when to believe it

  Its details are kept behind the time at which it first said so. It learns what the settings of the
  namespace are by now: a newer version may have taken it.

  FLAGS  allow-oom
  KEYS   meta workers worker_details settings
  ARGV   ttl_ms (0: goodbye) worker about
  REPLY  the settings ('' for none)
  COST   O(log workers + dead workers); 8 commands
]]
-- @include clock
-- @include logical

-- @bind

local clock = read_clock(meta)
local silent = call('ZRANGEBYSCORE', workers, '-inf', clock.now, 'LIMIT', 0, 500)
if ttl_ms == 0 then
  silent[#silent + 1] = worker
end
if ttl_ms > 0 then
  call('HSET', meta, 'mark', clock.now, 'offset', clock.offset)
  local since = string.match(call('HGET', worker_details, worker) or '', '^%d+') or clock.now
  call('ZADD', workers, clock.now + ttl_ms, worker) -- first and last: nobody else's time would end the details
  call('HSET', worker_details, worker, since .. ' ' .. about)
end
for i = #silent, 1, -1 do
  if ttl_ms > 0 and silent[i] == worker then
    table.remove(silent, i)
  end
end
if #silent > 0 then
  call('HDEL', worker_details, unpack(silent))
  call('ZREM', workers, unpack(silent))
end
return call('HGET', settings, 'settings') or ''
