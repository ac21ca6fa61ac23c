local call = redis.call
--[[ publish.lua: nothing -> ready (of every group of the topic)

  Bare messages, as most are: under ids that the client made, at once, all for every group. Whatever
  else a message can have goes through publish_with_options.lua, which keeps the same promises.

  Publishing is repeatable (include/lane.lua). The client fans out: it passes the groups of the route
  it knows, and a changed route writes nothing. While a topic has no group its messages wait in the
  backlog, which the first group takes. A call that would store more messages than the topic may
  hold stores none.

  A producer may send a call before the one in front of it, on another lane or on the same, is
  answered. It says what that lane will hold then, up to the verdicts; until it does, the call writes
  nothing, so that nothing overtakes a call that was refused.

  FLAGS  none
  KEYS   meta lane bodies big pending backlog events counters, then ready and wake of each group,
         then the lane of the call in front, if any
  ARGV   route_version seq checksum lane_ttl_ms worker blob (the ids, packed, where they are many)
         in_front ('' for none) groups messages, then name and byte of each group, then id and body of
         each message
  REPLY  OK | DUPLICATE, now_ms, verdicts ('' : all accepted)
         or STALE_ROUTE, version, table or FULL, stored, limit
         or LANE_CONFLICT or LANE_GAP: the call in front was not done
  COST   O(messages * groups); 8 commands and 3 a group, 1 behind a call that is not answered
]]
-- @include clock
-- @include logical
-- @include history
-- @include lane
-- @include fan_out

local meta, bodies = KEYS[1], KEYS[3]
local blob, groups, messages = ARGV[6], tonumber(ARGV[8]), tonumber(ARGV[9])
local FIRST_GROUP, FIRST_KEY, BIG = 10, 9, 8192
local FIRST_MESSAGE = FIRST_GROUP + 2 * groups

local clock, version, most = read_clock(meta, nil, true, 'route', 'most')
local answer, limit = answer_at_once(clock.now, version), tonumber(most or 0)
if answer then
  return answer
end
local held = limit > 0 and call('HLEN', bodies) or 0
if limit > 0 and held + messages > limit then
  return { 'FULL', held, limit }
end
local ids, sizes, digests = {}, {}, nil
for i = 1, messages do
  local at = FIRST_MESSAGE + 2 * (i - 1)
  ids[i] = ARGV[at]
  if #ARGV[at + 1] > BIG then
    sizes[#sizes + 1], sizes[#sizes + 2] = ARGV[at], #ARGV[at + 1]
  end
end

if messages > 0 then
  call('HSET', bodies, unpack(ARGV, FIRST_MESSAGE, FIRST_MESSAGE + 2 * messages - 1))
-- @include fan_out_or_undo
else
  note_accepted('')
end
return answer_accepted(clock, messages, blob == '' and ids or {}, '')
