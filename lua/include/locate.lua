-- Where a group has a message, for the repair scripts (include/bounded_search.lua).
-- Of the sorted sets of this group (o.firm), those that hold the message, in their order.
local function sorted_sets_with(o, id)
  local found = {}
  for _, key in ipairs(o.firm) do
    local score = call('ZSCORE', key, id)
    if score then
      found[#found + 1] = { key = key, score = tonumber(score) }
    end
  end
  return found
end

local function copies(list, id)
  return #call('LPOS', list, id, 'COUNT', 0)
end

local function is_out(o, id)
  return #sorted_sets_with(o, id) > 0 or copies(o.ready, id) > 0 or copies(o.retry, id) > 0
end

local function is_in_order(o, id, slot)
  return slot and call('ZSCORE', o.order, order_member(slot, id, o.byte)) and true or false
end

-- Nobody has ended the lease that the message may have had, so the next lease gets the next number: a
-- worker that still holds the old one is rejected. The attempts stay as they are.
local function send_out(o, id)
  local lease_no, attempt, expiries, postpones = read_entry(call('HGET', o.attempts, id), o.floor)
  call('HSET', o.attempts, id, spell_entry(lease_no + 1, attempt, expiries, postpones))
  call('RPUSH', o.ready, id)
  call('ZADD', o.wake, 0, '1')
end
