-- Time and fences.

local DAY = 86400000 -- ms: how long the fence is kept after the last grant, or twice the lease if that is longer

local t = call('TIME')
local now = t[1] * 1000000 + t[2] -- µs; a double is exact below 2^53

-- A number in full: tostring and .. round to 14 digits, which would merge the places of one 100 µs.
local function digits(n) return string.format('%.0f', n) end

-- The last fence; nil if there is none.
local function last() return tonumber(call('GET', fence) or nil) end

-- Keeps the fence for as long as after a grant of so many ms. Whoever extends a holding does so first: a full server
-- refuses some writes, but only as a script's first. Returns 0 if there is no fence.
local function keepfence(ms)
  last() -- of another type?
  return call('PEXPIRE', fence, math.max(DAY, 2 * ms))
end

-- Sets and returns the next fence. It starts from the time, so it grows across lost data too; and from the last one,
-- so it grows when the clock steps back.
local function mark(ms)
  local px = math.max(DAY, 2 * ms)
  local f = digits(now)
  local had = call('SET', fence, f, 'PX', px, 'GET')
  local was = tonumber(had or 0)
  if not was then -- somebody else's text
    call('SET', fence, had)
    error('the fence is not a number')
  end
  if was >= now then
    f = digits(was + 1)
    call('SET', fence, f, 'PX', px)
  end
  return f
end
