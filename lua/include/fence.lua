-- Fencing: which of these (id, lease_no) still own their lease? OK: yes. STALE: that lease ended,
-- the message lives. GONE: committed, dead or deleted. `stride` is the distance between ids in ARGV;
-- with 1 there are ids alone, and `keys.common_no` is that of all. `keys.floor` is that of those without an entry.
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

-- Whether all these leases have the same number. What was leased together is often alike.
local function have_all(ids, entries, floor, number)
  local last, same = nil, nil
  for i = 1, #ids do
    local entry = entries[i] or false
    if entry ~= last then
      last, same = entry, read_entry(entry, floor) == number
    end
    if not same then
      return false
    end
  end
  return true
end

-- Returns ids, verdicts, entries (none if no message has one), the deadlines if asked for, and whether
-- all are OK; then there may be no verdicts.
local function fence(keys, byte, first, stride, with_deadlines)
  local ids = {}
  if stride == 1 then
    ids = { unpack(ARGV, first) }
  else
    for at = first, #ARGV, stride do
      ids[#ids + 1] = ARGV[at]
    end
  end
  local n = #ids
  if n == 0 then
    return ids, {}, {}, {}, true
  end
  local deadlines = with_deadlines and call('ZMSCORE', keys.inflight, unpack(ids)) or nil
  local here, found = in_flight(keys.inflight, ids, deadlines)
  local entries = call('HLEN', keys.attempts) > 0 and call('HMGET', keys.attempts, unpack(ids)) or {}
  local shared = stride == 1 and tonumber(keys.common_no)
  if found == n and shared and have_all(ids, entries, keys.floor, shared) then -- the usual case
    return ids, {}, entries, deadlines, true
  end
  local verdicts, all_ok, numbers = {}, true, { [0] = shared } -- most lease numbers are alike: each is read once
  local function compare(i)
    local id, entry = ids[i], entries[i]
    local text = stride > 1 and ARGV[first + (i - 1) * stride + 1] or 0
    local lease_no = numbers[text] or tonumber(text)
    numbers[text] = lease_no
    if here[id] and lease_no == read_entry(entry, keys.floor) then
      here[id] = false -- once
      return 'OK'
    end
    all_ok = false
    return owns(byte, nil, keys, id) and 'STALE' or 'GONE'
  end
  for i = 1, n do
    verdicts[i] = compare(i)
  end
  return ids, verdicts, entries, deadlines, all_ok
end
