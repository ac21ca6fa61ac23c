-- Which life of the server's data this is: another one since each start and each promotion of a server, so that
-- what was written under an older one may have been lost. Tests link another one in its place.
local function incarnation()
  local text = call('INFO', 'replication')
  local _, at = string.find(text, 'master_replid:', 1, true)
  return at and string.match(text, '^%x+', at + 1)
end
