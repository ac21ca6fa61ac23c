local call = redis.call
--[[ record_series.lua: how much each group has done and what was due, once a minute

  A call without pairs takes the minute, if nobody has; whoever got it makes the calls that follow. Counters come as
  they are, and by how much they grew is kept twice: for a day by the minute, and for a week by ten minutes. Both are
  rings of hashes: what a field has of a time that is over goes when its turn comes again.

  FLAGS  allow-oom
  KEYS   meta series, then rings (25 of an hour each, then 29 of six hours)
  ARGV   minute ('' takes it), then name (topic/group, or all: what together grew), due, succeeded and failed of each
  REPLY  minute ('' if it is somebody else's), now_ms, by how much succeeded and failed grew together
  COST   O(pairs); 8 commands
]]
-- @include clock
-- @include logical

-- @bind

local HOURS, SPANS, STRIDE, HEAD, RECORD, MOST = 25, 29, 4, 3, 10, 2 ^ 24 - 1
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
  keep_time(clock, meta)
  call('HSETNX', series, 'since', now)
  call('HSET', series, 'minute', now)
  return { now, clock.now, 0, 0 }
end

local function spelled(value)
  value = math.min(value, MOST)
  return string.char(math.floor(value / 65536), math.floor(value / 256) % 256, value % 256)
end

local function number_at(blob, at)
  local high, middle, low = string.byte(blob, at, at + 2)
  return (high * 256 + middle) * 256 + low
end

-- In front the turn; of each record the bucket, due, succeeded and failed: one byte, and three of three bytes each.
local function with_record(blob, place, row)
  local due, succeeded, failed = row.due, row.succeeded, row.failed
  local turn, last = spelled(place.turn), #blob - RECORD + 1
  if string.sub(blob, 1, HEAD) ~= turn or #blob % RECORD ~= HEAD then
    blob = turn
  elseif last > HEAD and string.byte(blob, last) == place.bucket then
    due = math.max(due, number_at(blob, last + 1))
    succeeded, failed = succeeded + number_at(blob, last + 4), failed + number_at(blob, last + 7)
    blob = string.sub(blob, 1, last - 1)
  end
  return blob .. string.char(place.bucket) .. spelled(due) .. spelled(succeeded) .. spelled(failed)
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
    written[2 * i - 1], written[2 * i] = names[i], with_record(blob or '', place, rows[i])
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
