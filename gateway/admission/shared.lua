-- The limits of one key, counted where all gateways can see them; the same window as limits.py. Each call is atomic.
--
-- KEYS  1 hash: totals, grains, tickets, budgets   2 zset: grains in the window   3 zset: tickets by the end of their lease
-- ARGV  enter  ticket tokens lease_ms day month rpm tpm in_flight per_day per_month   (a limit of -1: none)
--       settle ticket used again day month                 (used -1: nothing was used; again 1: perhaps told already)
--       renew  lease_ms ticket...
-- Reply to enter: {verdict, wait_ms, requests, tokens, of the day, of the month}: verdict ok, or the limit that is used up;
-- the numbers are what is used of each limit.
local state, window, leases = KEYS[1], KEYS[2], KEYS[3]
local WINDOW, GRAIN = 60000, 100

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function number(field)
  return tonumber(redis.call('HGET', state, field) or 0)
end

-- Adds to the grain of now. What has been counted leaves the window with the end of its grain: late, never early.
local function count(requests, tokens)
  local grain = math.floor(now / GRAIN)
  redis.call('ZADD', window, grain, grain)
  redis.call('HINCRBY', state, 'r' .. grain, requests)
  redis.call('HINCRBY', state, 't' .. grain, tokens)
  redis.call('HINCRBY', state, 'R', requests)
  redis.call('HINCRBY', state, 'T', tokens)
  return grain
end

-- Gateways' clocks may differ by a little around midnight: time never goes back.
local function turn(day, month)
  if day > number('D') then redis.call('HSET', state, 'D', day, 'Du', 0) end
  if month > number('M') then redis.call('HSET', state, 'M', month, 'Mu', 0) end
  return number('D'), number('M')
end

local function spend(tokens, day, month)
  if day == number('D') then redis.call('HINCRBY', state, 'Du', tokens) end
  if month == number('M') then redis.call('HINCRBY', state, 'Mu', tokens) end
end

local function ticket_of(id)
  local written = redis.call('HGET', state, 'x' .. id)
  if not written then return nil end
  redis.call('HDEL', state, 'x' .. id)
  redis.call('ZREM', leases, id)
  local grain, tokens, day, month = string.match(written, '(%d+) (%d+) (%d+) (%d+)')
  return tonumber(grain), tonumber(tokens), tonumber(day), tonumber(month)
end

-- Whose gateway died gives its slot and its budget back; the minute's tokens leave the window by themselves.
local function bury()
  for _, id in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, 500)) do
    local grain, tokens, day, month = ticket_of(id)
    if grain then spend(-tokens, day, month) else redis.call('ZREM', leases, id) end
  end
end

local function forget()
  local last = math.floor((now - WINDOW) / GRAIN) - 1
  for _, grain in ipairs(redis.call('ZRANGEBYSCORE', window, '-inf', last)) do
    redis.call('HINCRBY', state, 'R', -number('r' .. grain))
    redis.call('HINCRBY', state, 'T', -number('t' .. grain))
    redis.call('HDEL', state, 'r' .. grain, 't' .. grain)
    redis.call('ZREM', window, grain)
  end
end

local function keep()
  for _, key in ipairs(KEYS) do redis.call('EXPIRE', key, 40 * 86400) end
end

-- In how many ms enough has left the window.
local function wait_for(tokens, rpm, tpm)
  local requests, used = number('R'), number('T')
  for _, grain in ipairs(redis.call('ZRANGE', window, 0, -1)) do
    requests = requests - number('r' .. grain)
    used = used - number('t' .. grain)
    if (rpm < 0 or requests < rpm) and (tpm < 0 or used + tokens <= tpm) then
      return (grain + 1) * GRAIN + WINDOW - now
    end
  end
  return WINDOW
end

local verbs = {}

function verbs.enter(id, tokens, lease, day, month, rpm, tpm, in_flight, per_day, per_month)
  tokens, rpm, tpm, in_flight = tonumber(tokens), tonumber(rpm), tonumber(tpm), tonumber(in_flight)
  per_day, per_month = tonumber(per_day), tonumber(per_month)
  bury()
  forget()
  day, month = turn(tonumber(day), tonumber(month))
  local verdict, wait = 'ok', 0
  if in_flight >= 0 and redis.call('ZCARD', leases) >= in_flight then
    verdict = 'in_flight'
  elseif per_month >= 0 and number('Mu') + tokens > per_month then
    verdict = 'month'
  elseif per_day >= 0 and number('Du') + tokens > per_day then
    verdict = 'day'
  elseif rpm >= 0 and number('R') >= rpm then
    verdict, wait = 'requests', wait_for(tokens, rpm, tpm)
  elseif tpm >= 0 and number('T') + tokens > tpm then
    verdict, wait = 'tokens', wait_for(tokens, rpm, tpm)
  else
    local grain = count(1, tokens)
    spend(tokens, day, month)
    redis.call('HSET', state, 'x' .. id, grain .. ' ' .. tokens .. ' ' .. day .. ' ' .. month)
    redis.call('ZADD', leases, now + lease, id)
    keep()
  end
  return { verdict, wait, number('R'), number('T'), number('Du'), number('Mu') }
end

function verbs.settle(id, used, again, day, month)
  used = tonumber(used)
  local grain, tokens, of_day, of_month = ticket_of(id)
  if not grain then -- never counted, or its lease had ended and it was given back
    if used > 0 and again == '0' then
      count(0, used)
      day, month = turn(tonumber(day), tonumber(month))
      spend(used, day, month)
      keep()
    end
    return
  end
  local missed = math.max(used, 0) - tokens
  if missed > 0 then
    count(0, missed)
  elseif redis.call('HEXISTS', state, 'r' .. grain) == 1 then
    redis.call('HINCRBY', state, 't' .. grain, missed)
    redis.call('HINCRBY', state, 'T', missed)
  end
  spend(missed, of_day, of_month)
end

function verbs.renew(lease, ...)
  for _, id in ipairs({ ... }) do redis.call('ZADD', leases, 'XX', now + lease, id) end
end

local arguments = {}
for index = 2, #ARGV do arguments[index - 1] = ARGV[index] end
return verbs[ARGV[1]](unpack(arguments))
