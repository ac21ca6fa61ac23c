local call = redis.call
--[[ stats.lua: read only; how many messages of one group are where, in one partition

  What is due counts as ready, whether or not anybody has moved it yet, so that a system scaled to
  zero still reports its true lag.

  FLAGS  no-writes
  KEYS   meta config ready retry inflight dead scheduled backlog counters bodies order heads message_groups,
         then levels
  ARGV   -
  REPLY  now_ms, ready, retry, inflight, overdue, dead, scheduled, backlog, bodies, oldest ready id,
         paused, per level {count, due already, next_due_ms}, counters as name and value, bytes of
         history, max_inflight and rate ('' for none), messages blocked behind another of their message
         group, messages that have one
  COST   O(levels * log waiting); 17 commands and 3 a level
]]
-- @include clock
-- @include logical

-- @bind

local clock = read_clock(meta)
local waiting = {}
for i, level in ipairs(levels) do
  local first = call('ZRANGE', level, 0, 0, 'WITHSCORES')[2]
  waiting[i] = { call('ZCARD', level), call('ZCOUNT', level, '-inf', clock.now), first or '' }
end
local settings = call('HMGET', config, 'paused', 'max_inflight', 'rate', 'view', 'fed_at')
-- What a group that consumes dead letters has not looked at yet is ready for it.
local view = settings[4] == '1'
local unfed = view and call('ZCOUNT', dead, '(' .. (settings[5] or '-1'), '+inf') or 0
return {
  clock.now, call('LLEN', ready) + unfed, call('LLEN', retry), call('ZCARD', inflight),
  call('ZCOUNT', inflight, '-inf', clock.now), view and 0 or call('ZCARD', dead), call('ZCARD', scheduled),
  call('LLEN', backlog), call('HLEN', bodies), call('LINDEX', ready, 0) or '',
  settings[1] or '0', waiting, call('HGETALL', counters), clock.bytes, settings[2] or '', settings[3] or '',
  call('ZCARD', order) - call('HLEN', heads), call('HLEN', message_groups),
}
