-- A group that had all of its max_inflight in flight is woken by the call that ends a lease of it.
local function wake_if_below_limit(most, inflight, wake, ended)
  local held = most and call('ZCARD', inflight)
  if held and held < most and held + ended >= most then
    call('ZADD', wake, '0', '1')
  end
end
