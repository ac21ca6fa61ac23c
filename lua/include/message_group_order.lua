-- Ordered groups: of each message group at most one message is out (ready, in flight or waiting), its
-- head. All its unfinished messages are in the group's order (the key `line`), a lex set of message
-- group, zero byte, 16 digits and id; `heads` names the heads. `message_groups` keeps the slot of each
-- message that has a message group: digits and message group; behind these, of each group whose order it entered
-- again by a redrive, a zero byte, the group's byte and the digits it has there. The others are in one of their own,
-- QUEUE, as in a queue; unless the topic says that they are unordered: then they are ready at once.
--
-- Entering: order, list, head. Leaving: the list gets the next one, the order loses what left, and the
-- head is set; the caller removes its own index (in flight, dead) last. A cut before the head is set
-- leaves an id in a list that is not a head: the next lease drops it. The old head stays, and whoever
-- finds that its message has ended lets the next of its message group go.
local QUEUE = ' ' -- no caller can name it
local DIGITS, LOOK, PASSED_BY, LOOKED_THROUGH, FEW_LEASED = 16, 2, 1000, 1000, 4

local function order_slot(number, message_group)
  return string.format('%016d', number) .. message_group
end

local function message_group_of(slot)
  return string.match(slot, '^%Z*', DIGITS + 1)
end

-- Where the slot says what number a redrive gave to the message in this group; nil where none did.
local function redriven_at(slot, byte)
  return (byte or '') ~= '' and string.find(slot, '\0' .. byte, DIGITS + 1, true)
end

local function order_member(slot, id, byte)
  local at = redriven_at(slot, byte)
  local digits = at and string.sub(slot, at + 2, at + 1 + DIGITS) or string.sub(slot, 1, DIGITS)
  return message_group_of(slot) .. '\0' .. digits .. id
end

-- The slot with another number in this group, or with the one that it had when it was published.
local function renumbered(slot, byte, number)
  local at = redriven_at(slot, byte)
  local kept = at and string.sub(slot, 1, at - 1) .. string.sub(slot, at + 2 + DIGITS) or slot
  return number and kept .. '\0' .. byte .. order_slot(number, '') or kept
end

