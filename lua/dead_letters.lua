local call = redis.call
--[[ dead_letters.lua: read only; one page of a group's dead letters in one partition, oldest first

  A page begins behind a dead letter, which may be gone by now, so pages can be read while what they had
  is sent back or purged. With a fingerprint it has only those; with ids it is about these alone.

  FLAGS  no-writes
  KEYS   meta dead deaths failures fingerprints bodies big
  ARGV   with_bodies ('1' | '0') byte_limit count after_ms (when the last one died) after_id (its id) upto_ms
         ('' for now) fingerprint ('' for any), then ids
  REPLY  now_ms, looked (how many of the ids, or of the page), ids, dead since, deaths, failure records, bodies
         ('' when not asked for)
  COST   O(count * log dead); 7 commands, 1 for each halving of those of one millisecond, 1 a body
]]
-- @include clock
-- @include logical
-- @include texts
-- @include behind

-- @bind
local SMALL = 8192

local clock = read_clock(meta)
upto_ms = upto_ms or clock.now

local function by_time()
  local rank = rank_behind(dead, after_ms, after_id)
  return call('ZRANGE', dead, rank, rank + count - 1, 'WITHSCORES')
end

local function by_fingerprint()
  local function member(ms, rest)
    return fingerprint .. '\0' .. string.format('%016d', ms) .. rest
  end
  local first, last = '(' .. member(after_ms, '\0' .. after_id), '(' .. member(upto_ms, '\1')
  local page = {}
  for i, each in ipairs(call('ZRANGEBYLEX', fingerprints, first, last, 'LIMIT', 0, count)) do
    local ms, id = string.match(each, '^%Z*%z(%d+)%z(.*)$')
    page[2 * i - 1], page[2 * i] = id, ms
  end
  return page
end

local function by_id()
  local page, since = {}, call('ZMSCORE', dead, unpack(ids))
  for i, id in ipairs(ids) do
    page[2 * i - 1], page[2 * i] = id, since[i]
  end
  return page
end

local named = #ids > 0
local page = named and by_id() or fingerprint ~= '' and by_fingerprint() or by_time()
local found, since = {}, {}
local function choose()
  local bytes, last = 0, named and 2 * #ids or #page
  for i = 1, last, 2 do
    local ms = page[i + 1]
    local chosen = ms and tonumber(ms) <= upto_ms
    bytes = bytes + (chosen and with_bodies and tonumber(call('HGET', big, page[i]) or SMALL) or 0)
    if not (chosen or named) or bytes > byte_limit and #found > 0 then
      return (i - 1) / 2
    end
    if chosen then
      found[#found + 1], since[#since + 1] = page[i], ms
    end
  end
  return last / 2
end
local looked = choose()
if #found == 0 then
  return { clock.now, looked, {}, {}, {}, {}, {} }
end
local read = with_bodies and texts(bodies, found) or {}
return { clock.now, looked, found, since, texts(deaths, found), texts(failures, found), read }
