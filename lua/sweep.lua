local call = redis.call
--[[ sweep.lua: upkeep of a partition; forget what was kept for a time that is over

  The caller-given ids whose deduplication window is over, the transactions that were decided long
  enough ago, old broadcast messages, history beyond its limits, and what is kept for a replay, by time and
  bytes, and where the server's memory is nearly full. Large bodies that are no message's, since the script
  of their call could not run, are deleted and counted. Dead letters past the retention of their group
  are named, for the caller to purge.

  FLAGS  allow-oom
  KEYS   meta ids_key id_expiry closed events broadcast kept kept_bodies bodies big incoming counters, then
         config, dead and consumed of each group
  ARGV   limit
  REPLY  forgotten, milliseconds until the next is to be forgotten (0: some are now; '' for none), then
         the dead letters of each group that are to be purged
  COST   O(limit * log size) for each structure; 5 commands where nothing is kept, else up to 14, and
         3 a group; up to 64 where there is history to forget, and 8, 3 a group and 1 a message where
         bodies are kept; 5 for each large body that is no message's
]]
-- @include clock
-- @include logical
-- @include history
-- @include kept
-- @include nearly_full
-- @include unadopted

-- @bind keys

local clock = read_clock(meta)
local MOST_BYTES, PAGES, CAST_KEPT_MS = 524288, 16, 600000
local forgotten, next_at, reply = 0, math.huge, {}

-- What is over of a sorted set by time, where each is kept for `kept_ms`.
local function over(key, kept_ms, most)
  return call('ZRANGEBYSCORE', key, '-inf', clock.now - kept_ms, 'LIMIT', '0', most)
end

local function note_next(key, kept_ms)
  local first = call('ZRANGE', key, '0', '0', 'WITHSCORES')[2]
  next_at = math.min(next_at, first and first + kept_ms or math.huge)
end

local function forget_over(key, of)
  local found = over(key, 0, limit)
  if #found > 0 then
    if of then
      call('HDEL', of, unpack(found))
    end
    call('ZREM', key, unpack(found))
    forgotten = forgotten + #found
  end
  note_next(key, 0)
end

