-- Does what a reserve and a settle do, on a key that is not there, so that nothing changes.
--
-- KEYS[1]   a key that is never there
-- ARGV[1]   the service's clock, ms
--
-- Answer: R ready, C clocks differ. What the server or its user may not do is its own error.

if not clock(ARGV[1]) then
  return 'C'
end
local key = KEYS[1]
redis.call('GET', key)
redis.call('ZSCORE', key, 'x')
redis.call('ZCOUNT', key, '-inf', '+inf')
redis.call('ZRANGEBYSCORE', key, '-inf', '+inf')
redis.call('ZREVRANGEBYSCORE', key, '+inf', '-inf')
redis.call('HGET', key, 'x')
redis.call('HLEN', key)
redis.call('UNLINK', key)
redis.call('PEXPIRE', key, 1000)
redis.call('ZREM', key, 'x')
redis.call('HDEL', key, 'x')
for _, write in ipairs({ { 'SET', key, 'x', 'XX', 'PX', 1000 }, { 'ZADD', key, 'XX', 1, 'x' } }) do
  local answer = redis.pcall(unpack(write))
  -- A full server is still needed: it settles.
  if type(answer) == 'table' and answer.err and not string.find(answer.err, 'OOM', 1, true) then
    return answer
  end
end
return 'R'
