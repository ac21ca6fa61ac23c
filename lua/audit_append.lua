local call = redis.call
--[[ audit_append.lua: a line in the namespace's audit record

  Who changed, moved or destroyed what, and when. Append only, and bounded: the oldest lines go.

  FLAGS  allow-oom
  KEYS   meta records (the audit log, or how workers ended)
  ARGV   actor verb arguments counts (both JSON) most
  REPLY  now_ms
  COST   O(1); 4 commands
]]
-- @include clock
-- @include logical

-- @bind

local clock = read_clock(meta)
call('HSET', meta, 'mark', clock.now, 'offset', clock.offset)
call('XADD', records, 'MAXLEN', '~', most, '*', 'at', clock.now, 'by', actor, 'e', verb,
  'a', arguments, 'n', counts)
return clock.now