local FIRST_OF_GROUPS, OF_GROUP = 13, 3
local timed, consumed = { id_expiry, closed, incoming }, {}
for at = FIRST_OF_GROUPS, #KEYS, OF_GROUP do
  timed[#timed + 1], reply[#reply + 1], consumed[#consumed + 1] = KEYS[at + 1], {}, KEYS[at + 2]
end

local function look_at_groups()
  local each = math.ceil(math.min(limit, 5 * limit / #reply))
  for group = 1, #reply do
    local at = FIRST_OF_GROUPS + OF_GROUP * (group - 1)
    local kept_ms = tonumber(call('HGET', KEYS[at], 'dlq_retention_ms') or '')
    if kept_ms then
      reply[group] = over(KEYS[at + 1], kept_ms, each)
      if #reply[group] > 0 then
        next_at = clock.now -- until these are purged
      else
        note_next(KEYS[at + 1], kept_ms)
      end
    end
  end
end

-- All that is here: a call that is under way is not seen.
local function drop_incoming()
  local page = call('HSCAN', incoming, '0', 'COUNT', limit)[2]
  local ids = {}
  for i = 1, math.min(#page, 2 * limit), 2 do
    ids[#ids + 1] = page[i]
  end
  if #ids > 0 then
    local dropped = drop_unadopted(keys, ids)
    forgotten = forgotten + dropped
    next_at = call('EXISTS', incoming) > 0 and clock.now or next_at
    if dropped > 0 then
      call('HINCRBY', counters, 'unadopted', dropped)
    end
  end
end

if call('EXISTS', unpack(timed)) > 0 then
  forget_over(id_expiry, ids_key)
  forget_over(closed)
  drop_incoming()
  look_at_groups()
end

-- Bounded in bytes as well: the entries of large calls are read to be counted.
local function forget_history(kept_ms)
  local before, least, gone, first = kept_ms > 0 and clock.now - kept_ms or -1, clock.bytes - MOST_BYTES, DROPPED, nil
  for _ = 1, PAGES do
    if gone == DROPPED and clock.bytes >= least then
      gone, first = drop_oldest(clock, meta, events, before)
      forgotten = forgotten + gone
    end
  end
  if gone == DROPPED then
    next_at = clock.now -- there may be more
  elseif first and kept_ms > 0 then
    next_at = math.min(next_at, first + kept_ms)
  end
  call('HSET', meta, 'bytes', string.format('%d', clock.bytes))
end

-- What broadcast groups get is kept for ten minutes: segment by segment, as include/broadcast sums them, and the
-- rest of them when nothing was cast for so long.
local function forget_cast()
  local cast = call('HMGET', meta, 'cast_marks', 'cast_ms')
  local ms, seq, rest = string.match(cast[1] or '', '^(%d+)%-(%d+):%d+ ?(.*)$')
  local over_at = tonumber(ms or cast[2] or 0) + math.max(CAST_KEPT_MS, sane(clock.keep))
  if over_at > clock.now then
    next_at = math.min(next_at, over_at)
    return
  end
  if ms then
    forgotten = forgotten + call('XTRIM', broadcast, 'MINID', '=', ms .. '-' .. string.format('%d', seq + 1))
    call('HSET', meta, 'cast_marks', rest)
    next_at = clock.now
  else
    forgotten = forgotten + call('XTRIM', broadcast, 'MAXLEN', '=', '0')
    call('HSET', meta, 'cast_bytes', '0')
  end
end
if call('XLEN', broadcast) > 0 then
  forget_cast()
end

-- What is to go, oldest first: by time, by bytes, and any where the server is nearly full. No more than so
-- many bytes in a call.
local function too_much(keep_ms, most, each)
  local FREED = 16777216
  local gone = call('ZRANGEBYSCORE', kept, '-inf', clock.now - keep_ms, 'LIMIT', '0', each)
  local over_time, bytes, freed = #gone, sane(call('HGET', meta, 'kept_bytes')), 0
  if over_time < each and bytes > 0 then
    most = is_nearly_full() and -1 or most
    gone = bytes > most and call('ZRANGE', kept, '0', each - 1) or gone
  end
  for i, id in ipairs(gone) do
    if i > over_time and bytes - freed <= most or i > 1 and freed > FREED then
      return { unpack(gone, 1, i - 1) }
    end
    freed = freed + KEPT_OVERHEAD + call('HSTRLEN', kept_bodies, id)
  end
  return gone
end

-- Each group forgets what it consumed too long ago, and what is not there any more.
local function forget_consumed(keep_ms, gone, each)
  for _, key in ipairs(consumed) do
    local count = call('ZCOUNT', key, '-inf', clock.now - keep_ms)
    if count > 0 then
      forgotten = forgotten + call('ZREMRANGEBYRANK', key, '0', math.min(each, count) - 1)
    end
    if #gone > 0 then
      call('ZREM', key, unpack(gone))
    end
    if count > each then
      next_at = clock.now
    else
      note_next(key, keep_ms)
    end
  end
end

local function forget_kept(keep_ms, keep_bytes)
  local each = math.ceil(math.min(limit, 5 * limit / #consumed))
  local gone = too_much(keep_ms, keep_bytes, each)
  if #gone > 0 then
    drop_kept(keys, gone)
    forgotten = forgotten + #gone
    next_at = clock.now -- there may be more
  end
  if #consumed > 0 then
    forget_consumed(keep_ms, gone, each)
  end
  if call('EXISTS', kept) == 0 then
    call('HDEL', meta, 'kept_bytes')
  end
  note_next(kept, keep_ms)
end
local lasting = call('HMGET', meta, 'keep_ms', 'keep_bytes') -- 0: nothing is kept any more
if lasting[1] then
  forget_kept(sane(lasting[1]), sane(lasting[2]))
end

local history_ms = tonumber(call('HGET', meta, 'history_ms') or 0)
if history_ms > 0 or clock.bytes > clock.limit then
  forget_history(history_ms)
end
if next_at < math.huge then
  keep_time(clock, meta, true)
end
return { forgotten, next_at < math.huge and math.max(0, math.ceil(next_at - clock.now)) or '', unpack(reply) }
