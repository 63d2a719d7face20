-- Reads how things stand. Changes nothing.
--
-- KEYS[1]   open holds of the tenant
-- KEYS[2…]  buckets
-- ARGV[1]   the service's clock, ms
-- ARGV[2…]  per bucket: kind, limit, parameters
--
-- Answer: 'H', now, and per bucket used, remaining, reset as doubles, or C, B or X as in reserve.lua;
--         then the members of the open holds

now = clock(ARGV[1])
if not now then
  return { 'C', {} }
end
local parts = { 'H', struct.pack('>d', now) }
for i = 2, #KEYS do
  local b, failed = open_bucket(KEYS[i], ARGV[i], 1)
  if failed then
    return { failed, {} }
  end
  parts[#parts + 1] = struct.pack('>ddd', b.algorithm.gauge(b))
end
return { table.concat(parts), redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. digits(now), '+inf') }
