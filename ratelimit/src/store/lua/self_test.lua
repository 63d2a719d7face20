-- Uses every command of the other scripts once, on a key of its own that is gone afterwards: a user that may not
-- use one of them is found at the start, and not half way through a decision.
--
-- KEYS[1]   any key of the service. What is left of it after a failure ends within a second.

local key = KEYS[1]
redis.call('TIME')
redis.call('UNLINK', key)
redis.call('SET', key, 'x', 'PX', 1000)
redis.call('GET', key)
redis.call('PEXPIRE', key, 1000)
redis.call('UNLINK', key)
redis.call('ZADD', key, 1, 'x')
redis.call('PEXPIRE', key, 1000)
redis.call('ZSCORE', key, 'x')
redis.call('ZCOUNT', key, '-inf', '+inf')
redis.call('ZRANGEBYSCORE', key, '-inf', '+inf')
redis.call('ZREVRANGEBYSCORE', key, '+inf', '-inf')
redis.call('ZREM', key, 'x')
redis.call('ZSCAN', key, 0)
redis.call('ZREMRANGEBYSCORE', key, '-inf', 0)
redis.call('HSET', key, 'x', 1)
redis.call('HGET', key, 'x')
redis.call('HVALS', key)
redis.call('HLEN', key)
redis.call('HSCAN', key, 0)
redis.call('HDEL', key, 'x')
redis.call('UNLINK', key)
return 1
