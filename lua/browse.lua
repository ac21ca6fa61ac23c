local call = redis.call
--[[ browse.lua: read only; one page of the messages that stand in one list or sorted set

  A page begins behind a message, which may be gone by now: in a list those before it are gone, too.

  FLAGS  no-writes
  KEYS   meta location attempts failures heads bodies big
  ARGV   structure ('list' | 'zset' | 'order' | 'halves') position (of the last one of the page before: its
         index or score; '' for the first page) after (the member itself; in `halves`, the transaction and a
         blank for the first page) count byte_limit
  REPLY  now_ms, more ('1' if there is more), then of each message member, score (its index in a list), id, entry,
         newest line of its failure record, who is out of its message group, and body
  COST   O(count + log size), in a list O(position); 6 commands, 1 for each halving of those of one millisecond, 1 a
         message group
]]
-- @include clock
-- @include logical
-- @include texts
-- @include behind
-- @include ownership
-- @include last_failure
-- @include message_group_order

-- @bind
local SMALL, LOOKED_AT = 2048, 100000 -- as for a lease; how far to look for the end of the page before

local clock = read_clock(meta)
local members, scores, ids, out, number = {}, {}, {}, {}, tonumber(position)

-- Where the next page begins: behind the last one, or where those before it were.
local function next_in_list()
  local at = number and call('LPOS', location, after, 'MAXLEN', LOOKED_AT)
  return at and at + 1 or number and number >= LOOKED_AT and number + 1 or 0
end

local read = {}
function read.list()
  local first = next_in_list()
  members = call('LRANGE', location, first, first + count - 1)
  for i, id in ipairs(members) do
    ids[i], scores[i] = id, first + i - 1
  end
end
function read.zset()
  local first = position == '' and 0 or rank_behind(location, position, after)
  local page = call('ZRANGE', location, first, first + count - 1, 'WITHSCORES')
  for i = 1, #page, 2 do
    members[#members + 1], scores[#scores + 1] = page[i], page[i + 1]
    ids[#ids + 1] = string.match(page[i], '^%S+')
  end
end
function read.order()
  members = call('ZRANGEBYLEX', location, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, count)
  local head_of = {}
  for i, member in ipairs(members) do
    local name = string.match(member, '^%Z+')
    head_of[name] = head_of[name] or call('HGET', heads, name) or ''
    ids[i], out[i], scores[i] = id_of_member(member, name), head_of[name], i
  end
end
function read.halves()
  local last = '(' .. string.match(after, '^%S+') .. '!'
  members = call('ZRANGEBYLEX', location, '(' .. after, last, 'LIMIT', 0, count)
  for i, member in ipairs(members) do
    ids[i], scores[i] = string.match(member, '^%S+ %S+ (%S+)'), i
  end
end
read[structure]()

local entries, sizes, looked, bytes = {}, {}, 0, 0
if #ids > 0 then
  entries, sizes = call('HMGET', attempts, unpack(ids)), call('HMGET', big, unpack(ids))
end
for i = 1, #ids do
  bytes = bytes + (tonumber(sizes[i]) or SMALL)
  if bytes > byte_limit and i > 1 then
    break
  end
  looked, entries[i] = i, entries[i] or '-'
end
local wanted = { unpack(ids, 1, looked) }
local lines, stored = newest_failures(failures, wanted, entries), texts(bodies, wanted)
local reply = { clock.now, (looked < #ids or #ids == count) and '1' or '0' }
for i = 1, looked do
  reply[i + 2] = { members[i], scores[i], ids[i], entries[i], lines[i] or '', out[i] or '', stored[i] }
end
return reply
