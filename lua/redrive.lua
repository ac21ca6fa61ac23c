local call = redis.call
--[[ redrive.lua: dead -> ready

  A dead letter starts again at attempt 1, for this group only. Its lease number goes on, so old
  receipts stay stale, and its failure record keeps the lineage: a line says when it was sent back.

  FLAGS  allow-oom
  KEYS   meta config ready inflight attempts failures dead graves wake bodies events counters
  ARGV   group actor, then ids
  REPLY  OK | GONE of each message
  COST   O(messages * log dead); 15 commands and 1 a message
]]
-- @include clock
-- @include logical
-- @include history
-- @include entry
-- @include failures

local meta, config, ready, inflight, attempts = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local failures, dead, graves, wake, bodies = KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10]
local events, counters = KEYS[11], KEYS[12]
local group, actor = ARGV[1], ARGV[2]
local ids = { unpack(ARGV, 3) }

local clock = read_clock(meta)
local subscribed = call('EXISTS', config) == 1
local buried, verdicts, sent, seen = call('ZMSCORE', dead, unpack(ids)), {}, {}, {}
for i, id in ipairs(ids) do
  local here = subscribed and buried[i] and not seen[id] and call('HEXISTS', bodies, id) == 1
  verdicts[i], seen[id] = here and 'OK' or 'GONE', true
  sent[#sent + 1] = here and id or nil
end
if #sent > 0 then
  local entries, records = call('HMGET', attempts, unpack(sent)), call('HMGET', failures, unpack(sent))
  local written, changed = {}, {}
  for i, id in ipairs(sent) do
    local lease_no = read_entry(entries[i])
    written[2 * i - 1], written[2 * i] = id, spell_entry(lease_no + 1, 1, 0, 0)
    changed[2 * i - 1], changed[2 * i] = id, add_failure(records[i], 0, clock.now, '{"c":"redriven"}')
  end
  call('HSET', attempts, unpack(written))
  call('HSET', failures, unpack(changed))
  local length = call('RPUSH', ready, unpack(sent))
  call('ZREM', inflight, unpack(sent))
  call('HDEL', graves, unpack(sent))
  call('ZREM', dead, unpack(sent))
  call('HINCRBY', counters, 'redrive:' .. group, #sent)
  if length == #sent then
    call('ZADD', wake, 0, '1')
  end
  append_history(clock, meta, events, 'redrive', group, actor, sent, '', '')
end
return verdicts
