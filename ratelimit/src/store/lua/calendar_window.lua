-- A bucket is 'C', its head, start of its window (ms), amount used (doubles). Four boundaries come with each call.

local function open(b, text, at)
  local edges = { struct.unpack('>dddd', text, at) }
  local past = at + 32
  local value, from, failed = read_value(b)
  local stored, used
  if failed then
    return past, failed
  elseif value then
    if #value ~= from + 15 then
      return past, 'X'
    end
    stored, used = struct.unpack('>dd', value, from)
    if not (amount_like(stored) and amount_like(used)) then
      return past, 'X'
    end
  end
  for i = 1, 3 do
    if edges[i] <= now and now < edges[i + 1] then
      b.start, b.used, b.ends = edges[i], 0, edges[i + 1]
      if stored == edges[i] then
        b.used = used
      elseif i < 3 and stored == edges[i + 1] then
        -- The clock went back by less than a window: the newer one goes on.
        b.start, b.used, b.ends = stored, used, edges[i + 2]
      elseif stored and stored > edges[i] then
        b.used, b.went_back = used, true
      end
      if b.start ~= stored then
        b.portions = nil
      end
      return past
    end
  end
  -- A correction may still reach the window that is stored.
  b.start, b.used = stored, used or 0
  return past, 'B'
end

local function charge(b, amount)
  if not b.start then
    return ''
  end
  b.used = math.min(b.used + amount, MAX_AMOUNT)
  b.changed = b.changed or amount > 0
  return struct.pack('>d', b.start)
end

local function save(b)
  local value = value_of(b, '>BBdd', '>BBBddddd', b.start, b.used)
  if b.ends then
    redis.call('SET', b.key, value, 'PX', b.ends - now + CLOCK_MARGIN_MS)
  else
    redis.call('SET', b.key, value, 'KEEPTTL')
  end
end

algorithms.C = corrects and {
  open = open,
  save = save,
  excess = charge,
  refund = function(b, text, at, amount)
    if struct.unpack('>d', text, at) == b.start then
      b.changed = b.changed or (amount > 0 and b.used > 0)
      b.used = math.max(b.used - amount, 0)
      return nil, true
    end
  end,
  give_back = function(b, amount)
    b.changed = b.changed or (amount > 0 and b.used > 0)
    b.used = math.max(b.used - amount, 0)
  end,
} or {
  open = open,
  charge = charge,
  save = save,
  room = function(b)
    return b.limit - b.used
  end,
  wait = function(b)
    return b.ends - now
  end,
  gauge = function(b)
    return window_gauge(b.used, b.limit, b.ends - now)
  end,
}
