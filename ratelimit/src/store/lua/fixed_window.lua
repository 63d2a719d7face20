-- A bucket is 'F', its head, start of its window (ms), amount used (doubles). The start is in the value, so a
-- key that lives on cannot make a window longer.

local function open(b, text, at)
  local length = struct.unpack('>d', text, at)
  local start = now - now % length
  b.length, b.start, b.used = length, start, 0
  local value, from, failed = read_value(b)
  if not value then
    return at + 8, failed
  end
  if #value ~= from + 15 then
    return at + 8, 'X'
  end
  local stored, used = struct.unpack('>dd', value, from)
  if not (amount_like(stored) and amount_like(used)) then
    return at + 8, 'X'
  end
  if stored == start or stored == start + length then
    b.start, b.used = stored, used
  elseif stored > start then
    -- The clock went back further: the amount stays.
    b.used, b.went_back = used, true
  end
  if b.start ~= stored then
    b.portions = nil
  end
  return at + 8
end

local function charge(b, amount)
  b.used = math.min(b.used + amount, MAX_AMOUNT)
  b.changed = b.changed or amount > 0
  return struct.pack('>d', b.start)
end

local function save(b)
  local keep = math.max(b.start + b.length - now, 0) + math.min(b.length, CLOCK_MARGIN_MS)
  redis.call('SET', b.key, value_of(b, '>BBdd', '>BBBddddd', b.start, b.used), 'PX', keep)
end

algorithms.F = corrects and {
  open = open,
  save = save,
  excess = charge,
  refund = function(b, text, at, amount)
    -- To the window that was charged, or nowhere.
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
    return math.max(b.start + b.length - now, 0)
  end,
  gauge = function(b)
    return window_gauge(b.used, b.limit, math.max(b.start + b.length - now, 0))
  end,
}
