-- The lines of a keyed semaphore. The key with the lowest level is next, or among equals the one with the earliest
-- turn. Within a key, first come, first served.
--
-- lines    zset  "<key> <ticket, 16 digits> <token>" of each waiter, and one record of each key with waiters before them:
--                "<key>  <turn, 16 digits> <served>". All have the same score, so that they are in the order of their
--                texts. Keys have no byte below the space
-- turns    zset  "<turn, 16 digits> <key>" of each key with waiters -> its level, or AT_LIMIT
-- holders  hash  also =<key> -> "<held> <fence>" of each key with holders; the fence of its latest grant
--
-- held    permits that holders of the key have
-- level   held divided by the share of the first waiter, rounded down
-- turn    when the line begins, the ticket of its first waiter; or the fence of the key's latest grant, if that is later
--         and the key holds anything
-- served  permits that were granted in this turn. When they reach the share, the next turn begins with that fence
--
-- AT_LIMIT is above all levels. A key gets it when it would be next but its first waiter has no room below the key limit.
-- The key loses it when a holder of the key ends or another waiter becomes the first. fifo/line.lua has the contract.

local GRANTS, DROPS, ENDS = 32, 50, 200
local AT_LIMIT, MARKS = 4294967296, 100
local marked = 0 -- keys that this script has found at their limits
local next_up -- what first() has found

local known, known_key
local function key_of(token)
  if token ~= known then known, known_key = token, key_in(token) end
  return known_key
end

local function has_room(token, held)
  local limit = limit_of(token)
  return limit == 0 or held + weight_of(token) <= limit
end

