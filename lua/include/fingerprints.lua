-- Dead letters by the fingerprint of their last error: a lex set of fingerprint, zero byte, 16 digits of
-- when they died, zero byte and id. The cause of death ends with the fingerprint, so that a dead letter
-- that goes is found again. Sets, unlike counters, may be written twice.
local OF_RECORD = { -- such records have none of their own
  ['{"c":"expired"}'] = 'ccc518acea6c0152',
  ['{"c":"given_back"}'] = '042ae7e69d7418d9',
}

local function fingerprint_of(line)
  return OF_RECORD[line] or string.match(line, '"f":"(%x+)"')
end

local function by_fingerprint(keys, ids)
  local since, members = call('ZMSCORE', keys.dead, unpack(ids)), {}
  local deaths = call('HMGET', keys.deaths, unpack(ids))
  for i, id in ipairs(ids) do
    if since[i] then
      local fingerprint = string.match(deaths[i] or '', '^%d+ %S+ (%x+)$') or ''
      members[#members + 1] = fingerprint .. '\0' .. string.format('%016d', since[i]) .. '\0' .. id
    end
  end
  return members
end

-- After they are dead.
local function note_fingerprints(keys, ids)
  local rows = {}
  for i, member in ipairs(by_fingerprint(keys, ids)) do
    rows[2 * i - 1], rows[2 * i] = 0, member
  end
  if #rows > 0 then
    call('ZADD', keys.fingerprints, unpack(rows))
  end
end

-- Before they go.
local function forget_fingerprints(keys, ids)
  local members = by_fingerprint(keys, ids)
  if #members > 0 then
    call('ZREM', keys.fingerprints, unpack(members))
  end
end
