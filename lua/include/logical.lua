-- Logical time of a partition. It follows the wall clock, but when TIME goes back an offset keeps
-- it running on from the high-water mark, so no lease grows longer and no retry waits again.
local function read_clock(meta)
  local wall = wall_ms()
  local kept = call('HMGET', meta, 'mark', 'offset', 'seq', 'bytes', 'limit', 'order')
  local mark, offset = tonumber(kept[1]) or 0, kept[2] ~= '0' and tonumber(kept[2]) or 0
  local now = wall
  if wall >= mark then
    offset = 0
  else
    offset = math.max(offset, mark - wall)
    now = wall + offset
  end
  return {
    now = now,
    mark = mark,
    offset = offset,
    seq = kept[3] ~= '0' and tonumber(kept[3]) or 0,
    bytes = tonumber(kept[4]) or 0,
    limit = tonumber(kept[5]) or 67108864,
    order = kept[6], -- numbers given to messages with a message group; false: there never was one
  }
end
