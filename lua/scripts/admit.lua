-- Admission: one rule, used by every script that can find something to give away.

local SWEEP = 1000 -- dead waiters dropped in one call
local BATCH = 128  -- waiters admitted in one call

-- A token's name in alive: the end of it. 84 random bits are enough to tell the waiters of a lock apart, and small.
local function short(token) return string.sub(token, -14) end

-- Until when (µs) a waiter keeps its place; negative: until when it is refused; 0: nothing is known.
local function lasts(token) return tonumber(call('ZSCORE', alive, short(token)) or 0) end

-- ms that a waiter's patience still lasts; 0 or less when it has run out.
local function patienceleft(token) return math.floor((lasts(token) - now) / 1000) end

-- A waiter is heard of: from now on it keeps its place for one patience.
local function heard(token, patience) call('ZADD', alive, digits(now + patience * 1000), short(token)) end

local function forget(token)
  call('ZREM', queue, token)
  call('ZREM', alive, short(token))
  unwant(token)
end

-- admit(ttl, asker) drops the waiters at the head whose patience has run out and grants the head that remains, if
-- it fits, for what is left of its patience, at most ttl; then the next head. The asker is alive, whatever its patience
-- says, and gets ttl. Returns the grants {token, fence, ms} and whether the queue is 'empty', 'blocked' or has 'more'
-- (a bound of this call was reached, call again).
local function admit(ttl, asker)
  local grants, dropped = {}, 0
  while vacant() do
    local head = call('ZRANGE', queue, 0, 0)[1]
    if not head then return grants, 'empty' end
    if dropped == SWEEP or #grants == BATCH then return grants, 'more' end
    local left = head == asker and ttl or patienceleft(head)
    if left <= 0 then
      forget(head)
      dropped = dropped + 1
    elseif fits(head) then
      local ms = math.min(left, ttl)
      grants[#grants + 1] = { head, grant(head, ms), ms }
      forget(head)
    else
      break
    end
  end
  return grants, unswept() and call('EXISTS', queue) == 1 and 'more' or 'blocked'
end

-- tell sends a grant to the client it is for. A user without rights to the channel must not turn a release that
-- worked into an error; the waiter finds out at its next beat.
local function tell(g)
  local channel = string.match(queue, '^(.-):{') .. ':wake:' .. string.sub(g[1], 1, -24)
  redis.pcall('PUBLISH', channel, g[1] .. ' ' .. g[2] .. ' ' .. digits(g[3]))
end

-- handover admits and tells. Returns the same as admit. Whatever is wrong with the queue, what was released before
-- stays released: then nobody is admitted.
local function handover(ttl)
  local ok, grants, state = pcall(admit, ttl)
  if not ok then return {}, 'blocked' end
  for _, g in ipairs(grants) do tell(g) end
  if state == 'empty' then tidy() end
  return grants, state
end
