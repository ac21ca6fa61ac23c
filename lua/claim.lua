local call = redis.call
--[[ claim.lua: take transactions that need somebody: decided ones that were cut off, open ones to check

  Claimed for a while, so that two do not check at once; a claim that is not answered comes again, and
  counts as a check. One that was checked often enough is parked: it stays, for an operator.

  FLAGS  allow-oom
  KEYS   meta transactions unfinished_transactions parked_transactions, then checks of each producer group
  ARGV   lease_ms limit
  REPLY  now_ms, next_due_ms (from now; '' for none), ids and records taken, ids parked
  COST   O(groups + limit * log transactions); 4 commands a group, 3 a transaction
]]
-- @include clock
-- @include logical
-- @include transaction

-- @bind
local FIRST_CHECKS = 5

local clock = read_clock(meta)
local now = clock.now
local taken, just_parked = {}, {}

local function due_in(key)
  return call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, limit - #taken / 2)
end

local function take(key, id, record)
  call('ZADD', key, now + lease_ms, id)
  taken[#taken + 1], taken[#taken + 2] = id, spell_transaction(record)
end

for _, id in ipairs(due_in(unfinished_transactions)) do
  local text = call('HGET', transactions, id)
  local record = text and read_transaction(text)
  if not record or undecided(record) then -- a decision that was cut before it was written
    call('ZREM', unfinished_transactions, id)
  else
    take(unfinished_transactions, id, record)
  end
end

local function check(key, id)
  local text = call('HGET', transactions, id)
  local record = text and read_transaction(text)
  if not record or record.state ~= 'open' then
    call('ZREM', key, id)
    return
  end
  if tonumber(record.checks) >= tonumber(record.most) then
    record.state = 'parked'
    call('ZADD', parked_transactions, now, id)
    call('HSET', transactions, id, spell_transaction(record))
    call('ZREM', key, id)
    just_parked[#just_parked + 1] = id
    return
  end
  record.checks, record.claim = record.checks + 1, record.claim + 1
  call('HSET', transactions, id, spell_transaction(record))
  take(key, id, record)
end

for i = FIRST_CHECKS, #KEYS do
  for _, id in ipairs(due_in(KEYS[i])) do
    check(KEYS[i], id)
  end
end
local next_due
for i = 3, #KEYS do
  local first = KEYS[i] ~= parked_transactions and call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2]
  if first and (not next_due or tonumber(first) < next_due) then
    next_due = tonumber(first)
  end
end
keep_time(clock, meta)
return { now, next_due and math.max(0, math.ceil(next_due - now)) or '', taken, just_parked }