local function id_of_member(member, message_group)
  return string.sub(member, #message_group + DIGITS + 2)
end

-- The keys of one ordered group after another, which stand in KEYS behind `at`; nil for a group that is
-- not ordered.
local function orders_behind(at)
  return function(ordered)
    if not ordered then
      return nil
    end
    at = at + 2
    return { order = KEYS[at - 1], heads = KEYS[at] }
  end
end

-- slots[i] is what `message_groups` keeps of ids[i]. Returns the ids that may go out now, in order, and
-- the new heads: the caller pushes the ids, and then calls set_heads with the heads. What is written is noted in
-- `made`, for take_back_pushed.
local function enter_order(o, ids, slots, made)
  local members, asked, out, heads = {}, {}, {}, {}
  for i, id in ipairs(ids) do
    if slots[i] then
      members[#members + 1], members[#members + 2] = 0, order_member(slots[i], id, o.byte)
      asked[#asked + 1] = message_group_of(slots[i])
    end
  end
  if #asked == 0 then
    return ids, heads
  end
  made.members = members
  call('ZADD', o.order, unpack(members))
  local known, head_of, at = call('HMGET', o.heads, unpack(asked)), {}, 0
  for i, id in ipairs(ids) do
    local name = slots[i] and message_group_of(slots[i])
    if name then
      at = at + 1
      head_of[name] = head_of[name] or known[at]
    end
    if not (name and head_of[name]) then
      out[#out + 1] = id
    end
    if name and not head_of[name] then
      heads[#heads + 1], heads[#heads + 2], head_of[name] = name, id, id
    end
  end
  return out, heads
end

local function set_heads(o, heads)
  if #heads > 0 then
    call('HSET', o.heads, unpack(heads))
  end
end

-- The number before the first of so many. Where the last one is damaged, time goes on from further than any.
local function take_numbers(clock, meta, count)
  local last = tonumber(clock.order)
  if clock.order and not (last and last >= 1 and last < 2 ^ 48 and last % 1 == 0) then
    call('HSET', meta, 'order', string.format('%d', clock.now))
  end
  return call('HINCRBY', meta, 'order', count) - count
end

-- Messages get numbers in the order in which they came; what a call that was cut has numbered keeps its
-- number. Returns the position of each. Those without a name in name_of are in the queue.
local function number_messages(clock, meta, message_groups, ids, name_of)
  local kept, number, numbered, slot_of = call('HMGET', message_groups, unpack(ids)), 0, {}, {}
  for i, id in ipairs(ids) do
    if kept[i] and message_group_of(kept[i]) == (name_of[id] or QUEUE) then
      slot_of[id] = kept[i]
    else
      number = number + 1
    end
  end
  if number > 0 then
    number = take_numbers(clock, meta, number)
  end
  for _, id in ipairs(ids) do
    if not slot_of[id] then
      number = number + 1
      slot_of[id] = order_slot(number, name_of[id] or QUEUE)
      numbered[#numbered + 1], numbered[#numbered + 2] = id, slot_of[id]
    end
  end
  if #numbered > 0 then
    call('HSET', message_groups, unpack(numbered))
  end
  return slot_of
end

-- New messages of a group (an ordered one: o): who goes out now; of an ordered one, those that nobody
-- holds up.
local function push_new(o, ready, wake, ids, slot_of, made)
  local out, heads = ids, {}
  if o then
    local slots = {}
    for i, id in ipairs(ids) do
      slots[i] = slot_of[id] or false
    end
    out, heads = enter_order(o, ids, slots, made)
  end
  if #out > 0 then
    local length = call('RPUSH', ready, unpack(out))
    made.pushed = #out
    if length == #out then
      call('ZADD', wake, '0', '1')
    end
  end
  if #heads > 0 then
    made.heads = heads
    set_heads(o, heads)
  end
end

-- What a group got, in `ready` and, if it is ordered, in the keys `orders`.
local function take_back_pushed(made)
  if made.members then
    local gone = {}
    for i = 2, #made.members, 2 do
      gone[i / 2] = made.members[i]
    end
    call('ZREM', made.orders.order, unpack(gone))
  end
  if made.pushed then
    call('LTRIM', made.ready, '0', -1 - made.pushed)
  end
  for i = 1, #(made.heads or {}), 2 do
    call('HDEL', made.orders.heads, made.heads[i])
  end
end

-- The first of a message group that can go out, unless its head stays: others may stand in front of it,
-- which were committed with a transaction before it came and delivered after it, or were replayed. Whoever stands
-- in front and was over when a call was cut is noted in `gone`. If a call has met too many of these, the next one
-- goes out unseen: whoever leases it finds out, and goes on from there.
local passed_by = 0
local function page_of(o, name, offset)
  return call('ZRANGEBYLEX', o.order, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', offset, LOOK)
end

local function next_in_order(o, name, head, leaving, gone, page, goes)
  if head and not leaving[head] and owns(o.byte, nil, o, head) then
    return nil
  end
  local offset = 0
  page = page or page_of(o, name, offset)
  while true do
    for _, member in ipairs(page) do
      local id = id_of_member(member, name)
      if goes[id] then
        return id
      elseif leaving[id] or passed_by < PASSED_BY and not owns(o.byte, nil, o, id) then
        gone[#gone + 1] = member
        passed_by = passed_by + 1
      elseif not call('ZSCORE', o.inflight, id) then
        return id
      end
    end
    if #page < LOOK then
      return nil
    end
    offset = offset + LOOK
    page = page_of(o, name, offset)
  end
end

-- Which of the ids are in flight. Where little is, the server would look through all of it for each of them.
local function who_is_leased(inflight, ids)
  local leased = {}
  if call('ZCARD', inflight) <= FEW_LEASED * #ids then
    for _, id in ipairs(call('ZRANGE', inflight, '0', '-1')) do
      leased[id] = true
    end
    return leased
  end
  for i, score in ipairs(call('ZMSCORE', inflight, unpack(ids))) do
    leased[ids[i]] = score
  end
  return leased
end

-- Of message groups whose heads leave: their first pages, and who of these can go out. All are asked about at once.
local function look_ahead(o, names, known, leaving)
  local pages, asked, goes = {}, {}, {}
  for i, name in ipairs(names) do
    if known[i] and leaving[known[i]] then
      pages[i] = page_of(o, name, 0)
      for _, member in ipairs(pages[i]) do
        local id = id_of_member(member, name)
        if not leaving[id] then
          asked[#asked + 1] = id
        end
      end
    end
  end
  if #asked == 0 then
    return pages, goes
  end
  local is_dead = call('EXISTS', o.dead) > 0 and call('ZMSCORE', o.dead, unpack(asked)) or {}
  local owed = call('EXISTS', o.pending) > 0 and call('HMGET', o.pending, unpack(asked)) or {}
  local leased = who_is_leased(o.inflight, asked)
  for i, id in ipairs(asked) do
    goes[id] = not (is_dead[i] or leased[id]) and owns(o.byte, owed[i]) and call('HEXISTS', o.bodies, id) == 1
  end
  return pages, goes
end

-- Who leaves, the message groups that they leave, their members of the order, and the slots of those of them that
-- a redrive had given another number.
local function read_leaving(o, ids, slots)
  local leaving, names, seen, gone, restored = {}, {}, {}, {}, {}
  for i, id in ipairs(ids) do
    leaving[id] = true
    local slot = slots[i]
    local name = slot and message_group_of(slot)
    gone[#gone + 1] = name and order_member(slot, id, o.byte) or nil
    if name and redriven_at(slot, o.byte) then
      restored[#restored + 1], restored[#restored + 2] = id, renumbered(slot, o.byte)
    end
    if name and not seen[name] then
      names[#names + 1], seen[name] = name, true
    end
  end
  return leaving, names, gone, restored
end

local function leave_order(o, ids, slots)
  local leaving, names, gone, restored = read_leaving(o, ids, slots)
  if #names == 0 then
    return
  end
  local known = call('HMGET', o.heads, unpack(names))
  local out, heads, closed = {}, {}, {}
  local pages, goes = look_ahead(o, names, known, leaving)
  for i, name in ipairs(names) do
    local follower = next_in_order(o, name, known[i], leaving, gone, pages[i], goes)
    if follower then
      out[#out + 1] = follower
      heads[#heads + 1], heads[#heads + 2] = name, follower
    elseif known[i] and leaving[known[i]] then
      closed[#closed + 1] = name
    end
  end
  if #out > 0 and call('RPUSH', o.ready, unpack(out)) == #out then
    call('ZADD', o.wake, '0', '1')
  end
  if #gone > 0 then
    call('ZREM', o.order, unpack(gone))
  end
  if #restored > 0 then
    call('HSET', o.message_groups, unpack(restored))
  end
  set_heads(o, heads)
  if #closed > 0 then
    call('HDEL', o.heads, unpack(closed))
  end
end

-- Where a message group is forgotten, only the heads tell what a message holds up: these are looked through, if
-- there are not too many (else rqretry fsck finds what is held up).
local function find_forgotten(o, ids, slots)
  local forgotten, name_of = false, {}
  for i = 1, #ids do
    forgotten = forgotten or not slots[i]
  end
  if forgotten and call('HLEN', o.heads) <= LOOKED_THROUGH then
    local heads = call('HGETALL', o.heads)
    for i = 1, #heads, 2 do
      name_of[heads[i + 1]] = heads[i]
    end
  end
  for i, id in ipairs(ids) do
    slots[i] = slots[i] or name_of[id] and order_slot(0, name_of[id])
  end
end

-- A group is finished with these; `last` are those that no group is owed any more. `look`: some of them may have no
-- body any more, since a call was cut; then the last of the other groups may have forgotten their message groups.
-- `o.used` is nil while no message of the partition has ever had a message group.
local function finish_in_order(o, ids, last, look)
  if not o.used or #ids == 0 then
    return
  end
  if o.ordered == '1' then
    local slots = call('HMGET', o.message_groups, unpack(ids))
    if look then
      find_forgotten(o, ids, slots)
    end
    leave_order(o, ids, slots)
  end
  if #last > 0 then
    call('HDEL', o.message_groups, unpack(last))
  end
end

-- New numbers in this group for those that have a slot. What a call that was cut has let in leaves.
local function renumber(o, ids, slots, count)
  local number, gone, changed = take_numbers(o.clock, o.meta, count), {}, {}
  for i, id in ipairs(ids) do
    if slots[i] then
      number = number + 1
      gone[#gone + 1] = order_member(slots[i], id, o.byte)
      slots[i] = renumbered(slots[i], o.byte, number)
      changed[#changed + 1], changed[#changed + 2] = id, slots[i]
    end
  end
  call('ZREM', o.order, unpack(gone))
  call('HSET', o.message_groups, unpack(changed))
end

-- Messages that come back to a list: in an ordered group to the end of their message groups. Answers
-- whether the list was empty before.
local function push_in_order(o, list, ids, made)
  local out, heads = ids, {}
  if o.used and o.ordered == '1' then
    local slots, named = call('HMGET', o.message_groups, unpack(ids)), 0
    for i = 1, #ids do
      named = named + (slots[i] and 1 or 0)
    end
    if named > 0 then
      renumber(o, ids, slots, named)
    end
    out, heads = enter_order(o, ids, slots, made)
  end
  if #out == 0 then
    return false
  end
  local length = call('RPUSH', list, unpack(out))
  made.pushed, made.heads = #out, heads
  set_heads(o, heads)
  return length == #out
end

-- Who of these holds up its message group (or has none), and who is not in line.
local function heads_and_others(o, ids)
  local slots, heads, others = call('HMGET', o.message_groups, unpack(ids)), {}, {}
  for i, id in ipairs(ids) do
    local outside = slots[i] and call('HGET', o.heads, message_group_of(slots[i])) ~= id
    local chosen = outside and others or heads
    chosen[#chosen + 1] = id
  end
  return heads, others
end
