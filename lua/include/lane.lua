-- How a call of publish begins and ends, whatever its messages are like. A lane is one producer's calls
-- into this partition, of which at most one is unresolved: the same number with the same checksum is that
-- call again, and is answered as it was. Both scripts have the same first keys and arguments.

-- The answer to a call that must not be executed, by the version of the partition's route; else nil.
-- The lane comes before the route: a repeated call must find its answer even if the route moved on.
local function answer_at_once(now, version)
  local lane, seq, in_front = KEYS[2], tonumber(ARGV[2]), ARGV[7]
  local last = call('GET', lane)
  if last then
    local last_seq = tonumber(string.match(last, '^%d+'))
    if last_seq >= seq then
      local last_sum, last_verdicts = string.match(last, '^%d+ (%S+) ?(%a*)$')
      if last_seq > seq or last_sum ~= ARGV[3] then
        return { 'LANE_CONFLICT' }
      end
      call('PEXPIRE', lane, ARGV[4]) -- a WAIT behind a call that wrote nothing confirms nothing
      return { 'DUPLICATE', now, last_verdicts }
    end
  end
  if in_front ~= '' and string.sub(call('GET', KEYS[#KEYS]) or '', 1, #in_front) ~= in_front then
    return { 'LANE_GAP' }
  end
  if (version or '0') ~= ARGV[1] then
    return { 'STALE_ROUTE', version or '0', call('HGET', KEYS[1], 'table') or '' }
  end
end

-- Notes in the lane what was accepted: then the call is done.
local function note_accepted(verdicts)
  call('SET', KEYS[2], ARGV[2] .. ' ' .. ARGV[3] .. (verdicts == '' and '' or ' ' .. verdicts), 'PX', ARGV[4])
end

-- The answer to a call that is done, and its history; noted: the ids, none if the blob holds them.
local function answer_accepted(clock, count, noted, verdicts)
  if count > 0 then
    append_history(clock, KEYS[1], KEYS[7], 'publish', '', ARGV[5], noted, '', ARGV[6])
  end
  return { 'OK', clock.now, verdicts }
end
