-- The server's clock has jumped forward if it is far ahead of the time that a caller expected, from its last look
-- and its own clock. Then nothing falls due for a while: a wall that comes back has done no harm, and after one
-- that stays, live workers have renewed their leases. Returns for how long; nil: nothing is held. Once the wall
-- has stepped back behind logical time, only leases need that.
local JUMP_MS = 60000

local function held_back(clock, meta, expected, hold_ms)
  local hold = sane(call('HGET', meta, 'hold'))
  if hold > clock.now + JUMP_MS then -- it came back
    call('HDEL', meta, 'hold')
    hold = 0
  end
  if expected and clock.now - expected > JUMP_MS and clock.now >= hold + JUMP_MS then
    hold = clock.now + math.min(hold_ms, JUMP_MS)
    call('HSET', meta, 'hold', hold)
  end
  return hold > clock.now and hold - clock.now or nil
end
