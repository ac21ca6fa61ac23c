-- There is no dead-letter queue of a dead-letter queue: a group that consumes one (a view) drops what
-- it gives up from its own lists, and the dead letter stays where it is.
local function drop_given_up(policy, plan, deaths, attempts, failures)
  local ids = {}
  for i = 2, policy.view and #plan.dead or 0, 2 do
    ids[#ids + 1] = plan.dead[i]
  end
  if #ids > 0 then
    call('HDEL', failures, unpack(ids))
    call('HDEL', attempts, unpack(ids))
    call('HDEL', deaths, unpack(ids))
  end
end
