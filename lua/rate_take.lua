local call = redis.call
--[[ rate_take.lua: tokens of a group's rate limit, for a lease that is about to be made

  They are given in blocks, a part of the burst, so that many workers do not come for each single one;
  while there is no block nothing is given, and the answer says when there will be. What a lease did
  not use comes back. A caller that dies with tokens delays others, and loses nothing.

  FLAGS  allow-oom
  KEYS   bucket
  ARGV   want returned
  REPLY  tokens ('' if the group has no limit), ms until the next block
  COST   O(1); 4 commands
]]
-- @include clock
-- @include logical

-- @bind
local BLOCKS, ROUNDING = 5, 0.000001 -- in a burst; of parts of tokens that add up

local kept = call('HMGET', bucket, 'per_ms', 'burst', 'tokens', 'at')
local per_ms, burst = tonumber(kept[1] or ''), tonumber(kept[2] or '')
if not per_ms then
  return { '', 0 }
end
local clock = read_clock(bucket)
local earned = math.max(0, clock.now - kept[4]) * per_ms
local tokens = math.min(burst, kept[3] + earned + returned)
local block, given = math.max(1, math.floor(burst / BLOCKS)), 0
if want > 0 and tokens + ROUNDING >= math.min(want, block) then
  given = math.min(want, math.floor(tokens + ROUNDING))
  tokens = tokens - given
end
call('HSET', bucket, 'mark', clock.now, 'offset', clock.offset, 'tokens', string.format('%.9f', tokens),
  'at', clock.now)
local short = math.max(0, (given > 0 and block or math.min(want, block)) - tokens)
return { given, math.max(0, math.ceil(short / per_ms - 0.001)) }
