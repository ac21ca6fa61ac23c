-- Messages without options go to every group, or to the backlog while there is none. `FIRST_KEY` is where the
-- keys of the groups begin (ready, wake), `FIRST_GROUP` where their arguments do (name, byte).
local function note_who_owes(ids, groups, FIRST_GROUP)
  local bytes, owed = '', {}
  for group = 1, groups do
    bytes = bytes .. string.sub(ARGV[FIRST_GROUP + 2 * group - 1], 1, 1)
  end
  for i, id in ipairs(ids) do
    owed[2 * i - 1], owed[2 * i] = id, bytes
  end
  call('HSET', KEYS[6], unpack(owed))
end

local function fan_out(ids, groups, FIRST_KEY, FIRST_GROUP)
  if groups == 0 then
    call('RPUSH', KEYS[7], unpack(ids))
  elseif groups > 1 then
    note_who_owes(ids, groups, FIRST_GROUP)
  end
  for group = 1, groups do
    local at, name = FIRST_KEY + 2 * group - 2, ARGV[FIRST_GROUP + 2 * group - 2]
    if call('RPUSH', KEYS[at], unpack(ids)) == #ids then
      call('ZADD', KEYS[at + 1], '0', '1')
    end
    call('HINCRBY', KEYS[9], 'publish:' .. name, ARGV[9])
  end
end
