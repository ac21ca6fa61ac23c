local call = redis.call
--[[ reasons.lua: read only; the commonest last errors of a group's messages that wait, or could run, after a failure

  Of very many, so many of each delay level and of the retries that can run are looked at that all get their
  share; what one does not need is for the others.

  FLAGS  no-writes
  KEYS   retry attempts failures, then levels
  ARGV   most_looked most
  REPLY  waiting, looked, then count, id and line of the failure record of each kind of error, the commonest first
  COST   O(most_looked + log waiting); 3 commands, 2 a level
]]
-- @include last_failure
-- @include fingerprints

-- @bind
local sources, waiting = { { key = retry, size = call('LLEN', retry) } }, 0
for _, level in ipairs(levels) do
  sources[#sources + 1] = { key = level, size = call('ZCARD', level) }
end
table.sort(sources, function(a, b)
  return a.size < b.size
end)

local ids, room = {}, most_looked
for at, source in ipairs(sources) do
  local share = math.min(source.size, math.floor(room / (#sources - at + 1)))
  waiting, room = waiting + source.size, room - share
  if share > 0 then
    local page = call(source.key == retry and 'LRANGE' or 'ZRANGE', source.key, 0, share - 1)
    for _, id in ipairs(page) do
      ids[#ids + 1] = id
    end
  end
end
if #ids == 0 then
  return { 0, 0 }
end

local entries = call('HMGET', attempts, unpack(ids))
for i = 1, #ids do
  entries[i] = entries[i] or '-'
end
local kinds, of = {}, {}
local function count(id, line)
  local record = string.match(line, '^%d+ [%d+]+ (.*)$') or line
  local kind = fingerprint_of(record) or record
  if not of[kind] then
    of[kind] = { 0, id, line }
    kinds[#kinds + 1] = of[kind]
  end
  of[kind][1] = of[kind][1] + 1
end
for i, line in ipairs(newest_failures(failures, ids, entries)) do
  if line ~= '' then
    count(ids[i], line)
  end
end
table.sort(kinds, function(a, b)
  return a[1] > b[1] or a[1] == b[1] and a[2] < b[2]
end)
return { waiting, #ids, unpack(kinds, 1, math.min(most, #kinds)) }
