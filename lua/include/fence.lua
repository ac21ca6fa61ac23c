-- Fencing: which of these (id, lease_no) still own their lease? OK: yes. STALE: that lease ended,
-- the message lives. GONE: committed, dead or deleted. `stride` is the distance between ids in ARGV;
-- with 1 there are ids alone, each of a message's first lease.
local FEW = 4 -- times as many as are asked about

local function lives(bodies, pending, dead, byte, id)
  if call('HEXISTS', bodies, id) == 0 or call('ZSCORE', dead, id) then
    return false
  end
  local owed = call('HGET', pending, id)
  return not owed or string.find(owed, byte, 1, true) ~= nil
end

-- A table that has the ids which are in flight. To spell a score costs the server more than all
-- else here, so it names everything in flight, without scores, where that is not much more.
local function in_flight(inflight, ids, deadlines)
  local here = {}
  if not deadlines and call('ZCARD', inflight) <= FEW * #ids then
    for _, id in ipairs(call('ZRANGE', inflight, '0', '-1')) do
      here[id] = true
    end
    return here
  end
  deadlines = deadlines or call('ZMSCORE', inflight, unpack(ids))
  for i, id in ipairs(ids) do
    here[id] = deadlines[i] or nil
  end
  return here
end

-- Answers ids, verdicts, entries (none where no message has one), the deadlines if asked for, and whether
-- all are OK.
local function fence(keys, byte, first, stride, with_deadlines)
  local ids, verdicts, n = {}, {}, 0
  for at = first, #ARGV, stride do
    n = n + 1
    ids[n] = ARGV[at]
  end
  if n == 0 then
    return ids, verdicts, {}, {}, true
  end
  local deadlines = with_deadlines and call('ZMSCORE', keys.inflight, unpack(ids)) or nil
  local here = in_flight(keys.inflight, ids, deadlines)
  local entries = call('HLEN', keys.attempts) > 0 and call('HMGET', keys.attempts, unpack(ids)) or {}
  local all_ok = true
  for i = 1, n do
    local id, entry = ids[i], entries[i]
    local lease_no = stride == 1 and 1 or tonumber(ARGV[first + (i - 1) * stride + 1])
    if here[id] and lease_no == (entry and read_entry(entry) or 1) then
      verdicts[i], here[id] = 'OK', nil -- once
    else
      verdicts[i] = lives(keys.bodies, keys.pending, keys.dead, byte, id) and 'STALE' or 'GONE'
      all_ok = false
    end
  end
  return ids, verdicts, entries, deadlines, all_ok
end
