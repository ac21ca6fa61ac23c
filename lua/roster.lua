local call = redis.call
--[[ roster.lua: read only; who is alive, from the namespace's slot

  FLAGS  no-writes
  KEYS   meta workers worker_details
  ARGV   after_ms
  REPLY  now_ms, names, details, lives since: of a thousand at most; and the next page's after_ms, '' for none
  COST   O(1000); 4 commands
]]
-- @include clock
-- @include logical

-- @bind
local clock = read_clock(meta)
-- By the end of their time: a worker that says so again in between comes later, too, and none is left out.
local first, PAGE = math.max(clock.now + 1, after_ms), 1000
local page = call('ZRANGEBYSCORE', workers, first, '+inf', 'WITHSCORES', 'LIMIT', 0, PAGE)
local names, abouts, since = {}, {}, {}
for i = 1, #page, 2 do
  names[#names + 1] = page[i]
end
local kept = #names > 0 and call('HMGET', worker_details, unpack(names)) or {}
for i = 1, #names do
  since[i], abouts[i] = string.match(kept[i] or '', '^(%d+) (.*)$')
  since[i], abouts[i] = since[i] or '', abouts[i] or ''
end
return { clock.now, names, abouts, since, #names == PAGE and math.max(page[#page], first + 1) or '' }
