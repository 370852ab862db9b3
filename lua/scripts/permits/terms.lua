-- What the token of a request for permits says, and how long the keys of holders last.

local used -- permits that are held, after count()

local function weight_of(token) return tonumber(string.sub(token, -42, -37), 36) or 0 end

-- keep has both keys last for another ms at least, and equally long. Its first write takes no memory. Redis rounds down what
-- is left of a key; without the 1, a thousand calls could take a second from a lease.
local function keep(ms)
  call('ZREM', permits, '')
  local one, other = call('PTTL', permits), call('PTTL', holders)
  if math.min(one, other) >= ms then return end
  ms = math.max(ms, one + 1, other + 1)
  call('PEXPIRE', permits, ms)
  call('PEXPIRE', holders, ms)
end
