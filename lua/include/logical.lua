-- Logical time of a partition (docs/decisions/0011-logical-time.md). It never goes back. `mark` is when it was
-- last noted, and `offset` how far it was ahead of the wall then: that much the wall had stepped back, less what
-- has been made up since, 1 ms in 20. Small steps are waited out, so that a wall that jitters moves nothing on.
local STEP_MS, JUMP_MS, SLEW, KEPT_EVERY_MS = 2000, 60000, 20, 1000
local LAST_MS = 281474976710655 -- the last time that an id can hold; a number beyond it is damaged

local function sane(text)
  local value = tonumber(text) or 0
  return value >= 0 and value <= LAST_MS and math.floor(value) or 0
end

-- Where the wall is behind the mark or was. A wall that is back near the mark may have been put right, or as much
-- time may have passed: `expected`, by the caller's own clock, tells; without it the wall is believed.
local function time_after_step(wall, mark, offset, expected)
  local low, high = math.max(wall, mark), wall
  if offset > 0 then
    local passed = math.floor(wall / SLEW) - math.floor((mark - offset) / SLEW)
    high = wall + math.max(0, offset - math.max(0, passed))
  end
  local now = (wall <= mark - STEP_MS or high <= mark + STEP_MS) and math.max(low, high) or low
  if expected then
    now = math.max(low, math.min(expected, mark + JUMP_MS))
  end
  local waits = now >= high and now <= high + STEP_MS
  return now, (waits and high or now) - wall, not waits
end

local function read_clock(meta, expected)
  local wall = wall_ms()
  local kept = call('HMGET', meta, 'mark', 'offset', 'seq', 'bytes', 'limit', 'order', 'floor')
  local mark, offset = sane(kept[1]), kept[2] ~= '0' and sane(kept[2]) or 0
  local seq, now, stepped = kept[3] ~= '0' and sane(kept[3]) or 0, wall, false
  if seq == 0 and kept[3] and kept[3] ~= '0' then
    mark = mark + 1 -- which numbers of the mark are taken is not known any more
  end
  if wall < mark or offset > 0 or expected and expected > wall then
    now, offset, stepped = time_after_step(wall, mark, offset, expected)
  end
  return {
    now = now,
    wall = wall,
    mark = mark,
    offset = offset,
    stepped = stepped, -- until that is noted, every reader sees a step anew
    seq = seq,
    bytes = sane(kept[4]),
    limit = tonumber(kept[5]) or 67108864,
    order = kept[6], -- numbers given to messages with a message group; false: there never was one
    floor = kept[7], -- as text, the lowest number for a new lease; false: to be found (include/lease_numbers.lua)
  }
end

-- Where nothing else is written: note the time, so that a step of the wall cannot undo what has passed.
-- What looks like a jump is left to those who can tell, or who move what is due.
local function keep_time(clock, meta, jumped_too)
  local passed = clock.now - clock.mark
  if clock.stepped or passed >= KEPT_EVERY_MS and (jumped_too or passed <= JUMP_MS) then
    call('HSET', meta, 'mark', clock.now, 'offset', clock.offset)
  end
end

-- The score of a scheduled message that is due at a date is that much less than a whole number. A date is the
-- wall's; all other times are logical.
local DATE = 1 / 2048

local function time_of(clock, score)
  return score / DATE % 2 == 1 and clock.wall or clock.now
end

-- How long from now, in milliseconds; '' for no score.
local function ms_until(clock, score)
  return score and math.max(0, math.ceil(score - time_of(clock, score))) or ''
end
