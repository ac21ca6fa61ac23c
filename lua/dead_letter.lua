local call = redis.call
--[[ dead_letter.lua: ready | waiting_retry -> dead, on behalf of an operator

  One call is about one structure of the group: a delay level, the order (what waits behind another one of its message
  group), or a list, of which it takes a window at the head: what stays moves to the tail, so that calls go once around,
  and what is over, or leased, leaves it. What is leased is never dead-lettered. No attempt is counted.

  FLAGS  allow-oom
  KEYS   meta config location (the structure) attempts failures dead deaths inflight bodies pending events
         counters ready wake due order heads message_groups fingerprints
  ARGV   group actor structure (list, zset or order) record (of the failure record), then id (in the order: member) and
         answer ('1' dies, '0' stays) of each message looked at
  REPLY  window (entries of a list that the call went past), ids that are dead now
  COST   O(messages * log size); 21 commands and 1 a message
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
-- @include looked_at
-- @include message_group_order
-- @include undo
-- @include restore_states

-- @bind keys
local FIRST, STRIDE, CAUSE = 5, 2, 'by_hand'

local asked, answers, members, names = {}, {}, {}, {}
for at = FIRST, #ARGV, STRIDE do
  local n, name = #asked + 1, structure == 'order' and string.match(ARGV[at], '^%Z+')
  asked[n], members[n], names[n] = name and id_of_member(ARGV[at], name) or ARGV[at], ARGV[at], name
  answers[asked[n]] = ARGV[at + 1]
end
local policy = read_policy(config)
local clock = read_clock(meta)
local ordered, byte = policy.ordered, policy.byte
-- @include ordering
local listed = structure == 'list'
local ids = listed and call('LRANGE', location, 0, #asked - 1) or asked
if #ids == 0 or not policy.exists or policy.view then
  return { 0, {} }
end

-- Whether each is in the structure; in the order, only who is not out.
local function find_them()
  if listed then
    return nil
  end
  local here = call('ZMSCORE', location, unpack(members))
  for i, head in ipairs(structure == 'order' and call('HMGET', heads, unpack(names)) or {}) do
    here[i] = here[i] and head ~= ids[i]
  end
  return here
end

-- A message without a body stays: it is fsck's.
local function with_bodies()
  for id, answer in pairs(answers) do
    if answer == '1' and call('HEXISTS', bodies, id) == 0 then
      answers[id] = '0'
    end
  end
  return answers
end

local taken, kept, over, window = sort_out(keys, byte, ids, with_bodies(), find_them())
local dying, gone = pick(ids, taken), pick(members, taken)

local function end_them()
  local entries, records = call('HMGET', attempts, unpack(dying)), call('HMGET', failures, unpack(dying))
  local plan, written, changed, notes = new_plan(), {}, {}, {}
  for i, id in ipairs(dying) do
    local lease_no, attempt, expiries, postpones = read_entry(entries[i], policy.floor)
    local made = attempt - 1 -- it was not delivered again
    dead_letter(plan, clock.now, id, made, CAUSE, record)
    written[2 * i - 1], written[2 * i] = id, spell_entry(lease_no, math.max(made, 1), expiries, postpones)
    changed[2 * i - 1], changed[2 * i] = id, add_failure(records[i], made, clock.now, record)
    notes[i] = made .. ',D'
  end
  all_or_undo(function()
    write_plan(plan, keys, {}, false)
    call('HSET', failures, unpack(changed))
    call('HSET', attempts, unpack(written))
    finish_in_order(keys, dying, {})
  end, function()
    forget_causes(plan, keys, false)
    restore_states(attempts, dying, entries, written)
  end)
  call('HINCRBY', counters, 'dead_letter:' .. group, #dying)
  call('HINCRBY', counters, 'dead:' .. group, #dying)
  append_history(clock, meta, events, 'dead_letter', group, actor, dying, table.concat(notes, ' '),
    string.sub(string.rep(record .. '\n', #dying), 1, -2))
end

if listed and #kept > 0 then
  call('RPUSH', location, unpack(kept))
end
if #dying > 0 then
  end_them()
end
if listed then
  finish_in_order(keys, over, {}) -- the call that ended them may have been cut before the next ones went out
  call('LTRIM', location, window, -1)
elseif #gone > 0 then
  call('ZREM', location, unpack(gone))
end
return { window, dying }
