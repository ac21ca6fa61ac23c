local call = redis.call
--[[ blockers.lua: read only; which messages of an ordered group hold up their message groups, and for how long

  A message group is blocked while one of its messages has failed and is not done. What fails more often has
  failed for longer, since an ordered group waits a fixed interval: so the first failures of a few are read.

  FLAGS  no-writes
  KEYS   meta retry inflight attempts failures order message_groups, then levels
  ARGV   most
  REPLY  how many message groups are blocked, then id, message group, attempt, ms since its first failure and
         messages behind it of each of the messages with the most attempts
  COST   O(LOOKED_AT + most * log line); 6 commands, 1 a level and 3 a message
]]
-- @include clock
-- @include logical
-- @include delivery_state

-- @bind
local LOOKED_AT, DIGITS = 3000, 16

local clock = read_clock(meta)
local candidates = {}
local function is_full(page)
  for _, id in ipairs(page) do
    candidates[#candidates + 1] = id
  end
  return #candidates >= LOOKED_AT
end
local function look_through()
  for _, level in ipairs(levels) do
    if is_full(call('ZRANGE', level, 0, LOOKED_AT - #candidates - 1)) then
      return
    end
  end
  if not is_full(call('LRANGE', retry, 0, LOOKED_AT - #candidates - 1)) then
    is_full(call('ZRANGE', inflight, 0, LOOKED_AT - #candidates - 1))
  end
end
look_through()
if #candidates == 0 then
  return { 0 }
end

local entries = call('HMGET', attempts, unpack(candidates))
local slots = call('HMGET', message_groups, unpack(candidates))
local failed = {}
for i, id in ipairs(candidates) do
  local _, attempt = read_entry(entries[i], 1)
  if attempt > 1 and slots[i] then
    failed[#failed + 1] = { id, string.match(slots[i], '^%Z*', DIGITS + 1), attempt }
  end
end
table.sort(failed, function(a, b)
  return a[3] > b[3] or a[3] == b[3] and a[1] < b[1]
end)

local answer = { #failed }
for i = 1, math.min(most, #failed) do
  local id, name, attempt = unpack(failed[i])
  local since = tonumber(string.match(call('HGET', failures, id) or '', '^%d+ (%d+)')) or clock.now
  local line = call('ZLEXCOUNT', order, '[' .. name .. '\0', '(' .. name .. '\1')
  answer[i + 1] = { id, name, attempt, math.max(0, clock.now - since), math.max(0, line - 1) }
end
return answer
