local call = redis.call
--[[ defer.lua: a checker does not know yet; the transaction is checked again later, or parked

  FLAGS  allow-oom
  KEYS   meta transactions checks (of its producer group) parked_transactions
  ARGV   id claim reason
  REPLY  OK | PARKED | STALE (its turn is over, or the transaction is decided)
  COST   O(log transactions); 6 commands
]]
-- @include clock
-- @include logical
-- @include transaction

-- @bind

local clock = read_clock(meta)
local text = call('HGET', transactions, id)
local record = text and read_transaction(text)
if not record or record.state ~= 'open' or record.claim ~= claim then
  return 'STALE'
end
keep_time(clock, meta, true)
record.reason = reason
if tonumber(record.checks) < tonumber(record.most) then
  call('HSET', transactions, id, spell_transaction(record))
  call('ZADD', checks, clock.now + record.every, id)
  return 'OK'
end
record.state = 'parked'
call('ZADD', parked_transactions, clock.now, id)
call('HSET', transactions, id, spell_transaction(record))
call('ZREM', checks, id)
return 'PARKED'
