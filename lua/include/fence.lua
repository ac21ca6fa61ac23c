-- Fencing: which of these (id, lease_no) still own their lease? OK: yes. STALE: that lease ended,
-- the message lives. GONE: committed, dead or deleted. `stride` is the distance between ids in ARGV.
local function lives(bodies, pending, dead, byte, id)
  if call('HEXISTS', bodies, id) == 0 or call('ZSCORE', dead, id) then
    return false
  end
  local owed = call('HGET', pending, id)
  return not owed or string.find(owed, byte, 1, true) ~= nil
end

local function fence(keys, byte, first, stride)
  local ids, verdicts = {}, {}
  for at = first, #ARGV, stride do
    ids[#ids + 1] = ARGV[at]
  end
  if #ids == 0 then
    return ids, verdicts, {}, {}
  end
  local deadlines = call('ZMSCORE', keys.inflight, unpack(ids))
  local entries, seen = call('HMGET', keys.attempts, unpack(ids)), {}
  for i, id in ipairs(ids) do
    local lease_no = tonumber(ARGV[first + (i - 1) * stride + 1])
    if deadlines[i] and lease_no == read_entry(entries[i]) and not seen[id] then
      verdicts[i], seen[id] = 'OK', true
    elseif lives(keys.bodies, keys.pending, keys.dead, byte, id) then
      verdicts[i] = 'STALE'
    else
      verdicts[i] = 'GONE'
    end
  end
  return ids, verdicts, entries, deadlines
end
