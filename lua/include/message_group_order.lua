-- Ordered groups: of each message group at most one message is out (ready, in flight or waiting), its
-- head. All its unfinished messages stand in the group's `line`, a lex set of message group, zero
-- byte, 16 digits and id; `heads` names who is out. `message_groups` keeps digits and message group
-- of each message that has one. Without a message group a message is ready at once, in no line.
--
-- Entering: line, list, head. Leaving: the list gets the next one, the line loses who left, and the
-- head is set; the caller removes its own index (in flight, dead) last. A cut before the head is set
-- leaves an id in a list that is not a head, which the next lease drops, and the head tells whoever
-- finds its message ended which message group is to go on.
local DIGITS, LOOK = 16, 2

local function place_in_line(number, message_group)
  return string.format('%016d', number) .. message_group
end

local function message_group_of(place)
  return string.sub(place, DIGITS + 1)
end

local function line_member(place, id)
  return message_group_of(place) .. '\0' .. string.sub(place, 1, DIGITS) .. id
end

local function id_in_line(member, message_group)
  return string.sub(member, #message_group + DIGITS + 2)
end

-- The keys of one ordered group after another, which stand in KEYS behind `at`; nil for a group that is
-- not ordered.
local function lines_behind(at)
  return function(ordered)
    if not ordered then
      return nil
    end
    at = at + 2
    return { order = KEYS[at - 1], heads = KEYS[at] }
  end
end

-- places[i] is what `message_groups` keeps of ids[i]. Returns which may go out now, in order, and the
-- new heads: the caller pushes the ones and then calls set_heads with the others.
local function enter_lines(o, ids, places)
  local members, asked, out, heads = {}, {}, {}, {}
  for i, id in ipairs(ids) do
    if places[i] then
      members[#members + 1], members[#members + 2] = 0, line_member(places[i], id)
      asked[#asked + 1] = message_group_of(places[i])
    end
  end
  if #asked == 0 then
    return ids, heads
  end
  call('ZADD', o.order, unpack(members))
  local known, head_of, at = call('HMGET', o.heads, unpack(asked)), {}, 0
  for i, id in ipairs(ids) do
    local name = places[i] and message_group_of(places[i])
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

-- Messages with a message group get numbers in the order in which they came; what a call that was
-- cut has numbered keeps its number. Returns the position of each.
local function number_messages(meta, message_groups, ids, name_of)
  local kept, number, numbered, place_of = call('HMGET', message_groups, unpack(ids)), 0, {}, {}
  for i, id in ipairs(ids) do
    if kept[i] and message_group_of(kept[i]) == name_of[id] then
      place_of[id] = kept[i]
    else
      number = number + 1
    end
  end
  if number > 0 then
    number = call('HINCRBY', meta, 'order', number) - number
  end
  for _, id in ipairs(ids) do
    if not place_of[id] then
      number = number + 1
      place_of[id] = place_in_line(number, name_of[id])
      numbered[#numbered + 1], numbered[#numbered + 2] = id, place_of[id]
    end
  end
  if #numbered > 0 then
    call('HSET', message_groups, unpack(numbered))
  end
  return place_of
end

-- New messages of a group (an ordered one: o): who goes out now; of an ordered one, those that nobody
-- holds up.
local function push_new(o, ready, wake, ids, place_of)
  local out, heads = ids, {}
  if o then
    local places = {}
    for i, id in ipairs(ids) do
      places[i] = place_of[id] or false
    end
    out, heads = enter_lines(o, ids, places)
  end
  if #out > 0 then
    local length = call('RPUSH', ready, unpack(out))
    if length == #out then
      call('ZADD', wake, '0', '1')
    end
  end
  if #heads > 0 then
    set_heads(o, heads)
  end
end

-- The first of a message group that can go out, unless its head stays: others may stand in front of it,
-- which were committed with a transaction before it came and delivered after it. Whoever stands in front
-- and leaves (under the number of a redrive), or was over when a call was cut, is noted in `gone`.
local function next_in_line(o, name, head, leaving, gone)
  if head and not leaving[head] and owns(o.byte, nil, o, head) then
    return nil
  end
  local offset = 0
  while true do
    local page = call('ZRANGEBYLEX', o.order, '[' .. name .. '\0', '(' .. name .. '\1', 'LIMIT', offset, LOOK)
    for _, member in ipairs(page) do
      local id = id_in_line(member, name)
      if leaving[id] or not owns(o.byte, nil, o, id) then
        gone[#gone + 1] = member
      elseif not call('ZSCORE', o.inflight, id) then
        return id
      end
    end
    if #page < LOOK then
      return nil
    end
    offset = offset + LOOK
  end
end

-- Who leaves, the message groups that they leave, and their members of the order.
local function read_leaving(ids, places)
  local leaving, names, seen, gone = {}, {}, {}, {}
  for i, id in ipairs(ids) do
    leaving[id] = true
    local name = places[i] and message_group_of(places[i])
    gone[#gone + 1] = name and line_member(places[i], id) or nil
    if name and not seen[name] then
      names[#names + 1], seen[name] = name, true
    end
  end
  return leaving, names, gone
end

local function leave_lines(o, ids, places)
  local leaving, names, gone = read_leaving(ids, places)
  if #names == 0 then
    return
  end
  local known = call('HMGET', o.heads, unpack(names))
  local out, heads, closed = {}, {}, {}
  for i, name in ipairs(names) do
    local follower = next_in_line(o, name, known[i], leaving, gone)
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
  set_heads(o, heads)
  if #closed > 0 then
    call('HDEL', o.heads, unpack(closed))
  end
end

-- Messages without a body, which a call that was cut left in a list or in flight. Their message group
-- is forgotten too, maybe, so that only the heads tell what they hold up.
local function finish_orphans(o, orphans)
  if not o.used then
    return
  end
  local heads, name_of, places = o.ordered == '1' and call('HGETALL', o.heads) or {}, {}, {}
  for i = 1, #heads, 2 do
    name_of[heads[i + 1]] = heads[i]
  end
  for i, id in ipairs(orphans) do
    places[i] = name_of[id] and place_in_line(0, name_of[id]) or false
  end
  leave_lines(o, orphans, places)
  call('HDEL', o.message_groups, unpack(orphans))
end

-- A group is finished with these; `last` are those whose body nobody owes any more. `o.used` is nil
-- while no message of the partition has ever had a message group.
local function finish_lines(o, ids, last)
  if not o.used or #ids == 0 then
    return
  end
  if o.ordered == '1' then
    leave_lines(o, ids, call('HMGET', o.message_groups, unpack(ids)))
  end
  if #last > 0 then
    call('HDEL', o.message_groups, unpack(last))
  end
end

-- Messages that come back to a list: in an ordered group to the end of their message groups. Answers
-- whether the list was empty before.
local function push_in_line(o, list, ids)
  local out, heads = ids, {}
  if o.used and o.ordered == '1' then
    local places, named = call('HMGET', o.message_groups, unpack(ids)), 0
    for i = 1, #ids do
      named = named + (places[i] and 1 or 0)
    end
    local number = named > 0 and call('HINCRBY', o.meta, 'order', named) - named
    for i = 1, #ids do
      if places[i] then
        number = number + 1
        places[i] = place_in_line(number, message_group_of(places[i]))
      end
    end
    out, heads = enter_lines(o, ids, places)
  end
  if #out == 0 then
    return false
  end
  local length = call('RPUSH', list, unpack(out))
  set_heads(o, heads)
  return length == #out
end

-- Who of these holds up its message group (or has none), and who is not in line.
local function heads_and_others(o, ids)
  local places, heads, others = call('HMGET', o.message_groups, unpack(ids)), {}, {}
  for i, id in ipairs(ids) do
    local outside = places[i] and call('HGET', o.heads, message_group_of(places[i])) ~= id
    local kind = outside and others or heads
    kind[#kind + 1] = id
  end
  return heads, others
end