-- padded writes a ticket or a fence so that texts have the order of numbers.
local function padded(n)
  local text = text_of(tonumber(n))
  return string.rep('0', 16 - #text) .. text
end

local function text_in_line(key, ticket, token) return key .. ' ' .. padded(ticket) .. ' ' .. token end

-- line_of returns the record of a key, its first waiter and the next one, as in lines; nil without a line.
local function line_of(key) return unpack(call('ZRANGEBYLEX', lines, '[' .. key .. ' ', '(' .. key .. '!', 'LIMIT', 0, 3)) end

local function ticket_in(text, key) return tonumber(string.sub(text, #key + 2, #key + 17)) end

local function token_in(text, key) return string.sub(text, #key + 19) end

-- held_of returns how many permits the key's holders have, and the fence of its latest grant if they hold any.
local function held_of(key)
  local held, fence = string.match(call('HGET', holders, '=' .. key) or '0 0', '^(%d+) (%d+)$')
  return tonumber(held), fence
end

local function key_fits(token, less) return has_room(token, held_of(key_of(token)) - less) end

-- settle gives a key its level, or removes its turn if it has no waiters.
local function settle(key, held)
  local record, head = line_of(key)
  if not record then return end
  local turn = string.sub(record, #key + 3, #key + 18) .. ' ' .. key
  if head then
    call('ZADD', turns, 'XX', math.floor(held / share_of(token_in(head, key))), turn)
  else
    call('ZREM', lines, record)
    call('ZREM', turns, turn)
  end
end

local function first()
  while marked < MARKS do
    local turn, level = unpack(call('ZRANGE', turns, 0, 0, 'WITHSCORES'))
    if not turn then return nil, 'empty' end
    if tonumber(level) == AT_LIMIT then return nil, 'blocked' end
    local key = string.sub(turn, 18)
    local record, head, following = line_of(key)
    local token = token_in(head, key)
    level = tonumber(level)
    local held = share_of(token) == 1 and level or held_of(key)
    if has_room(token, held) then
      next_up = { token = token, key = key, record = record, head = head, following = following, held = held }
      return token, level
    end
    call('ZADD', turns, AT_LIMIT, turn)
    marked = marked + 1
  end
  return nil, 'more'
end

local function behind(token, state)
  local key = key_of(token)
  local held = held_of(key)
  if state ~= 'empty' and line_of(key) then return 'turn' end
  if not has_room(token, held) then return 'key' end
  if state ~= 'empty' then
    local head, level = first()
    if state == 'more' or level == 'more' or head and level <= math.floor(held / share_of(token)) then return 'turn' end
  end
  next_up = { token = token, held = held }
end

-- The records of keys' holders last equally long.
local function lines_last(ms)
  call('PEXPIRE', lines, ms)
  call('PEXPIRE', turns, ms)
  keep(ms)
end

local function joined(token, ticket, was)
  local key = key_of(token)
  local mine, record, head = text_in_line(key, ticket, token), line_of(key)
  if not record then
    local held, fence = held_of(key)
    local turn = padded(held > 0 and math.max(ticket, tonumber(fence)) or ticket)
    call('ZADD', lines, 0, key .. '  ' .. turn .. ' 0', 0, mine)
    call('ZADD', turns, math.floor(held / share_of(token)), turn .. ' ' .. key)
  elseif was ~= ticket then
    call('ZADD', lines, 0, mine)
    if was then call('ZREM', lines, text_in_line(key, was, token)) end
    if ticket <= ticket_in(head, key) then settle(key, (held_of(key))) end
  end
  if used == 0 then call('HSET', holders, 'used', 0) end
end

-- pass_turn removes from a line its first waiter, which was granted the lock.
local function pass_turn(up)
  local key, turn, served = up.key, string.match(up.record, '(%d+) (%d+)$')
  local was = turn .. ' ' .. key
  if up.following then
    served = served + weight_of(up.token)
    if served >= share_of(up.token) then turn, served = padded(up.fence), 0 end
    call('ZADD', lines, 0, key .. '  ' .. turn .. ' ' .. served)
    call('ZADD', turns, math.floor(up.held / share_of(token_in(up.following, key))), turn .. ' ' .. key)
  end
  call('ZREM', lines, up.head, up.record)
  if not up.following or turn .. ' ' .. key ~= was then call('ZREM', turns, was) end
end

local function left(...)
  local tokens, up = { ... }, next_up
  next_up = nil
  if up and up.fence and up.token == tokens[1] then return pass_turn(up) end
  local gone, keys = {}, {}
  for i, ticket in ipairs(call('ZMSCORE', queue, unpack(tokens))) do
    if ticket then
      local key = key_of(tokens[i])
      gone[#gone + 1], keys[key] = text_in_line(key, ticket, tokens[i]), true
    end
  end
  if #gone > 0 then call('ZREM', lines, unpack(gone)) end
  for key in pairs(keys) do settle(key, (held_of(key))) end
end

local function granted(token, fence)
  local key, up = key_of(token), next_up and next_up.token == token and next_up
  local held = (up and up.held or held_of(key)) + weight_of(token)
  if up then up.held, up.fence = held, fence end
  return '=' .. key, held .. ' ' .. fence
end

-- The records of holders come first, so that a broken line does not undo a release.
local function ended(tokens)
  local lost = {}
  for _, token in ipairs(tokens) do
    local key = key_of(token)
    lost[key] = (lost[key] or 0) + weight_of(token)
  end
  for key, weight in pairs(lost) do
    local held, fence = held_of(key)
    held = math.max(held - weight, 0)
    lost[key] = held
    if held > 0 then call('HSET', holders, '=' .. key, held .. ' ' .. fence) else call('HDEL', holders, '=' .. key) end
  end
  for key, held in pairs(lost) do pcall(settle, key, held) end
end

-- Each record is in lines and in turns. The permits held by keys are in holders; without them, levels are wrong.
local function broken(waiting, record)
  return call('ZCARD', lines) ~= waiting + call('ZCARD', turns) or waiting > 0 and not record
end

local function forget() call('UNLINK', lines, turns) end

local function position(token, ticket)
  local key = key_of(token)
  local to = ticket and '[' .. text_in_line(key, ticket, token) or '(' .. key .. '!'
  return math.max(call('ZLEXCOUNT', lines, '[' .. key .. ' ', to) - (ticket and 1 or 0), 1)
end

local function list_keys(limit)
  local over, with_room, without = {}, {}, {}
  for _, token in ipairs(call('ZRANGEBYSCORE', permits, '-inf', now_text, 'LIMIT', 0, ENDS)) do
    over[key_of(token)] = (over[key_of(token)] or 0) + weight_of(token)
  end
  for _, turn in ipairs(limit > 0 and call('ZRANGE', turns, 0, limit - 1) or {}) do
    local key = string.sub(turn, 18)
    local _, head = line_of(key)
    if head then -- else a part was lost
      local token, held = token_in(head, key), held_of(key) - (over[key] or 0)
      local room, waiting = has_room(token, held), call('ZLEXCOUNT', lines, '[' .. key .. ' ', '(' .. key .. '!') - 1
      local list = room and with_room or without
      list[#list + 1] = { key, held, waiting, limit_of(token), share_of(token), ticket_in(head, key), room and 0 or 1 }
    end
  end
  for _, key in ipairs(without) do with_room[#with_room + 1] = key end
  return with_room
end
