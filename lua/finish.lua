local call = redis.call
--[[ finish.lua: the decision about a transaction is carried out in these partitions

  When none is left the transaction is finished; its record is kept for ten minutes, so that a commit
  or rollback that is repeated is answered as before.

  FLAGS  allow-oom
  KEYS   meta transactions open_transactions finished_transactions unfinished_transactions
         parked_transactions
  ARGV   id, then partitions
  REPLY  partitions left
  COST   O(partitions); 7 commands
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
local record, done, left = read_transaction(text), {}, {}
if undecided(record) then
  return 0
end
for i = 2, #ARGV do
  done[ARGV[i]] = true
end
for partition in string.gmatch(record.partitions, '%S+') do
  left[#left + 1] = not done[partition] and partition or nil
end
record.partitions = table.concat(left, ' ')
if #left == 0 then
  call('ZADD', finished_transactions, kept_until(clock.now), id)
end
call('HSET', transactions, id, spell_transaction(record))
if #left == 0 then
  call('ZREM', open_transactions, id)
  call('ZREM', parked_transactions, id)
  call('ZREM', unfinished_transactions, id)
end
return #left
