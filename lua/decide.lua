local call = redis.call
--[[ decide.lua: an open or parked transaction is committed or rolled back, once and for all

  This is the decision; what it means for the halves is done afterwards, partition by partition, and by
  whoever comes next if the caller cannot. A checker names its claim, and is refused when its turn is
  over.

  FLAGS  allow-oom
  KEYS   meta transactions checks (of its producer group) unfinished_transactions parked_transactions
  ARGV   id decision ('committed' | 'rolled_back') worker lease_ms claim ('' for anybody who is
         not a checker) reason
  REPLY  OK | ALREADY, decided_ms, partitions or CONFLICT, state, decider, reason, decided_ms or STALE
         or GONE
  COST   O(log transactions); 8 commands
]]
-- @include clock
-- @include logical
-- @include transaction

-- @bind

local clock = read_clock(meta)
local text = call('HGET', transactions, id)
if not text then
  return { 'GONE' }
end
local record = read_transaction(text)
if record.state == decision then
  call('ZREM', checks, id) -- a call that was cut may have left these
  call('ZREM', parked_transactions, id)
  return { 'ALREADY', record.decided, record.partitions }
elseif not undecided(record) then
  return { 'CONFLICT', record.state, record.decider, record.reason, record.decided }
elseif claim ~= '' and record.claim ~= claim then
  return { 'STALE' }
end
record.state, record.decided, record.decider, record.reason = decision, clock.now, worker, reason
call('HSET', meta, 'mark', clock.now, 'offset', clock.offset)
call('ZADD', unfinished_transactions, clock.now + lease_ms, id)
call('HSET', transactions, id, spell_transaction(record))
call('ZREM', checks, id)
call('ZREM', parked_transactions, id)
return { 'OK', clock.now, record.partitions }
