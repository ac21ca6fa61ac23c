local call = redis.call
--[[ record_series.lua: how much each group has done and what was due, once a minute

  A call without pairs takes the minute, if nobody has; whoever got it makes the calls that follow. Counters come as
  they are, and by how much they grew is kept twice: for a day by the minute, and for a week by ten minutes. Both are
  rings of hashes: one that is about a time that is over is emptied when its turn comes again.

  FLAGS  allow-oom
  KEYS   meta series, then rings (25 of an hour each, then 29 of six hours)
  ARGV   minute ('' takes it), then name (topic/group, or all: what together grew), due, succeeded and failed of each
  REPLY  minute ('' if it is somebody else's), now_ms, by how much succeeded and failed grew together
  COST   O(pairs); 12 commands to take it, then 8
]]
-- @include clock
-- @include logical

-- @bind

local HOURS, SPANS, STRIDE, RECORD, MOST, DAMAGED = 25, 29, 4, 10, 2 ^ 24 - 1, 8192
local clock = read_clock(meta)
local known = call('HMGET', series, 'minute', 'since')

-- Of both rings: the hash that a minute belongs to, which hour or span that is, and where in it the minute is.
local function places(at)
  local hour, span = math.floor(at / 60), math.floor(at / 360)
  return {
    { key = rings[hour % HOURS + 1], turn = hour, bucket = at % 60 },
    { key = rings[HOURS + span % SPANS + 1], turn = span, bucket = math.floor(at / 10) % 36 },
  }
end

local function take(now)
  if now <= (tonumber(known[1]) or 0) then
    return { '', clock.now, 0, 0 }
  end
  for _, place in ipairs(places(now)) do
    if tonumber(call('HGET', place.key, 'at')) ~= place.turn then
      call('UNLINK', place.key)
      call('HSET', place.key, 'at', place.turn)
    end
  end
  keep_time(clock, meta)
  call('HSETNX', series, 'since', now)
  call('HSET', series, 'minute', now)
  return { now, clock.now, 0, 0 }
end

-- Bucket, due, succeeded and failed: one byte, and three of three bytes each.
local function read_last(blob)
  local bytes = { string.byte(blob, -RECORD, -1) }
  local values = { bytes[1] }
  for i = 2, #bytes - 2, 3 do
    values[#values + 1] = (bytes[i] * 256 + bytes[i + 1]) * 256 + bytes[i + 2]
  end
  return values
end

local function with_record(blob, bucket, row)
  local due, succeeded, failed = row.due, row.succeeded, row.failed
  local last = #blob >= RECORD and read_last(blob) or {}
  if #blob % RECORD > 0 or #blob > DAMAGED then
    blob = ''
  elseif last[1] == bucket then
    blob = string.sub(blob, 1, -1 - RECORD)
    due, succeeded, failed = math.max(due, last[2]), succeeded + last[3], failed + last[4]
  end
  local bytes = { bucket }
  for _, value in ipairs({ due, succeeded, failed }) do
    value = math.min(value, MOST)
    bytes[#bytes + 1] = math.floor(value / 65536)
    bytes[#bytes + 1] = math.floor(value / 256) % 256
    bytes[#bytes + 1] = value % 256
  end
  return blob .. string.char(unpack(bytes))
end

-- A counter that fell began anew; one that nobody has seen grew from 0, but for those of the very first minute.
local function grown(now, was, first)
  if was then
    return now >= was and now - was or now
  end
  return first and 0 or now
end

local rows, seen, total = {}, {}, { 0, 0 }
local function read_rows()
  local names = {}
  for at = 2, #ARGV, STRIDE do
    names[#names + 1] = ARGV[at]
  end
  local before = call('HMGET', series, unpack(names))
  for i, name in ipairs(names) do
    local at = (i - 1) * STRIDE + 3
    local due, done, failed = tonumber(ARGV[at]), tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2])
    local row = { name = name, due = due, succeeded = done, failed = failed }
    if name ~= 'all' then
      local was_done, was_failed = string.match(before[i] or '', '^(%d+) (%d+)$')
      row.succeeded = grown(done, tonumber(was_done), known[1] == known[2])
      row.failed = grown(failed, tonumber(was_failed), known[1] == known[2])
      seen[#seen + 1], seen[#seen + 2] = name, string.format('%d %d', done, failed)
    end
    if name == 'all' or row.due + row.succeeded + row.failed > 0 then
      rows[#rows + 1] = row
    end
    total = { total[1] + row.succeeded, total[2] + row.failed }
  end
end

local function write(place)
  local names, written = {}, {}
  for i, row in ipairs(rows) do
    names[i] = row.name
  end
  for i, blob in ipairs(call('HMGET', place.key, unpack(names))) do
    written[2 * i - 1], written[2 * i] = names[i], with_record(blob or '', place.bucket, rows[i])
  end
  call('HSET', place.key, unpack(written))
end

if minute == '' then
  return take(math.floor(clock.now / 60000))
end
if minute ~= known[1] or #ARGV < 2 then
  return { '', clock.now, 0, 0 }
end
read_rows()
if #rows > 0 then
  for _, place in ipairs(places(tonumber(minute))) do
    write(place)
  end
end
if #seen > 0 then
  call('HSET', series, unpack(seen))
end
return { minute, clock.now, total[1], total[2] }
