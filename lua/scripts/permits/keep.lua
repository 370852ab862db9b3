-- How long the keys of holders of permits last.

local used -- permits that are held, after count()

-- keep makes both keys last for at least ms from now, and equally long. Its first write takes no memory. Redis rounds
-- TTLs down. Without the 1, a thousand calls could shorten a lease by a second.
local function keep(ms)
  call('ZREM', permits, '')
  local one, other = call('PTTL', permits), call('PTTL', holders)
  if math.min(one, other) >= ms then return end
  ms = math.max(ms, one + 1, other + 1)
  call('PEXPIRE', permits, ms)
  call('PEXPIRE', holders, ms)
end
