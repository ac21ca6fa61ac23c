-- Messages without options, whose bodies are stored, go to every group, or to the backlog while there is none; then
-- the call is done. `FIRST_KEY` is where the keys of the groups begin (ready, wake), `FIRST_GROUP` where their
-- arguments do (name, byte); `digests` are those of ids that the caller chose. `fanned` is how many lists have the
-- messages.
local fanned = 0

local function note_who_owes(ids, groups, FIRST_GROUP)
  local bytes, owed = '', {}
  for group = 1, groups do
    bytes = bytes .. string.sub(ARGV[FIRST_GROUP + 2 * group - 1], 1, 1)
  end
  for i, id in ipairs(ids) do
    owed[2 * i - 1], owed[2 * i] = id, bytes
  end
  call('HSET', KEYS[5], unpack(owed))
end

local function fan_out(ids, sizes, digests, groups, FIRST_KEY, FIRST_GROUP)
  if #sizes > 0 then
    call('HSET', KEYS[4], unpack(sizes))
  end
  if groups == 0 then
    call('RPUSH', KEYS[6], unpack(ids))
    fanned = 1
  elseif groups > 1 then
    note_who_owes(ids, groups, FIRST_GROUP)
  end
  for group = 1, groups do
    local at, name = FIRST_KEY + 2 * group - 2, ARGV[FIRST_GROUP + 2 * group - 2]
    local length = call('RPUSH', KEYS[at], unpack(ids))
    fanned = group
    if length == #ids then
      call('ZADD', KEYS[at + 1], '0', '1')
    end
    call('HINCRBY', KEYS[8], 'publish:' .. name, ARGV[9])
  end
  if digests then
    call('HSET', KEYS[9], unpack(digests))
  end
  note_accepted('')
end
