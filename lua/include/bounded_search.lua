-- What one call of a repair looks through is bounded, in items of lists, which are read to their ends. A command
-- takes as long as COMMAND of them. What is too long for one search stays as it is until it is shorter.
local SEARCHED, COMMAND = 200000, 25
local spent, search = 0, 0

-- Calls `visit` with 1, 2 and so on up to `count`, while there is room for what each searches: these lists, by so
-- many commands. Returns the last.
local function while_bounded(lists, commands, count, visit)
  search = COMMAND * commands
  for _, list in ipairs(lists) do
    search = search + call('LLEN', list)
  end
  for n = 1, count do
    spent = spent + search
    if spent > SEARCHED then
      return n - 1
    end
    visit(n)
  end
  return count
end
