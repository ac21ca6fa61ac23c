-- Sets by time hold those of one millisecond in the order of their ids.

-- As the server orders members, whatever its locale.
local function is_behind(id, other)
  for i = 1, math.min(#id, #other) do
    local here, there = string.byte(id, i), string.byte(other, i)
    if here ~= there then
      return here > there
    end
  end
  return #id > #other
end

-- The rank of the first one behind this time and id, which may be gone by now; without an id, of the first of
-- that time.
local function rank_behind(key, ms, after_id)
  local low, high = call('ZCOUNT', key, '-inf', '(' .. ms), call('ZCOUNT', key, '-inf', ms)
  while low < high and after_id ~= '' do
    local middle = math.floor((low + high) / 2)
    if is_behind(call('ZRANGE', key, middle, middle)[1], after_id) then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end
