-- What a refused write would leave half done (a right that is missing, a key of another type): these writes are
-- all made, by a function that gets the values behind `undo`; or what was made of them is undone where it matters, and
-- the refusal is raised as it came. So a script that is refused again and again leases nothing and uses up no attempt,
-- and leaves nothing of what was published (docs/decisions/0033-refused-writes.md). What is undone first was written
-- first: then an undo that is refused, too, has undone all that there was.
local function all_or_undo(writes, undo, ...)
  local done, refusal = pcall(writes, ...)
  if not done then
    pcall(undo)
    error(refusal, 0)
  end
end
