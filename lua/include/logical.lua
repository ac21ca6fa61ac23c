-- Logical time of a partition (docs/decisions/0011-logical-time.md). It never goes back. `mark` is when it was
-- last noted, and `offset` how far it was ahead of the wall then: that much the wall had stepped back, less what
-- has been made up since, 1 ms in 20. Small steps are waited out, so that a wall that jitters moves nothing on.

-- A number; 0 for what is beyond the last time that an id can hold, which is damaged.
local function sane(text)
  local value = tonumber(text) or 0
  return value >= 0 and value < 2 ^ 48 and math.floor(value) or 0
end

-- Where the wall is behind the mark or was, or numbers are damaged. A wall that is back near the mark may have
-- been put right, or as much time may have passed: `expected`, by the caller's own clock, tells; without it the
-- wall is believed.
local function correct(clock, expected)
  local most, least = math.max(clock.mark, expected or 0), math.min(clock.mark, clock.seq, clock.bytes)
  if most <= clock.wall and clock.offset == 0 and least >= 0 and clock.seq + clock.bytes < 2 ^ 48 then
    return -- the usual case
  end
  local STEP_MS, JUMP_MS, SLEW = 2000, 60000, 20
  local wall, mark, offset, seq = clock.wall, sane(clock.mark), sane(clock.offset), sane(clock.seq)
  if seq ~= clock.seq then
    mark = mark + 1 -- which numbers of the mark are taken is not known any more
  end
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
  clock.now, clock.mark, clock.offset, clock.seq = now, mark, (waits and high or now) - wall, seq
  clock.bytes, clock.stepped = sane(clock.bytes), not waits -- until it is noted, every reader sees a step anew
end

-- With it come the values of up to two other fields of `meta` that the caller names. A caller that passes `bare` needs
-- the time alone: each field takes time at each call.
local function read_clock(meta, expected, bare, ...)
  local now = wall_ms()
  local kept
  if bare then
    kept = call('HMGET', meta, 'mark', 'offset', 'seq', 'bytes', 'limit', ...)
  else
    kept = call('HMGET', meta, 'mark', 'offset', 'seq', 'bytes', 'limit', 'order', 'floor', 'keep_ms', ...)
  end
  local clock = {
    now = now,
    wall = now,
    mark = tonumber(kept[1]) or 0,
    offset = kept[2] ~= '0' and tonumber(kept[2]) or 0,
    seq = kept[3] ~= '0' and tonumber(kept[3]) or 0,
    bytes = tonumber(kept[4]) or 0,
    limit = tonumber(kept[5]) or 67108864,
    order = not bare and kept[6], -- numbers given to messages with a message group; false: there never was one
    floor = not bare and kept[7], -- as text, the lowest number for a new lease; false: see include/lease_numbers.lua
    keep = not bare and kept[8] ~= '0' and kept[8], -- as text, how long what was consumed is kept; false: it is not
  }
  correct(clock, expected)
  if bare then
    return clock, kept[6], kept[7]
  end
  return clock, kept[9], kept[10]
end

-- Where nothing else is written: note the time, so that a step of the wall cannot undo what has passed.
-- What looks like a jump is left to those who can tell, or who move what is due.
local function keep_time(clock, meta, jumped_too)
  local passed = clock.now - clock.mark
  if clock.stepped or passed >= 1000 and (jumped_too or passed <= 60000) then
    call('HSET', meta, 'mark', clock.now, 'offset', clock.offset)
  end
end

-- The score of a scheduled message that is due at a date is 1 / 2048 less than a whole number. A date is the
-- wall's; all other times are logical.
local function time_of(clock, score)
  return score * 2048 % 2 == 1 and clock.wall or clock.now
end

-- How long from now, in milliseconds; '' for no score.
local function ms_until(clock, score)
  return score and math.max(0, math.ceil(score - time_of(clock, score))) or ''
end
