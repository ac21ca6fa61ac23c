local call = redis.call
--[[ claim.lua: take transactions that need somebody: decided ones that were cut off, open ones to check

  Claimed for a while, so that two do not check at once; a claim that is not answered comes again, and
  counts as a check. One that was checked often enough is parked: it stays, for an operator.

  When the server's time jumped forward, nothing is taken for a while, as in expire.lua.

  FLAGS  allow-oom
  KEYS   meta transactions unfinished_transactions parked_transactions, then checks of each producer group
  ARGV   lease_ms limit expected_ms (the time by the caller's own clock; '' on a first look) hold_ms
  REPLY  now_ms (as expected while nothing is taken), next_due_ms (from now; '' for none), ids and records
         taken, ids parked
  COST   O(groups + 500 * log transactions); 4 commands a group, 4 a transaction; 500 or 256 KiB of them
]]
-- @include clock
-- @include logical
-- @include jump
-- @include transaction

-- @bind
local FIRST_CHECKS, LOOKED_AT, READ_BYTES = 5, 500, 262144

local clock = read_clock(meta, expected_ms)
local now = clock.now
local hold = clock.offset == 0 and held_back(clock, meta, expected_ms, hold_ms)
if hold then
  return { expected_ms or now, hold, {}, {} }
end
local taken, just_parked, rest, bytes = {}, {}, LOOKED_AT, 0

local function each_due(key, visit)
  for _, id in ipairs(call('ZRANGEBYSCORE', key, '-inf', now, 'LIMIT', 0, math.min(rest, limit - #taken / 2))) do
    if bytes < READ_BYTES then
      local text = call('HGET', transactions, id)
      bytes, rest = bytes + #(text or ''), rest - 1
      visit(key, id, text and read_transaction(text))
    end
  end
end

local function take(key, id, record)
  call('ZADD', key, now + lease_ms, id)
  taken[#taken + 1], taken[#taken + 2] = id, spell_transaction(record)
end

each_due(unfinished_transactions, function(key, id, record)
  if not record or undecided(record) then -- a decision that was cut before it was written
    call('ZREM', key, id)
  else
    take(key, id, record)
  end
end)

local function check(key, id, record)
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
  each_due(KEYS[i], check)
end
local next_due
for i = 3, #KEYS do
  local first = KEYS[i] ~= parked_transactions and call('ZRANGE', KEYS[i], 0, 0, 'WITHSCORES')[2]
  if first and (not next_due or tonumber(first) < next_due) then
    next_due = tonumber(first)
  end
end
keep_time(clock, meta, true)
return { now, next_due and math.max(0, math.ceil(next_due - now)) or '', taken, just_parked }
