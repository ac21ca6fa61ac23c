-- Whether the server has less than a twentieth of its memory left: then what is kept for a replay goes, before
-- publishing is refused. Tests link another one in its place.
local function is_nearly_full()
  local SPARE, about = 20, call('INFO', 'memory')
  local used = tonumber(string.match(about, 'used_memory:(%d+)') or 0)
  local most = tonumber(string.match(about, 'maxmemory:(%d+)') or 0)
  return most > 0 and used > most - most / SPARE
end
