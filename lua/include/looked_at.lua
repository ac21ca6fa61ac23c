-- What an operator asks of the messages at the head of a structure: `answers` has '1' by the id of each that is taken
-- and '0' of each that stays. The window ends before the first that was not looked at. A leftover (in flight, dead, or
-- not owed to this group) is neither; what has ended is returned apart. `is_here`, if given, excludes what is no longer
-- in the structure. Returns the indexes taken, then the ids that stay, those that have ended, and the window.
local function sort_out(keys, byte, ids, answers, is_here)
  local leased, is_dead = call('ZMSCORE', keys.inflight, unpack(ids)), call('ZMSCORE', keys.dead, unpack(ids))
  local owed = call('HLEN', keys.pending) > 0 and call('HMGET', keys.pending, unpack(ids)) or {}
  local taken, kept, over, seen, window = {}, {}, {}, {}, 0
  for i, id in ipairs(ids) do
    if not answers[id] then
      break
    end
    local ended = is_dead[i] or not owns(byte, owed[i])
    if ended then
      over[#over + 1] = id
    elseif not (leased[i] or seen[id]) and (not is_here or is_here[i]) then
      local list = answers[id] == '1' and taken or kept
      list[#list + 1] = list == taken and i or id
    end
    seen[id], window = true, i
  end
  return taken, kept, over, window
end

local function pick(list, indexes)
  local picked = {}
  for n, at in ipairs(indexes) do
    picked[n] = list[at]
  end
  return picked
end
