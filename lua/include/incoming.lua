-- In the place of a large body, which is stored already, stand a zero byte and its checksum. What another call left
-- behind under the same id may be another body.

-- Runs what publishes, with what is stored of the large bodies of this call and is no message's: `sizes` of those that
-- are what this call wrote, and `unadopted`, the ids of all, of which there are `count`. What is still no message's at
-- the end is dropped. `ids` are those of the messages with large bodies, `texts` what stands for these.
local function with_incoming(keys, ids, texts, publish_these)
  local found = { texts = {}, sizes = {}, unadopted = {}, count = 0 }
  for i, id in ipairs(ids) do
    found.texts[id] = texts[i]
    if is_unadopted(keys, id) and not found.unadopted[id] then
      local ours = call('HGET', keys.incoming, id) == string.sub(texts[i], 2)
      found.sizes[id] = ours and call('HSTRLEN', keys.bodies, id) or nil
      found.unadopted[id], found.count = true, found.count + 1
    end
  end
  local done, answer = pcall(publish_these, found)
  drop_unadopted(keys, ids)
  if not done then
    error(answer, 0)
  end
  return answer
end
