-- The globals that every supported server gives a script.
std = "none"
read_globals = {
  "KEYS", "ARGV", "redis",
  "error", "ipairs", "math", "next", "pairs", "pcall", "select", "string", "table", "tonumber",
  "tostring", "type", "unpack",
}
max_line_length = 120
-- The main chunk of a script counts as one function: it checks, then writes, a whole batch.
max_cyclomatic_complexity = 15
