-- Takes holds that have lapsed off the open ones, and keeps their usage events in the same step.
--
-- KEYS[1]   open holds of the tenant
-- KEYS[2]   usage events of the tenant that wait: hash by id
-- ARGV[1]   the service's clock, ms
-- ARGV[2]   how long an event waits at most, ms
-- ARGV[3…]  per hold: member of the open holds, usage event; empty for none
--
-- Answer: per hold 1 if it has lapsed, 0 if another sweep has taken it or it lives; nothing when the clocks differ

now = clock(ARGV[1])
if not now then
  return false
end
-- Fails here, before anything is written, where the key holds something else.
redis.call('HLEN', KEYS[2])
local taken = {}
for i = 3, #ARGV, 2 do
  local lapsed_at = tonumber(redis.call('ZSCORE', KEYS[1], ARGV[i]) or math.huge)
  local removed = 0
  if lapsed_at <= now - CLOCK_MARGIN_MS then
    removed = redis.call('ZREM', KEYS[1], ARGV[i])
  end
  if removed == 1 and ARGV[i + 1] ~= '' then
    redis.call('HSET', KEYS[2], string.sub(ARGV[i], 1, 32), ARGV[i + 1])
    redis.call('PEXPIRE', KEYS[2], ARGV[2])
  end
  taken[#taken + 1] = removed
end
return taken
