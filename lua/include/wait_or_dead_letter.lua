-- The one place that decides whether a failed attempt waits on the ladder or is dead, and that
-- writes it. Destination first: a cut before the source is cleared leaves a duplicate, never a loss.
local function new_plan()
  return { waiting = {}, earliest = {}, known = {}, dead = {}, deaths = {} }
end

local function dead_letter(plan, now, id, attempt, cause, line)
  local n, fingerprint = #plan.dead, fingerprint_of(line)
  plan.dead[n + 1], plan.dead[n + 2] = now, id
  plan.deaths[n + 1], plan.deaths[n + 2] = id, attempt .. ' ' .. cause .. (fingerprint and ' ' .. fingerprint or '')
end

-- Most messages of a call wait equally long, so level, due time, the note of both for history and reply, and the delay
-- for the failure record are made only once.
local function destination_of(plan, policy, now, delay_ms)
  local known = plan.known[delay_ms]
  if not known then
    local level, due = level_for(policy.levels, delay_ms), now + delay_ms
    local members, text = plan.waiting[level] or {}, string.format('%d', due)
    known = { due = text, members = members, note = 'W,' .. level .. ',' .. text }
    known.delay = string.format('+%d', delay_ms)
    plan.known[delay_ms], plan.waiting[level] = known, members
    if due < (plan.earliest[level] or math.huge) then
      plan.earliest[level] = due
    end
  end
  return known
end

local function wait(plan, policy, now, id, delay_ms)
  local destination = destination_of(plan, policy, now, delay_ms)
  local members = destination.members
  local n = #members
  members[n + 1], members[n + 2] = destination.due, id
  return destination
end

-- How long a message waits by the group's policy, before jitter.
local function by_ladder(policy, attempt)
  return policy.delays[math.min(attempt, #policy.delays)]
end

-- choice: level 0 automatic, k > 0 that level (above the table: its last), -1 dead now; an explicit
-- delay wins over a level; line: the attempt record. An ordered group always waits its fixed interval.
-- Returns a note for history and reply, "W,level,due" or "D", and the delay for its failure record.
local function wait_or_dead_letter(plan, policy, now, id, attempt, cause, choice)
  if choice.level == -1 or attempt >= policy.max_attempts then
    dead_letter(plan, now, id, attempt, cause, choice.line)
    return 'D', ''
  end
  local chosen = policy.ordered ~= '1'
  local delay_ms = chosen and choice.delay_ms or nil
  if not delay_ms and choice.level > 0 and chosen then
    delay_ms = policy.levels[math.min(choice.level, #policy.levels)]
  elseif not delay_ms then
    delay_ms = by_ladder(policy, attempt)
    if policy.jitter > 0 then
      delay_ms = math.floor(delay_ms * (1 + policy.jitter * (2 * choice.random - 1)))
    end
  end
  local destination = wait(plan, policy, now, id, delay_ms)
  return destination.note, destination.delay
end

local function ids_of(dead)
  local ids = {}
  for i = 2, #dead, 2 do
    ids[i / 2] = dead[i]
  end
  return ids
end

-- Returns whether something is now due earlier than anything before.
local function write_plan(plan, keys, levels, view)
  local first = call('ZRANGE', keys.due, '0', '0', 'WITHSCORES')
  local earlier = false
  for level = 1, #levels do
    if plan.waiting[level] then
      call('ZADD', keys.due, 'LT', plan.earliest[level], level)
      call('ZADD', levels[level], unpack(plan.waiting[level]))
      earlier = earlier or not first[2] or plan.earliest[level] < tonumber(first[2])
    end
  end
  if #plan.dead > 0 and not view then
    local ids = ids_of(plan.dead)
    forget_fingerprints(keys, ids) -- of a call that was cut
    call('HSET', keys.deaths, unpack(plan.deaths))
    call('ZADD', keys.dead, unpack(plan.dead))
    note_fingerprints(keys, ids)
  end
  return earlier
end

-- A write was refused: who is not dead has no cause of death. A view has marks there, which stay.
local function forget_causes(plan, keys, view)
  local ids = view and {} or ids_of(plan.dead)
  for i, died in ipairs(#ids > 0 and call('ZMSCORE', keys.dead, unpack(ids)) or {}) do
    if not died then
      call('HDEL', keys.deaths, ids[i])
    end
  end
end
