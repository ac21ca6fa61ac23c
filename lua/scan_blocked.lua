local call = redis.call
--[[ scan_blocked.lua: read only; one page of the line of an ordered group, without who is out

  FLAGS  no-writes
  KEYS   meta order heads failures
  ARGV   after ('' for the beginning, else the last member of the page before) count
  REPLY  now_ms, last member looked at ('' at the end), members, ids, failure records ('' for none)
  COST   O(log line + count); 4 commands and 1 a message group
]]
-- @include clock
-- @include logical
-- @include ownership
-- @include message_group_order

-- @bind

local clock = read_clock(meta)
local page = call('ZRANGEBYLEX', order, after == '' and '-' or '(' .. after, '+', 'LIMIT', 0, count)
local members, ids, head_of = {}, {}, {}
for _, member in ipairs(page) do
  local name = string.match(member, '^%Z+')
  local id = id_of_member(member, name)
  if head_of[name] == nil then
    head_of[name] = call('HGET', heads, name)
  end
  if head_of[name] ~= id then
    members[#members + 1], ids[#ids + 1] = member, id
  end
end
local records = #ids > 0 and call('HMGET', failures, unpack(ids)) or {}
for i = 1, #ids do
  records[i] = records[i] or ''
end
return { clock.now, #page == count and page[#page] or '', members, ids, records }
