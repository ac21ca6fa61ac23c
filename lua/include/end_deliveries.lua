-- Deliveries that end without a result: each is an attempt, and its message is ready again, waits by the ladder,
-- or is dead. `how` has the verb, the cause, how much is added to the lease number and to the expiries, and whether
-- the history names the cause. Returns the ids of those that are dead.
local function end_deliveries(ids, entries, how)
  local records, line = call('HMGET', failures, unpack(ids)), '{"c":"' .. how.cause .. '"}'
  local plan, notes, written, changed, back, newly_dead = new_plan(), {}, {}, {}, {}, {}
  local function end_each()
    for i, id in ipairs(ids) do
      local lease_no, attempt, expiries, postpones = read_entry(entries[i], policy.floor)
      local at_once = policy.kind == 'simple' or expiries == 0
      local note, delay
      if at_once and attempt < policy.max_attempts then
        back[#back + 1], note, delay = id, 'R', '+0'
      else
        local choice = { level = 0, random = how.random, line = line }
        note, delay = wait_or_dead_letter(plan, policy, clock.now, id, attempt, how.cause, choice)
      end
      notes[i] = attempt .. ',' .. note
      newly_dead[#newly_dead + 1] = note == 'D' and id or nil
      local next_attempt = note == 'D' and attempt or attempt + 1
      local entry = spell_entry(lease_no + how.numbers, next_attempt, expiries + how.expiries, postpones)
      written[2 * i - 1], written[2 * i] = id, entry
      changed[2 * i - 1], changed[2 * i] = id, add_failure(records[i], attempt, clock.now, line, delay)
    end
  end

  local pushed, ended = 0, false
  local function write()
    local earlier, filled = write_plan(plan, keys, levels, policy.view), false
    if #back > 0 then
      filled, pushed = call('RPUSH', retry, unpack(back)) == #back, #back
    end
    call('HSET', failures, unpack(changed))
    call('HSET', attempts, unpack(written))
    finish_in_order(keys, newly_dead, {}, true)
    drop_given_up(policy, plan, keys.deaths, attempts, failures)
    ended = call('ZREM', inflight, unpack(ids))
    wake_if_below_limit(policy.max_inflight, inflight, wake, #ids)
    call('HINCRBY', counters, how.verb .. ':' .. group, #ids)
    if #plan.dead > 0 then
      call('HINCRBY', counters, (policy.view and 'dropped:' or 'dead:') .. group, #plan.dead / 2)
    end
    if filled or earlier then
      call('ZADD', wake, 0, '1')
    end
    local blob = how.named and string.sub(string.rep(line .. '\n', #ids), 1, -2) or ''
    append_history(clock, meta, events, how.verb, group, worker, ids, table.concat(notes, ' '), blob)
  end

  end_each()
  all_or_undo(write, function()
    if not ended then
      restore_states(attempts, ids, entries, written)
      forget_causes(plan, keys, policy.view)
      if pushed > 0 then
        call('LTRIM', retry, '0', -1 - pushed)
      end
    end
  end)
  return newly_dead
end
