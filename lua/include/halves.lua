-- The halves of a transaction in one partition: members "transaction number id tag message_group" of
-- one sorted set, in the order in which they were published.
local CLOSED_MS = 600000

local function halves_of(halves, transaction, limit)
  return call('ZRANGEBYLEX', halves, '[' .. transaction .. ' ', '(' .. transaction .. '!', 'LIMIT', 0, limit)
end

local function read_half(member)
  local number, id, tag, message_group = string.match(member, '^%S+ (%d+) (%S+) (%S*) (%S*)$')
  return { number = tonumber(number), id = id, tag = tag, message_group = message_group }
end

-- It is decided: whatever of it still arrives, on a connection that was given up, is refused; for a while by
-- this, and after that for its age (docs/decisions/0046-requests-of-transactions-that-come-late.md).
local function close_transaction(closed, now, transaction)
  call('ZADD', closed, now + CLOSED_MS, transaction)
  local over = call('ZRANGEBYSCORE', closed, '-inf', now, 'LIMIT', '0', '100')
  if #over > 0 then
    call('ZREM', closed, unpack(over))
  end
end

local function may_come_late(now, seen_ms)
  return now - seen_ms >= CLOSED_MS or seen_ms > now
end
