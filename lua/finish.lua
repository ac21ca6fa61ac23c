local call = redis.call
--[[ finish.lua: the decision about a transaction is carried out in these partitions

  They come in the order of the record. When none is left the transaction is finished; its record is kept
  for ten minutes, so that a commit or rollback that is repeated is answered as before.

  FLAGS  allow-oom
  KEYS   meta transactions open_transactions finished_transactions unfinished_transactions
         parked_transactions
  ARGV   id, then partitions
  REPLY  1 while partitions are left, else 0
  COST   O(partitions of the record); 7 commands
]]
-- @include clock
-- @include logical
-- @include transaction

-- @bind

local clock = read_clock(meta)
local text = call('HGET', transactions, id)
if not text then
  return 0
end
local record = read_transaction(text)
if undecided(record) then
  return 0
end
-- Cut out in one pass: a text for each of very many partitions costs the server far more.
local before, from, kept = ' ' .. record.partitions .. ' ', 1, {}
for i = 2, #ARGV do
  local first, last = string.find(before, ' ' .. ARGV[i] .. ' ', from, true)
  if first then
    kept[#kept + 1], from = string.sub(before, from, first - 1), last
  end
end
kept[#kept + 1] = string.sub(before, from)
record.partitions = string.sub(table.concat(kept), 2, -2)
local finished = record.partitions == ''
if finished then
  call('ZADD', finished_transactions, kept_until(clock.now), id)
end
call('HSET', transactions, id, spell_transaction(record))
if finished then
  call('ZREM', open_transactions, id)
  call('ZREM', parked_transactions, id)
  call('ZREM', unfinished_transactions, id)
end
return finished and 0 or 1
