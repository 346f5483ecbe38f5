-- Keeps an answer, and lets the oldest go while all together are too large.
-- KEYS: the answer, places in time, sizes, their sum. ARGV: the answer's name and text, seconds to keep it, bytes for all,
-- prefix of answers.
local now = tonumber(redis.call('TIME')[1])
local function drop(name)
  local size = redis.call('HGET', KEYS[3], name)
  if size then
    redis.call('DECRBY', KEYS[4], size)
    redis.call('HDEL', KEYS[3], name)
  end
  redis.call('ZREM', KEYS[2], name)
end
for _, name in ipairs(redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[3])) do
  drop(name)
end
drop(ARGV[1])
local size = #ARGV[2] + 400
if size > tonumber(ARGV[4]) then
  redis.call('DEL', KEYS[1])
  return 0
end
redis.call('SET', KEYS[1], ARGV[2], 'EX', ARGV[3])
redis.call('ZADD', KEYS[2], now, ARGV[1])
redis.call('HSET', KEYS[3], ARGV[1], size)
local sum = redis.call('INCRBY', KEYS[4], size)
while sum > tonumber(ARGV[4]) do
  local oldest = redis.call('ZRANGE', KEYS[2], 0, 0)[1]
  redis.call('DEL', ARGV[5] .. oldest)
  drop(oldest)
  sum = tonumber(redis.call('GET', KEYS[4]))
end
for at = 2, 4 do
  redis.call('EXPIRE', KEYS[at], ARGV[3])
end
return 1
