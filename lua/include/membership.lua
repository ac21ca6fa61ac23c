-- A group that left a topic and joined again has another byte. What was sent to end its first membership, and comes
-- late, does nothing in this one (docs/decisions/0064-what-ends-a-membership.md).
local function joined_again(byte, membership)
  return membership ~= '' and byte and byte ~= '' and byte ~= membership
end

local function scores_under(membership, byte, key, members)
  return joined_again(byte, membership) and {} or call('ZMSCORE', key, unpack(members))
end
