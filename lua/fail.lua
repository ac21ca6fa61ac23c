local call = redis.call
--[[ fail.lua: inflight -> waiting_retry | dead

  A failed attempt waits on the ladder from now on; with no retries left, or where the handler says
  so, the message is dead at once. The body does not move. In an ordered group a message that waits
  keeps its message group waiting, and one that is dead lets the next one go.

  `stride` is how many arguments each message has; with fewer, what is left out is the same for all:
    7  id lease_no level delay_ms random cause record
    3  id lease_no record     level 0 and cause 'failure'
    2  id lease_no            ... and one record, which all share
    1  id                     ... and one lease_no, which all have
  `level` is 0 for automatic, k > 0 for that level, -1 for dead; `delay_ms` is '' where the level holds;
  `record` is the text, or, if records are shared, the number of one.

  FLAGS  allow-oom
  KEYS   meta config inflight attempts failures dead deaths tracebacks due wake bodies pending events
         counters ready order heads message_groups fingerprints, then levels
  ARGV   group worker traces stride (7, 3, 2 or 1) random (0 to 1, for the jitter where stride is less
         than 7) common_no (the lease_no of all, for stride 1) shared times ('' for none), then fingerprint and
         text of each traceback, then records that messages share (lines of JSON for the failure record), then id,
         lease_no, level, delay_ms, random, cause and record of each message (as many of these as `stride`
         says)
  REPLY  of each message STALE | GONE | attempt,W,level,due_ms | attempt,D (only once if it is the same for all),
         and then now_ms
  COST   O(messages * log waiting); 16 commands and 2 a level, 2 with max_inflight, 6 where any is dead
]]
-- @include clock
-- @include logical
-- @include history
-- @include delivery_state
-- @include ownership
-- @include fence
-- @include policy
-- @include fingerprints
-- @include wait_or_dead_letter
-- @include failures
-- @include wake_if_below_limit
-- @include drop_given_up
-- @include undo
-- @include handler_times
-- @include restore_states

-- What ordered groups need is made only where a message ever had a message group.
local function load_ordering()
-- @include message_group_order
  return finish_in_order
end

-- @bind keys
local TRACES, TRACEBACKS_KEPT, GOLDEN = 9, 1000, 0.6180339887498949
local FIRST = TRACES + 2 * traces + shared
local ASKING = 7 -- arguments of a message that may ask for something

local policy = read_policy(config)
local clock = read_clock(meta)
local ordered, byte = policy.ordered, policy.byte
-- @include ordering
keys.floor, keys.common_no = policy.floor, common_no
local ids, verdicts, entries, _, all_ok = fence(keys, policy.byte, FIRST, stride)
local plan, done, notes, written, lines, died = new_plan(), {}, {}, {}, {}, {}

-- Most messages of a call have the same numbers: each entry is read, and what comes of it found and spelled,
-- once. Those that ask for nothing, and are not spread by jitter, wait at the same place.
local read, choice, alike = {}, {}, stride < ASKING and policy.jitter == 0
local function numbers_of(entry)
  local known = read[entry]
  if not known then
    local lease_no, attempt, expiries, postpones = read_entry(entry, policy.floor)
    known = { attempt = attempt, text = tostring(attempt), before = attempt .. ',' }
    known.dies = spell_entry(lease_no + 1, attempt, expiries, postpones)
    known.waits = spell_entry(lease_no + 1, attempt + 1, expiries, postpones)
    if alike and attempt < policy.max_attempts then
      local destination = destination_of(plan, policy, clock.now, by_ladder(policy, attempt))
      known.members, known.due = destination.members, destination.due
      known.note, known.delay = known.before .. destination.note, destination.delay
    end
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

local shared_lines = {}
for number = 1, shared do
  shared_lines[string.format('%d', number)] = ARGV[FIRST - 1 - shared + number]
end

local function line_of(at)
  local record = stride > 2 and ARGV[at + stride - 1] or '1'
  return shared > 0 and shared_lines[record] or record
end

-- Returns whether it is dead, a note of what became of it, and its delay.
local function one_by_one(i, at, id, its)
  local cause = 'failure'
  if stride < ASKING then -- one number for all, far from each other in their order
    choice.level, choice.random = 0, (random + (i - 1) * GOLDEN) % 1
  else
    choice.level, choice.delay_ms, choice.random = number_of(ARGV[at + 2]), number_of(ARGV[at + 3]), ARGV[at + 4]
    cause = ARGV[at + 5]
  end
  choice.line = line_of(at)
  local verdict, delay = wait_or_dead_letter(plan, policy, clock.now, id, its.attempt, cause, choice)
  return verdict == 'D', its.before .. verdict, delay
