-- What a hash holds for each id; '' where it holds nothing, since a reply ends at its first nil.
local function texts(key, ids)
  local found = #ids > 0 and call('HMGET', key, unpack(ids)) or {}
  for i = 1, #ids do
    found[i] = found[i] or ''
  end
  return found
end
