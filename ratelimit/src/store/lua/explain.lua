-- Reads how things stand. Changes nothing.
--
-- KEYS[1]   open holds of the tenant
-- KEYS[2…]  buckets
-- ARGV[1]   the service's clock, ms
-- ARGV[2…]  per bucket: kind, limit, parameters; then how many open holds are looked at
--
-- Answer: 'H', now, and per bucket used, remaining, held, reset as doubles, or C, B or X as in reserve.lua;
--         then how many open holds there are, and the members of the oldest

now = clock(ARGV[1])
if not now then
  return { 'C', 0, {} }
end
local parts = { 'H', struct.pack('>d', now) }
for i = 2, #KEYS do
  local b, failed = open_bucket(KEYS[i], ARGV[i], 1)
  if failed then
    return { failed, 0, {} }
  end
  local used, remaining, reset = b.algorithm.gauge(b)
  parts[#parts + 1] = struct.pack('>dddd', used, remaining, held_of(b, used), reset)
end
local open = '(' .. digits(now)
return {
  table.concat(parts),
  redis.call('ZCOUNT', KEYS[1], open, '+inf'),
  redis.call('ZRANGEBYSCORE', KEYS[1], open, '+inf', 'LIMIT', 0, ARGV[#KEYS + 1]),
}