end

local n, attempt_of, delays, failed_before, one_line = 0, {}, {}, false, stride < 3 and line_of(FIRST)
for i = 1, #ids do
  if all_ok or verdicts[i] == 'OK' then
    local id, at, its = ids[i], FIRST + (i - 1) * stride, numbers_of(entries[i] or false)
    local is_dead, note, delay = false, its.note, its.delay
    if note then
      local members = its.members
      local m = #members
      members[m + 1], members[m + 2] = its.due, id
    else
      is_dead, note, delay = one_by_one(i, at, id, its)
    end
    n, failed_before = n + 1, failed_before or entries[i]
    delays[n] = delay
    done[n], notes[n], verdicts[i], lines[n], attempt_of[n] = id, note, note, one_line or line_of(at), its.text
    written[2 * n - 1], written[2 * n] = id, is_dead and its.dies or its.waits
    if is_dead then
      died[#died + 1] = id
    end
  end
end

-- A message without delivery state has no record yet. Records of one call are often alike: made once.
local function write_failure_records()
  local records = failed_before and call('HMGET', failures, unpack(done)) or {}
  local changed, at_ms, last_line, last_attempt, last_delay, record = {}, string.format('%d', clock.now)
  for i = 1, #done do
    local before, attempt, line, delay = records[i], attempt_of[i], lines[i], delays[i]
    if before or line ~= last_line or attempt ~= last_attempt or delay ~= last_delay then
      record = add_failure(before, attempt, at_ms, line, delay)
      last_line, last_attempt, last_delay = not before and line or nil, attempt, delay
    end
    changed[2 * i - 1], changed[2 * i] = done[i], record
  end
  call('HSET', failures, unpack(changed))
end

-- The newest are kept; `traced` has their fingerprints, the oldest first.
local function keep_tracebacks()
  local traced, oldest = call('HGET', config, 'traced') or '', {}
  for at = TRACES, TRACES - 1 + 2 * traces, 2 do
    traced = string.find(traced, ARGV[at], 1, true) and traced or traced .. ARGV[at] .. ' '
  end
  local _, count = string.gsub(traced, ' ', ' ')
  for fingerprint in string.gmatch(traced, '%S+') do
    if count <= TRACEBACKS_KEPT then
      break
    end
    oldest[#oldest + 1], count = fingerprint, count - 1
    traced = string.sub(traced, #fingerprint + 2)
  end
  call('HSET', tracebacks, unpack(ARGV, TRACES, TRACES - 1 + 2 * traces))
  if #oldest > 0 then
    call('HDEL', tracebacks, unpack(oldest))
  end
  call('HSET', config, 'traced', traced)
end

local ended = false
local function write()
  local earlier = write_plan(plan, keys, levels, policy.view)
  write_failure_records()
  if traces > 0 then
    keep_tracebacks()
  end
  call('HSET', attempts, unpack(written))
  if keys.used then
    load_ordering()(keys, died, {}, true)
  end
  drop_given_up(policy, plan, keys.deaths, attempts, failures)
  ended = call('ZREM', inflight, unpack(done))
  wake_if_below_limit(policy.max_inflight, inflight, wake, #done)
  call('HINCRBY', counters, 'fail:' .. group, #done)
  if #plan.dead > 0 then
    call('HINCRBY', counters, (policy.view and 'dropped:' or 'dead:') .. group, #plan.dead / 2)
  end
  if earlier then
    call('ZADD', wake, '0', '1')
  end
  local text, blob = table.concat(notes, ' '), table.concat(lines, '\n')
  append_history(clock, meta, events, 'fail', group, worker, done, text, blob, times_of(done, ids, times))
end

if #done > 0 then
  all_or_undo(write, function()
    if not ended then
      restore_states(attempts, ids, entries, written)
      forget_causes(plan, keys, policy.view)
    end
  end)
end

-- The verdicts, only one if all are the same, and the time.
local function answer()
  if #done < #ids then
    call('HINCRBY', counters, 'stale:' .. group, #ids - #done)
  end
  local same = #verdicts > 1
  for i = 2, #verdicts do
    same = same and verdicts[i] == verdicts[1]
  end
  local out = same and { verdicts[1] } or verdicts
  out[#out + 1] = string.format('%d', clock.now)
  return out
end
return answer()
