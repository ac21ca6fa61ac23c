local call = redis.call
--[[ succeed.lua: inflight -> committed

  The handler is done. The group's byte, the body (when no other group still owes the message), the
  entry and, last, the in-flight member go; a cut before the last is repeated by the next settle or
  cleaned by the next lease. In an ordered group the next of the message group becomes ready. A
  simple consumer's ack also needs a deadline in the future (`strict`). A group that consumes another
  one's dead letters (a view) forgets its mark; the letter stays. Where the topic keeps bodies for a
  replay, body and id are kept.

  FLAGS  allow-oom
  KEYS   meta config inflight attempts failures dead bodies big pending ids_key id_expiry events counters wake
         ready order heads message_groups keyed message_keys kept kept_bodies consumed, then deaths of a
         group that consumes dead letters
  ARGV   group worker strict ('1' | '0') stride (2, or 1: ids alone) common_no (the lease_no of all, for
         stride 1) times ('' for none), then id and lease_no of each message
  REPLY  OK | STALE | GONE | LATER (too many, or too many bytes or message keys, for one call) of each message;
         nothing if all are OK
  COST   O(messages * log inflight); 12 commands, 6 more where some are large, owed to several or have an id
         of the caller's, 1 more where a message failed before, 3 for a message that is not OK, 2 with
         max_inflight, 3 where some have message keys, 9 and 1 a message where bodies are kept
]]
-- @include clock
-- @include logical
-- @include history
-- @include delivery_state
-- @include ownership
-- @include fence
-- @include message_keys
-- @include forget
-- @include wake_if_below_limit
-- @include handler_times

-- What ordered groups need is made only where a message ever had a message group.
local function load_ordering()
-- @include message_group_order
  return finish_in_order
end

-- Likewise, what keeps bodies only where they are kept.
local function load_keeping()
-- @include kept
  return keep
end

-- @bind keys

local settings = call('HMGET', config, 'byte', 'max_inflight', 'ordered', 'view', 'floor')
local byte, most = settings[1] or '', tonumber(settings[2] or '')
local clock = read_clock(meta)
local ordered = settings[3]
-- @include ordering
keys.floor, keys.common_no = tonumber(settings[5]) or 1, common_no
local ids, verdicts, entries, deadlines, all_ok = fence(keys, byte, 7, tonumber(ARGV[4]), strict)
local done, failed_before, attempt_of, stale = {}, {}, {}, 0

local function sort_out()
  local last, spelled = nil, nil -- most entries are as the one before
  for i, id in ipairs(ids) do
    local verdict, entry = all_ok and 'OK' or verdicts[i], entries[i] or false
    if verdict == 'OK' and strict and tonumber(deadlines[i]) <= clock.now then
      verdict = 'STALE'
    end
    verdicts[i] = verdict
    if entry ~= last then
      local _, attempt = read_entry(entry, 1)
      last, spelled = entry, string.format('%d', attempt)
    end
    if verdict == 'OK' then
      done[#done + 1], attempt_of[#done + 1] = id, spelled
      failed_before[#failed_before + 1] = entry and id or nil
    else
      stale = stale + 1
    end
  end
end

if all_ok and not strict and #entries == 0 then -- the usual case
  done = ids
else
  sort_out()
end
-- So many messages are not too many bytes, whatever they are; what is kept is copied, which takes longer.
local asked, late, HARMLESS, COPIED_BYTES, COPIED = #ids, 0, 16, 1048576, 250

local function put_late_ones_off()
-- @include within_bytes
  local later, rest = put_off(keys, ids, done, verdicts, clock.keep and COPIED_BYTES, clock.keep and COPIED), {}
  for _, id in ipairs(failed_before) do
    rest[#rest + 1] = not later[id] and id or nil
  end
  late, failed_before, attempt_of = asked - stale - #done, rest, { unpack(attempt_of, 1, #done) }
end
if asked > HARMLESS or clock.keep then
  put_late_ones_off()
end

-- Returns those whose body is gone, and whether one of them had none any more.
local function finish_with()
  if settings[4] == '1' then
    call('HDEL', KEYS[24], unpack(done))
    return {}, false
  end
  if clock.keep then
    load_keeping()(keys, clock, byte, done)
  end
  return forget(keys, byte, clock.now, done)
end

if #done > 0 then
  local last, had_ended = finish_with()
  if #failed_before > 0 then
    call('HDEL', failures, unpack(failed_before))
    call('HDEL', attempts, unpack(failed_before))
  end
  if keys.used then
    load_ordering()(keys, done, last, had_ended)
  end
  call('ZREM', inflight, unpack(done))
  wake_if_below_limit(most, inflight, wake, #done)
  call('HINCRBY', counters, 'succeed:' .. group, #done)
  local notes = #failed_before > 0 and table.concat(attempt_of, ' ') or '' -- '': all at their first
  append_history(clock, meta, events, 'succeed', group, worker, done, notes, '', times_of(done, ids, times))
end
local function answer()
  if stale > 0 then
    call('HINCRBY', counters, 'stale:' .. group, stale)
  end
  return stale + late > 0 and verdicts or {}
end
return answer()
