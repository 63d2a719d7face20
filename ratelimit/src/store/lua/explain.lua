-- Reads how things stand. Changes nothing.
--
-- KEYS[1]   open holds of the tenant
-- KEYS[2…]  buckets
-- ARGV[1]   the service's clock, ms
-- ARGV[2…]  length of each bucket's window, ms, as a double
--
-- Answer: 'H', now, and per bucket start and use as doubles, or C or X as in reserve.lua;
--         then the members of the open holds

local now = clock(ARGV[1])
if not now then
  return { 'C', {} }
end
local parts = { 'H', struct.pack('>d', now) }
for i = 2, #KEYS do
  local start, used = current(redis.call('GET', KEYS[i]), now, (struct.unpack('>d', ARGV[i])))
  if not start then
    return { 'X', {} }
  end
  parts[#parts + 1] = struct.pack('>dd', start, used)
end
local after = '(' .. string.format('%.0f', now)
return { table.concat(parts), redis.call('ZRANGEBYSCORE', KEYS[1], after, '+inf') }
