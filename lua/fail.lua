local call = redis.call
--[[ fail.lua: inflight -> waiting_retry | dead

  A failed attempt waits on the ladder from now on; with no retries left, or where the handler says
  so, the message is dead at once. The body does not move. In an ordered group a message that waits
  keeps its message group waiting, and one that is dead lets the next one go.

  FLAGS  allow-oom
  KEYS   meta config inflight attempts failures dead graves tracebacks due wake bodies pending events
         counters ready line heads message_groups, then the delay level keys
  ARGV   group worker tracebacks words (3 or 7 a message) random (0 to 1, for the jitter of messages of 3
         words), then fingerprint and text of each traceback, then of each message
         id, lease_no, level (0 automatic, k that one, -1 dead), delay_ms ('' by level), random, cause,
         record (one line of JSON for the failure record); with 3 words id, lease_no and record: the level
         is automatic, and the cause is 'failure'
  REPLY  of each message STALE | GONE | attempt,W,level,due_ms | attempt,D and then now_ms
  COST   O(messages * log waiting); 16 commands and 2 a level, 2 with max_inflight
]]
-- @include clock
-- @include logical
-- @include history
-- @include entry
-- @include fence
-- @include policy
-- @include wait_or_bury
-- @include failures
-- @include room
-- @include spent

-- What ordered groups need is made only where a message ever had a message group.
local function lines_of_groups()
-- @include lines
  return finish_lines
end

local meta, config, inflight, attempts, failures = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local tracebacks, wake, events, counters = KEYS[8], KEYS[10], KEYS[13], KEYS[14]
local keys = {
  inflight = inflight, attempts = attempts, dead = KEYS[6], graves = KEYS[7], due = KEYS[9],
  bodies = KEYS[11], pending = KEYS[12],
}
local levels = { unpack(KEYS, 19) }
local group, worker, traces = ARGV[1], ARGV[2], tonumber(ARGV[3])
local FIRST, STRIDE, TRACEBACKS_KEPT, GOLDEN = 6 + 2 * traces, tonumber(ARGV[4]), 1000, 0.6180339887498949
local random = tonumber(ARGV[5])

local policy = read_policy(config)
local clock = read_clock(meta)
local order = {
  used = clock.order, ordered = policy.ordered, byte = policy.byte, ready = KEYS[15], wake = wake, line = KEYS[16],
  heads = KEYS[17], message_groups = KEYS[18], bodies = keys.bodies, pending = keys.pending, dead = keys.dead,
  inflight = inflight,
}
local ids, verdicts, entries = fence(keys, policy.byte, FIRST, STRIDE)
local plan, done, notes, written, lines, buried = new_plan(), {}, {}, {}, {}, {}

-- Most messages of a call have the same numbers: each entry is read, and what comes of it spelled, once.
local read, choice = {}, {}
local function numbers_of(entry)
  local known = read[entry]
  if not known then
    local lease_no, attempt, expiries, postpones = read_entry(entry)
    known = { attempt = attempt, text = tostring(attempt), before = attempt .. ',' }
    known.dies = spell_entry(lease_no + 1, attempt, expiries, postpones)
    known.waits = spell_entry(lease_no + 1, attempt + 1, expiries, postpones)
    read[entry] = known
  end
  return known
end

local numbers_read = { [''] = false }
local function number_of(text)
  local number = numbers_read[text]
  if number == nil then
    number = tonumber(text)
    numbers_read[text] = number
  end
  return number
end

local n, attempt_of = 0, {}
for i, id in ipairs(ids) do
  if verdicts[i] == 'OK' then
    local at, its = FIRST + (i - 1) * STRIDE, numbers_of(entries[i] or false)
    local cause = 'failure'
    if STRIDE == 3 then -- one number for all, far from each other in their order
      choice.level, choice.random = 0, (random + (i - 1) * GOLDEN) % 1
    else
      choice.level, choice.delay_ms, choice.random = number_of(ARGV[at + 2]), number_of(ARGV[at + 3]), ARGV[at + 4]
      cause = ARGV[at + 5]
    end
    local verdict = wait_or_bury(plan, policy, clock.now, id, its.attempt, cause, choice)
    local dead, note = verdict == 'D', its.before .. verdict
    n = n + 1
    buried[#buried + 1] = dead and id or nil
    done[n], notes[n], verdicts[i], lines[n], attempt_of[n] = id, note, note, ARGV[at + STRIDE - 1], its.text
    written[2 * n - 1], written[2 * n] = id, dead and its.dies or its.waits
  end
end

local function write_failure_records()
  local records, changed, at_ms = call('HMGET', failures, unpack(done)), {}, string.format('%d', clock.now)
  for i, id in ipairs(done) do
    changed[2 * i - 1], changed[2 * i] = id, add_failure(records[i], attempt_of[i], at_ms, lines[i])
  end
  call('HSET', failures, unpack(changed))
  if traces > 0 and call('HLEN', tracebacks) < TRACEBACKS_KEPT then
    call('HSET', tracebacks, unpack(ARGV, 6, FIRST - 1))
  end
end

if #done > 0 then
  local earlier = write_plan(plan, keys, levels, policy.view)
  write_failure_records()
  call('HSET', attempts, unpack(written))
  if order.used then
    lines_of_groups()(order, buried, {})
  end
  drop_spent(policy, plan, keys.graves, attempts, failures)
  call('ZREM', inflight, unpack(done))
  wake_for_room(policy.max_inflight, inflight, wake, #done)
  call('HINCRBY', counters, 'fail:' .. group, #done)
  if #plan.dead > 0 then
    call('HINCRBY', counters, (policy.view and 'dropped:' or 'dead:') .. group, #plan.dead / 2)
  end
  if earlier then
    call('ZADD', wake, '0', '1')
  end
  append_history(clock, meta, events, 'fail', group, worker, done, table.concat(notes, ' '), table.concat(lines, '\n'))
end
if #done < #ids then
  call('HINCRBY', counters, 'stale:' .. group, #ids - #done)
end
verdicts[#verdicts + 1] = string.format('%d', clock.now)
return verdicts
