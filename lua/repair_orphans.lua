local call = redis.call
--[[ repair_orphans.lua: what a partition keeps of messages that are not there goes

  Like repair_places.lua, for what no group owns: each is looked at again.

    bodies     who owes a message, its size, its message group and keys, where its body is not stored
    keys       (members of the index) what leads to a message that has the key stays, or comes back
    memory     when an id is to be forgotten that is not remembered
    scheduled  (members) what is to be delivered, and has no body
    backlog    what waits for a group, and has no body
    half       (pairs of id and member) a half that its transaction does not list is listed again
    halves     (pairs of id and member) what a transaction lists, and is not a half of it

  FLAGS  allow-oom
  KEYS   meta bodies pending big message_groups ids_key id_expiry scheduled backlog halves half_of keyed
         message_keys
  ARGV   what, then ids, members or pairs
  REPLY  how many of them were looked at (the caller sends the others again), those that were tidied
  COST   O(messages * log of the set; of the backlog, its length); 9 commands for each
]]
-- @include message_keys
-- @include bounded_search

-- @bind
local STRIDE = (what == 'half' or what == 'halves') and 2 or 1

local function is_stored(id)
  return call('HEXISTS', bodies, id) == 1
end

local tidy = {}

function tidy.bodies(id)
  if is_stored(id) then
    return 0
  end
  local carries = call('HEXISTS', keyed, id)
  forget_keys(keyed, message_keys, { id })
  return carries + call('HDEL', pending, id) + call('HDEL', big, id) + call('HDEL', message_groups, id)
end

function tidy.keys(member)
  local key, id = string.match(member, '^(%Z+)%z(.+)$')
  local carried = id and call('HGET', keyed, id)
  if carried and is_stored(id) and string.find(' ' .. carried .. ' ', ' ' .. key .. ' ', 1, true) then
    return call('ZADD', message_keys, 0, member)
  end
  return call('ZREM', message_keys, member)
end

function tidy.memory(id)
  return call('HEXISTS', ids_key, id) == 1 and 0 or call('ZREM', id_expiry, id)
end

function tidy.scheduled(member)
  return is_stored(string.match(member, '^%S+')) and 0 or call('ZREM', scheduled, member)
end

function tidy.backlog(id)
  return is_stored(id) and 0 or call('LREM', backlog, 0, id)
end

function tidy.half(id, member)
  return call('HGET', half_of, id) == member and call('ZADD', halves, 0, member) or 0
end

function tidy.halves(id, member)
  return call('HGET', half_of, id) == member and 0 or call('ZREM', halves, member)
end

local tidied = {}
local lists, count = what == 'backlog' and { backlog } or {}, (#ARGV - 1) / STRIDE
local looked = while_bounded(lists, 12, count, function(n)
  local at = 2 + STRIDE * (n - 1)
  if tidy[what](ARGV[at], ARGV[at + 1]) > 0 then
    tidied[#tidied + 1] = ARGV[at]
  end
end)
return { looked, tidied }
