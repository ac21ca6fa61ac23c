-- The only reader of the server's clock. Tests link a virtual clock in its place.
local function wall_ms()
  local now = call('TIME')
  return now[1] * 1000 + math.floor(now[2] / 1000)
end
