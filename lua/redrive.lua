local call = redis.call
--[[ redrive.lua: dead -> ready | waiting_retry (sent back later)

  A dead letter starts again at attempt 1, for this group only. Its lease numbers continue, so old
  receipts stay stale, and its failure record keeps the lineage: a line says when it was sent back.
  With a delay it waits at a level until then, so that many can be spread over time. In an ordered
  group it goes to the end of its message group: at once, or when it is promoted.

  FLAGS  allow-oom
  KEYS   meta config ready inflight attempts failures dead deaths wake bodies events counters due order
         heads message_groups pending fingerprints, then levels
  ARGV   group actor, then id, delay_ms ('' at once) and record (one line of JSON for the failure
         record) of each message
  REPLY  OK | GONE of each message
  COST   O(messages * log dead); 19 commands, 2 a level used and 1 a message, in an ordered group 6 and 4 a
         message group
]]
-- @include clock
-- @include logical
-- @include history
-- @include delivery_state
-- @include policy
-- @include fingerprints
-- @include wait_or_dead_letter
-- @include failures
-- @include ownership
-- @include message_group_order
-- @include undo
-- @include restore_states

-- @bind keys
local FIRST, STRIDE = 3, 3

local ids, delays, lines = {}, {}, {}
for at = FIRST, #ARGV, STRIDE do
  ids[#ids + 1], delays[ARGV[at]] = ARGV[at], tonumber(ARGV[at + 1])
  lines[ARGV[at]] = ARGV[at + 2]
end
local policy = read_policy(config)
local clock = read_clock(meta)
local ordered, byte = policy.ordered, policy.byte
-- @include ordering
local is_dead, verdicts, sent, seen = call('ZMSCORE', dead, unpack(ids)), {}, {}, {}
for i, id in ipairs(ids) do
  local here = policy.exists and is_dead[i] and not seen[id] and call('HEXISTS', bodies, id) == 1
  verdicts[i], seen[id] = here and 'OK' or 'GONE', true
  sent[#sent + 1] = here and id or nil
end
local function send_back()
  local entries, records = call('HMGET', attempts, unpack(sent)), call('HMGET', failures, unpack(sent))
  local plan, written, changed, at_once, notes = new_plan(), {}, {}, {}, {}
  for i, id in ipairs(sent) do
    local destination = { note = 'R' }
    if delays[id] then
      destination = wait(plan, policy, clock.now, id, delays[id])
    else
      at_once[#at_once + 1] = id
    end
    notes[i] = destination.note
    local lease_no = read_entry(entries[i], policy.floor)
    written[2 * i - 1], written[2 * i] = id, spell_entry(lease_no + 1, 1, 0, 0)
    changed[2 * i - 1], changed[2 * i] = id, add_failure(records[i], 0, clock.now, lines[id], destination.delay)
  end
  local made, earlier, filled, ended = { ready = ready, orders = keys }, false, false, false
  all_or_undo(function()
    call('HDEL', deaths, '') -- changes nothing: what cannot be removed is not sent back
    call('ZREM', inflight, unpack(sent))
    call('HSET', attempts, unpack(written))
    call('HSET', failures, unpack(changed))
    earlier = write_plan(plan, keys, levels)
    finish_in_order(keys, sent, {})
    if #at_once > 0 then
      filled = push_in_order(keys, ready, at_once, made)
    end
    forget_fingerprints(keys, sent)
    call('HDEL', deaths, unpack(sent))
    ended = call('ZREM', dead, unpack(sent))
  end, function()
    if not ended then
      restore_states(attempts, sent, entries, written)
      take_back_pushed(made)
      note_fingerprints(keys, sent)
    end
  end)
  call('HINCRBY', counters, 'redrive:' .. group, #sent)
  if filled or earlier then
    call('ZADD', wake, 0, '1')
  end
  local note = #at_once < #sent and table.concat(notes, ' ') or ''
  append_history(clock, meta, events, 'redrive', group, actor, sent, note, '')
end

if #sent > 0 then
  send_back()
end
return verdicts
