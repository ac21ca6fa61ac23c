-- The newest line of each message's failure record, also of one that was sent back from the dead
-- letters (it says so); '' for a message that has not failed. `origins` are the records of another
-- group: there a first attempt gets the reason why the message died.
local function newest_failures(failures, ids, entries, origins)
  local lines, some = {}, false
  local function read(key, chosen)
    local asked, at = {}, {}
    for i, id in ipairs(ids) do
      if chosen(entries[i]) then
        asked[#asked + 1], at[#at + 1] = id, i
      end
    end
    local records, before, line = #asked > 0 and call('HMGET', key, unpack(asked)) or {}, nil, nil
    for n, i in ipairs(at) do
      local record = records[n] or '\n'
      if record ~= before then -- what failed together is alike
        local only = string.find(record, '\n', 1, true) == #record -- one line, as most are
        before, line = record, not only and string.match(record, '^.*\n(.+)\n$') or string.sub(record, 1, -2)
      end
      lines[i], some = line, true
    end
  end
  local function is_first(entry)
    return entry == '-' or string.match(entry, '^%d+:1:')
  end
  for i = 1, #ids do
    lines[i] = ''
  end
  read(failures, function(entry)
    return entry ~= '-' and not (origins and is_first(entry))
  end)
  if origins then
    read(origins, is_first)
  end
  return some and lines or {}
end
