-- A group's configuration in this partition. Anybody may expire for anybody, so the ladder lies
-- here, compiled to delays of which the last repeats, and not in the arguments of a caller.
local function numbers(text)
  local out = {}
  for number in string.gmatch(text or '', '%d+') do
    out[#out + 1] = tonumber(number)
  end
  return out
end

local function read_policy(config)
  local kept = call('HMGET', config, 'kind', 'max_retries', 'delays', 'levels', 'jitter', 'byte',
    'max_inflight', 'ordered', 'view', 'floor')
  local max_retries = tonumber(kept[2]) or 16
  return {
    exists = kept[1] and true or false,
    kind = kept[1],
    max_attempts = max_retries < 0 and math.huge or max_retries + 1,
    delays = numbers(kept[3]),
    levels = numbers(kept[4]),
    jitter = tonumber(kept[5]) or 0,
    byte = kept[6] or '',
    max_inflight = tonumber(kept[7] or ''),
    ordered = kept[8],
    view = kept[9] == '1', -- of another group's dead letters
    floor = tonumber(kept[10]) or 1, -- the lease number of what has no entry
  }
end

-- The level with the largest time not above the delay; below the first, level 1.
local function level_for(levels, delay_ms)
  local level = 1
  while levels[level + 1] and levels[level + 1] <= delay_ms do
    level = level + 1
  end
  return level
end
