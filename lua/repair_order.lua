local call = redis.call
--[[ repair_order.lua: repair the order of an ordered group

  Like repair_places.lua, for the order of an ordered group: each is looked at again, and nothing that can be
  delivered leaves the line.

    go_on  (of names of message groups) the head is in a list and in the order; without a head, a message that
           is in a list becomes it, or else the first in the order goes out
    pass   (of members of the line) who is over, or has another number, leaves the line; who is not is known by
           its message group
    turn   (of ids) who is listed out of turn waits in line instead; who is out where nobody has the turn
           is the head

  FLAGS  allow-oom
  KEYS   meta config ready retry inflight attempts dead wake order heads bodies pending message_groups
         events counters, then levels
  ARGV   group actor what, then names, members or ids
  REPLY  how many of them were looked at (the caller sends the others again), those that were repaired
  COST   O(messages * (ready + retry + levels * log waiting)); 5 commands, 12 and 1 a level for each
]]
-- @include clock
-- @include logical
-- @include history
-- @include delivery_state
-- @include ownership
-- @include message_group_order
-- @include bounded_search
-- @include locate

-- @bind keys
local MOST = 100 -- of a line that nobody heads, how many are looked at: fewer where lists are long

keys.firm = { inflight, unpack(levels) }
local settings = call('HMGET', config, 'byte', 'ordered', 'floor')
if settings[2] ~= '1' then
  return { #ARGV - 3, {} }
end
local clock = read_clock(meta)
local ordered, byte = '1', settings[1]
-- @include ordering
keys.floor = tonumber(settings[3]) or 1
local reported = {}

local function slot_of(id, name)
  local slot = call('HGET', keys.message_groups, id)
  return slot and message_group_of(slot) == name and slot
end

local function mend_head(name, head)
  local slot, changed = slot_of(head, name), false
  if slot and not is_in_order(keys, head, slot) then
    call('ZADD', keys.order, 0, order_member(slot, head, byte))
    changed = true
  end
  if not is_out(keys, head) then
    send_out(keys, head)
    changed = true
  end
  return changed and head
end

-- Who is out already, else the first that can go out.
local function choose(name)
  local most = math.max(1, math.min(MOST, math.floor(SEARCHED / search)))
  local page = call('ZRANGEBYLEX', keys.order, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', 0, most)
  spent = spent + search * #page
  local first
  for _, member in ipairs(page) do
    local id = id_of_member(member, name)
    if owns(keys.byte, nil, keys, id) then
      if is_out(keys, id) then
        return id, true
      end
      first = first or id
    end
  end
  return first, false
end

local reorder = {}

function reorder.go_on(name)
  local head = call('HGET', keys.heads, name)
  if head and not owns(keys.byte, nil, keys, head) then
    leave_order(keys, { head }, { slot_of(head, name) or order_slot(0, name) })
    return head
  elseif head then
    return mend_head(name, head)
  end
  local chosen, out = choose(name)
  if not chosen then
    return false
  end
  if not out then
    send_out(keys, chosen)
  end
  call('HSET', keys.heads, name, chosen)
  return chosen
end

function reorder.pass(member)
  local name = string.match(member, '^%Z+')
  if not name or not call('ZSCORE', keys.order, member) then
    return false
  end
  local id = id_of_member(member, name)
  local slot, owned = call('HGET', keys.message_groups, id), owns(byte, nil, keys, id)
  if owned and not slot then
    local number = string.sub(member, #name + 2, #name + 1 + DIGITS)
    call('HSET', keys.message_groups, id, number .. name)
    return id
  elseif owned and order_member(slot, id, byte) == member then
    return false
  elseif owned and message_group_of(slot) == name then
    call('ZADD', keys.order, 0, order_member(slot, id, byte))
  elseif call('HGET', keys.heads, name) == id then
    leave_order(keys, { id }, { order_slot(0, name) })
  end
  call('ZREM', keys.order, member)
  return id
end

function reorder.turn(id)
  local slot = call('HGET', keys.message_groups, id)
  if not slot or not owns(keys.byte, nil, keys, id) or not is_out(keys, id) then
    return false
  end
  local name = message_group_of(slot)
  local head = call('HGET', keys.heads, name)
  if head == id or head and copies(ready, id) + copies(retry, id) == 0 then
    return false
  end
  if not is_in_order(keys, id, slot) then
    call('ZADD', keys.order, 0, order_member(slot, id, byte))
  end
  if head then
    call('LREM', ready, 0, id)
    call('LREM', retry, 0, id)
  else
    call('HSET', keys.heads, name, id)
  end
  return id
end

local repaired, notes = {}, {}
local lists = what == 'pass' and {} or { ready, retry }
local looked = while_bounded(lists, 16 + #levels, #ARGV - 3, function(n)
  local id = reorder[what](ARGV[3 + n])
  if id then
    repaired[#repaired + 1], reported[#reported + 1], notes[#notes + 1] = ARGV[3 + n], id, what
  end
end)
if #repaired > 0 then
  append_history(clock, meta, events, 'repair', group, actor, reported, table.concat(notes, ' '), '')
end
return { looked, repaired }
