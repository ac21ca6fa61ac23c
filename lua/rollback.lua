local call = redis.call
--[[ rollback.lua: half -> gone

  The transaction is rolled back (its record in the namespace's slot says so), and here its halves are
  removed, with their bodies and the ids that the caller chose: the same ids may be published again.
  A batch per call.

  FLAGS  allow-oom
  KEYS   meta halves half_of closed bodies big pending ids_key id_expiry events counters keyed message_keys
  ARGV   transaction worker limit
  REPLY  halves removed, halves left
  COST   O(limit * log halves); 17 commands, 3 more where some have message keys
]]
-- @include clock
-- @include logical
-- @include history
-- @include halves
-- @include message_keys
-- @include within_bytes
-- @include forget

-- @bind keys

local clock = read_clock(meta)
local members, ids = halves_of(halves, transaction, limit), {}
close_transaction(closed, clock.now, transaction)
for i, member in ipairs(members) do
  ids[i] = read_half(member).id
end
local within = within_bytes(keys, ids)
members, ids = { unpack(members, 1, within) }, { unpack(ids, 1, within) }
if #ids > 0 then
  forget(keys, '', clock.now, ids)
  call('HDEL', half_of, unpack(ids))
  call('ZREM', halves, unpack(members))
  free_ids(keys, ids)
  call('HINCRBY', counters, 'rollback', #ids)
  append_history(clock, meta, events, 'rollback', '', worker, ids, '', '')
end
return { #ids, #halves_of(halves, transaction, 1) }
