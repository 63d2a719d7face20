-- A bucket is a sorted set: member = id of the reservation, score = end of its lease (ms).

local TRY_AGAIN_MS = 1000

local function open(b, text, at)
  b.lease = struct.unpack('>d', text, at)
  -- A lease that ends further away than two lengths was made before the clock went back.
  local newest = now + 2 * b.lease
  local after, till = '(' .. digits(now), newest
  b.live = redis.call('ZCOUNT', b.key, after, till)
  local last = redis.call('ZREVRANGEBYSCORE', b.key, till, after, 'WITHSCORES', 'LIMIT', 0, 1)
  b.last = tonumber(last[2] or now)
  b.stale = redis.call('ZRANGEBYSCORE', b.key, '-inf', '(' .. digits(now - CLOCK_MARGIN_MS), 'LIMIT', 0, 8)
  local jumped = redis.call('ZRANGEBYSCORE', b.key, '(' .. digits(newest + CLOCK_MARGIN_MS), '+inf', 'LIMIT', 0, 8)
  for i = 1, #jumped do
    b.stale[#b.stale + 1] = jumped[i]
  end
  return at + 8
end

local function charge(b)
  b.ends = now + b.lease
  b.live, b.last = b.live + 1, math.max(b.last, b.ends)
  return ''
end

local function save(b)
  if b.ends then
    redis.call('ZADD', b.key, b.ends, id)
    redis.call('PEXPIRE', b.key, b.last - now + CLOCK_MARGIN_MS)
  elseif b.leave then
    redis.call('ZREM', b.key, id)
  end
  if #b.stale > 0 then
    redis.call('ZREM', b.key, unpack(b.stale))
  end
end

algorithms.N = corrects and {
  open = open,
  save = save,
  refund = function(b)
    b.leave = redis.call('ZSCORE', b.key, id)
    b.changed = b.changed or b.leave
  end,
  -- A request cannot use more than its slot.
  excess = function() end,
} or {
  open = open,
  charge = charge,
  save = save,
  room = function(b)
    return b.limit - b.live
  end,
  -- Keeps the slot for another lease, or takes a new one; whether there was room.
  renew = function(b, force)
    local ends = tonumber(redis.call('ZSCORE', b.key, id) or 0)
    local live = ends > now and ends <= now + 2 * b.lease
    if not live and not force and b.live >= b.limit then
      return false
    end
    b.ends = now + b.lease
    if live then
      b.ends = math.max(b.ends, ends)
    end
    b.last = math.max(b.last, b.ends)
    return true
  end,
  wait = function()
    return TRY_AGAIN_MS
  end,
  gauge = function(b)
    return window_gauge(b.live, b.limit, b.last - now)
  end,
}
