-- Fencing: which of these (id, lease_no) still own their lease? OK: yes. STALE: that lease ended,
-- the message lives. GONE: committed, dead or deleted. `stride` is the distance between ids in ARGV;
-- with 1 there are ids alone, each of a message's first lease.
local OLDEST, FEW = 2, 4 -- times as many as are asked about

local function by_deadlines(ids, deadlines)
  local here, found = {}, 0
  for i = 1, #ids do
    if deadlines[i] and not here[ids[i]] then
      here[ids[i]], found = true, found + 1
    end
  end
  return here, found
end

-- A table that has those of the ids which are in flight, and how many they are. To spell a score costs
-- the server more than all else here, so it names what is in flight, without scores: the oldest, which are
-- settled first, and the rest only where some are missing and it is not much.
local function in_flight(inflight, ids, deadlines)
  if deadlines then
    return by_deadlines(ids, deadlines)
  end
  local here, found, most = {}, 0, OLDEST * #ids
  for i = 1, #ids do
    here[ids[i]] = false
  end
  local function mark(leased)
    for i = 1, #leased do
      if here[leased[i]] == false then
        here[leased[i]], found = true, found + 1
      end
    end
    return #leased
  end
  if mark(call('ZRANGE', inflight, '0', most - 1)) < most or found == #ids then
    return here, found
  end
  if call('ZCARD', inflight) > FEW * #ids then
    return by_deadlines(ids, call('ZMSCORE', inflight, unpack(ids)))
  end
  mark(call('ZRANGE', inflight, most, '-1'))
  return here, found
end

-- Returns ids, verdicts, entries (none if no message has one), the deadlines if asked for, and whether
-- all are OK; then there may be no verdicts.
local function fence(keys, byte, first, stride, with_deadlines)
  local ids, verdicts, n = stride == 1 and { unpack(ARGV, first) } or {}, {}, 0
  if stride == 1 then
    n = #ids
  else
    for at = first, #ARGV, stride do
      n = n + 1
      ids[n] = ARGV[at]
    end
  end
  if n == 0 then
    return ids, verdicts, {}, {}, true
  end
  local deadlines = with_deadlines and call('ZMSCORE', keys.inflight, unpack(ids)) or nil
  local here, found = in_flight(keys.inflight, ids, deadlines)
  local entries = call('HLEN', keys.attempts) > 0 and call('HMGET', keys.attempts, unpack(ids)) or {}
  if found == n and stride == 1 and not with_deadlines and #entries == 0 then -- the usual case
    return ids, verdicts, entries, deadlines, true
  end
  local all_ok, numbers = true, {} -- most lease numbers are alike: each is read once
  for i = 1, n do
    local id, entry, lease_no = ids[i], entries[i], 1
    if stride > 1 then
      local text = ARGV[first + (i - 1) * stride + 1]
      lease_no = numbers[text] or tonumber(text)
      numbers[text] = lease_no
    end
    if here[id] and lease_no == (entry and read_entry(entry) or 1) then
      verdicts[i], here[id] = 'OK', false -- once
    else
      verdicts[i] = owns(keys, byte, id) and 'STALE' or 'GONE'
      all_ok = false
    end
  end
  return ids, verdicts, entries, deadlines, all_ok
end
