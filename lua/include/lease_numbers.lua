-- Lease numbers never come back (docs/decisions/0038). A message without an entry has the number that its place
-- keeps as `floor`, and no lease gets a number below that of the partition, which is raised, to the time, where a
-- number might otherwise be given out again: when the data may have lost writes, when an operator made an id
-- free, and twice in the hour for which ids are remembered.
local PINNED, PAGE = 5000, 1000

-- The lowest number for a lease from now on.
local function find_floor(keys, clock, own, raised_every_ms)
  local now, here = clock.now, incarnation()
  local floor = clock.floor and sane(clock.floor) or own -- a damaged one is 0, and raised
  if here ~= (call('HGET', keys.meta, 'incarnation') or '') or clock.floor and now - floor >= raised_every_ms then
    floor = math.max(now, floor + 1)
    call('HSET', keys.meta, 'floor', floor, 'incarnation', here)
  end
  call('HSET', keys.config, 'verified', now)
  return floor
end

-- The place takes the partition's number over, and what is in flight there keeps its own in an entry. False
-- where that is too much: then every new lease gets an entry, until what was in flight before is done.
local function adopt_floor(keys, old, floor)
  if call('ZCARD', keys.inflight) > PINNED then
    return false
  end
  local ids = call('ZRANGE', keys.inflight, 0, -1)
  for first = 1, #ids, PAGE do
    local page, pinned = { unpack(ids, first, math.min(first + PAGE - 1, #ids)) }, {}
    for i, entry in ipairs(call('HMGET', keys.attempts, unpack(page))) do
      if not entry then
        pinned[#pinned + 1], pinned[#pinned + 2] = page[i], spell_entry(old, 1, 0, 0)
      end
    end
    if #pinned > 0 then
      call('HSET', keys.attempts, unpack(pinned))
    end
  end
  call('HSET', keys.config, 'floor', floor)
  return true
end

-- Writes the entries of those leases that may not have the number which they have by themselves.
local function number_leases(attempts, ids, entries, floor, adopted)
  local written = {}
  for i, id in ipairs(ids) do
    local known = (entries[i] or '-') ~= '-'
    local lease_no, attempt, expiries, postpones = read_entry(known and entries[i], floor)
    if lease_no < floor or not (known or adopted) then
      entries[i] = spell_entry(floor, attempt, expiries, postpones)
      written[#written + 1], written[#written + 2] = id, entries[i]
    end
    entries[i] = entries[i] or '-'
  end
  if #written > 0 then
    call('HSET', attempts, unpack(written))
  end
end
