-- Not a function, which would take time at each call: messages without options are fanned out, or what was written of
-- them before a write was refused is undone, as in include/undo. `digests` are nil where the client made the ids.
local done, refusal = pcall(fan_out, ids, sizes, digests, groups, FIRST_KEY, FIRST_GROUP)
if not done then
  pcall(function()
    for _, key in ipairs({ KEYS[3], KEYS[4], KEYS[5], digests and KEYS[9] }) do
      call('HDEL', key, unpack(ids))
    end
    for list = 1, fanned do
      call('LTRIM', groups == 0 and KEYS[6] or KEYS[FIRST_KEY + 2 * list - 2], '0', -1 - #ids)
    end
    call('HDEL', KEYS[1], '?') -- BEGUN of include/dedup
  end)
  error(refusal, 0)
end
