-- The digest of an id that the caller chose is marked while not all of its message is written. A call
-- whose ids are all new keeps them under this name in `meta` instead.
local BEGUN = '?'
