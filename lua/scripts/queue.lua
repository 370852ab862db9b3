-- The queue: what every script starts with, before the fragment that says who may hold (mutex.lua) and the verb.
--
-- KEYS[1] queue  zset   token -> ticket: the waiter's place, in µs of server time made strictly increasing
-- KEYS[2] alive  zset   token -> until when (µs of server time) this waiter keeps its place though it is silent
-- KEYS[3] fence  string the last fence; it outlives the lock by a day, so that lost data shows
-- ARGV[1] wake   the wake channels' prefix; the client's id completes it
--
-- Any script may run twice for one call, and nothing is rolled back when a later command fails. So each is idempotent
-- for its token, reads everything that can have the wrong type before it writes, and makes the write that a full
-- server refuses its first: once a script has written, Redis lets it finish.

local call = redis.call
local queue, alive, fence, wake = KEYS[1], KEYS[2], KEYS[3], ARGV[1]

local DAY = 86400000  -- ms: how long the fence outlives the last grant
local SWEEP = 1000    -- dead waiters dropped in one call
local BATCH = 128     -- waiters admitted in one call
local DEEP = 128      -- waiters looked at to say when asking can help
local NOBODY = 'nobody:resting' -- holds the lock while it rests; not a token, so nobody can release it

-- A number in full: tostring and .. round to 14 digits, which would merge the places of one 100 µs.
local function digits(n) return string.format('%.0f', n) end

local clock
local function now()
  if not clock then
    local t = call('TIME')
    clock = t[1] * 1000000 + t[2]
  end
  return clock
end

local known, lastfence = false, false
local function last()
  if not known then known, lastfence = true, tonumber(call('GET', fence) or nil) or false end
  return lastfence
end

local function record(f)
  call('SET', fence, digits(f), 'PX', DAY)
  known, lastfence = true, f
end

-- ms that a waiter's patience still lasts; 0 or less when it has run out.
local function patienceleft(token)
  return math.floor((tonumber(call('ZSCORE', alive, token) or 0) - now()) / 1000)
end

local function forget(token)
  call('ZREM', queue, token)
  call('ZREM', alive, token)
end
