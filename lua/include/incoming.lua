-- In the place of a large body, which is stored already, stand a zero byte and its checksum. What another call left
-- behind under the same id may be another body.

-- Runs what publishes, with what is stored of the large bodies of this call, `texts` by id: `unadopted`, the ids of
-- those that are no message's, of which there are `count`. What is still no message's at the end is dropped. `ids` are
-- those of the messages with large bodies, `texts` what stands for these.
local function with_incoming(keys, ids, texts, publish_these)
  local found, written = { texts = {}, unadopted = {}, count = 0, adopted = 0, fresh = 0 }, {}
  for i, id in ipairs(ids) do
    found.texts[id] = texts[i]
    if is_unadopted(keys, id) and not found.unadopted[id] then
      written[id] = call('HGET', keys.incoming, id) == string.sub(texts[i], 2)
      found.unadopted[id], found.count = true, found.count + 1
    end
  end

  -- Drops the body, and returns true, if it is not there, or, under an id of the caller's, not the one that this call
  -- wrote.
  function found.drop_other(id, digest)
    local other = not written[id] and (digest ~= '' or call('HEXISTS', keys.bodies, id) == 0)
    if other then
      call('HDEL', keys.bodies, id)
      call('HDEL', keys.big, id)
    end
    return other
  end

  -- The body is a message's from now on. Counts those, and the `fresh` ones, which no message had; returns its size.
  function found.adopt(id)
    found.adopted, found.fresh = found.adopted + 1, found.fresh + (found.unadopted[id] and 1 or 0)
    return call('HSTRLEN', keys.bodies, id)
  end

  local done, answer = pcall(publish_these, found)
  drop_unadopted(keys, ids)
  if not done then
    error(answer, 0)
  end
  return answer
end
