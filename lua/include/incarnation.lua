-- Which life of the server's data this is: another one since each start and each promotion of a server, so that
-- what was written under an older one may have been lost. Tests link another one in its place.
local function incarnation()
  return string.match(call('INFO', 'replication'), 'master_replid:(%x+)')
end
