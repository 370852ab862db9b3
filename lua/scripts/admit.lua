-- Admission: one rule, used by every script that can find something to give away.

local function grant(token, ms)
  local f = math.max(now(), (last() or 0) + 1)
  take(token, ms)
  record(f)
  return digits(f)
end

-- admit(ttl, asker) drops the waiters at the head whose patience has run out and grants the head that remains, if
-- it fits: for what is left of its patience, at most ttl. The asker is alive, whatever its patience says, and gets
-- ttl. Returns the grants {token, fence, ms} and whether the queue is 'empty', 'blocked' or has 'more' (a bound of
-- this call was reached, call again).
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
  return grants, 'blocked'
end

-- tell sends a grant to the client it is for. A user without rights to the channel must not turn a release that
-- worked into an error; the waiter finds out at its next beat.
local function tell(g)
  redis.pcall('PUBLISH', wake .. string.sub(g[1], 1, -24), g[1] .. ' ' .. g[2] .. ' ' .. digits(g[3]))
end

-- handover admits and tells. Returns the same as admit. Whatever is wrong with the queue, what was released before
-- stays released: then nobody is admitted.
local function handover(ttl)
  local ok, grants, state = pcall(admit, ttl)
  if not ok then return {}, 'blocked' end
  for _, g in ipairs(grants) do tell(g) end
  return grants, state
end

-- After how many ms asking can help a waiter with so many ahead: when a holding ends by itself and everybody ahead
-- has run out of patience. -1: nothing ends by itself.
local function helps(ahead)
  if vacant() then return 0 end
  local ms = soonest()
  if ms < 0 then return -1 end
  if ahead > 0 then
    for _, token in ipairs(call('ZRANGE', queue, 0, math.min(ahead, DEEP) - 1)) do
      ms = math.max(ms, patienceleft(token))
    end
  end
  return ms + 1
end

-- Keeps the two keys of the queue for one patience and a little more, never shorter than they have. Not at every
-- call: only once more than half of that little is used up.
local function keep(patience)
  if call('PTTL', queue) < patience + 400 then
    call('PEXPIRE', queue, patience + 900)
    call('PEXPIRE', alive, patience + 900)
  end
end
