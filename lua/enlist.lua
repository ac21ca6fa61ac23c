local call = redis.call
--[[ enlist.lua: open a transaction, or add a partition where it has halves

  The partition is noted before anything is stored there, so that the decision reaches every half.
  Records of finished transactions go after ten minutes, a few per call. So a call that opens one says when,
  by the time of this slot, its caller last heard from here; one that is older than that, or of another
  time, opens nothing, and the answer is the time for the next.

  FLAGS  none
  KEYS   meta transactions open_transactions finished_transactions checks (of its producer group)
  ARGV   id partition known ('1': the caller opened it before) group topic worker after_ms every_ms
         most seen_ms
  REPLY  OK, now_ms or GONE or LATE, now_ms or, where it is decided, its state, who decided and why
  COST   O(log transactions); 10 commands
]]
-- @include clock
-- @include logical
-- @include transaction

-- @bind
local SWEPT = 100

local clock = read_clock(meta)
local now = clock.now
local text = call('HGET', transactions, id)
local record = text and read_transaction(text)
if record then
  if not undecided(record) then
    return { record.state, record.decider, record.reason }
  end
elseif known then
  return { 'GONE' }
elseif now >= kept_until(seen_ms) or seen_ms > now then
  call('HSET', meta, 'mark', now, 'offset', clock.offset)
  return { 'LATE', now }
else
  record = {
    state = 'open', group = group, topic = topic, by = worker, opened = now, after = after_ms,
    every = every_ms, most = most, checks = 0, claim = 0, decided = '', decider = '', reason = '',
    partitions = '',
  }
end
call('HSET', meta, 'mark', now, 'offset', clock.offset)
if record.state == 'open' then -- before there is a record: claim drops what has none
  call('ZADD', checks, 'NX', now + record.after, id)
end
if not string.find(' ' .. record.partitions .. ' ', ' ' .. partition .. ' ', 1, true) then
  record.partitions = record.partitions == '' and partition or record.partitions .. ' ' .. partition
  call('HSET', transactions, id, spell_transaction(record))
end
call('ZADD', open_transactions, 'NX', now, id)
local over = call('ZRANGEBYSCORE', finished_transactions, '-inf', now, 'LIMIT', 0, SWEPT)
if #over > 0 then
  call('HDEL', transactions, unpack(over))
  call('ZREM', finished_transactions, unpack(over))
end
return { 'OK', now }
