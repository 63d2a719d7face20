-- A bucket is 'S', its head, index of the newest sub-window, total, then n + 1 slots, oldest first (doubles). The
-- slots stay one string: most calls touch only the last one.

local function slot(b, place)
  return (struct.unpack('>d', b.slots, 8 * place + 1))
end

local function put_slot(b, place, amount)
  b.slots = string.sub(b.slots, 1, 8 * place) .. struct.pack('>d', amount) .. string.sub(b.slots, 8 * place + 9)
end

-- What is held in sub-windows that are no longer counted is given back to nowhere.
local function keep_portions(b)
  local portions = b.portions
  for i = #portions - 2, 1, -3 do
    if portions[i] < b.head - b.n or portions[i] > b.head then
      forget_portion(portions, i)
    end
  end
end

local function open(b, text, at)
  local length, n = struct.unpack('>dd', text, at)
  local past = at + 16
  local index = math.floor(now / length)
  local value, from, failed = read_value(b)
  b.length, b.n = length, n
  if failed then
    return past, failed
  elseif not value then
    b.head, b.total, b.slots, b.place = index, 0, string.rep('\0', 8 * (n + 1)), index
    return past
  end
  if #value ~= from + 15 + 8 * (n + 1) then
    return past, 'X'
  end
  local head, total = struct.unpack('>dd', value, from)
  if not (amount_like(head) and amount_like(total)) then
    return past, 'X'
  end
  b.head, b.total, b.slots = head, total, string.sub(value, from + 16)
  if head > index + n then
    -- The clock has jumped back: what is counted then says nothing any more.
    b.head, b.total, b.slots = index, 0, string.rep('\0', 8 * (n + 1))
  elseif index > head then
    local entered = math.min(index - head, n + 1)
    for place = 0, entered - 1 do
      local gone = slot(b, place)
      if not amount_like(gone) then
        return past, 'X'
      end
      b.total = math.max(b.total - gone, 0)
    end
    b.slots = string.sub(b.slots, 8 * entered + 1) .. string.rep('\0', 8 * entered)
    b.head = index
  end
  if b.portions then
    keep_portions(b)
  end
  b.place = b.head
  return past
end

local function charge(b, amount)
  amount = math.min(amount, math.max(MAX_AMOUNT - b.total, 0))
  put_slot(b, b.n, slot(b, b.n) + amount)
  b.total = b.total + amount
  b.changed = b.changed or amount > 0
  return struct.pack('>d', b.head)
end

local function save(b)
  local keep = (b.head + b.n + 2) * b.length - now + math.min(b.n * b.length, CLOCK_MARGIN_MS)
  redis.call('SET', b.key, value_of(b, '>BBdd', '>BBBddddd', b.head, b.total) .. b.slots, 'PX', keep)
end

algorithms.S = corrects and {
  open = open,
  save = save,
  excess = charge,
  refund = function(b, text, at, amount)
    local place = struct.unpack('>d', text, at) - (b.head - b.n)
    if place >= 0 and place <= b.n then
      local there = slot(b, place)
      if not amount_like(there) then
        return 'X'
      end
      amount = math.min(amount, there)
      put_slot(b, place, there - amount)
      b.total = math.max(b.total - amount, 0)
      b.changed = b.changed or amount > 0
      return nil, true
    end
  end,
  give_back = function(b, amount)
    -- From the oldest sub-windows on: what stays, stays counted the longest.
    for place = 0, b.n do
      local there = slot(b, place)
      if not amount_like(there) then
        return 'X'
      end
      local taken = math.min(amount, there)
      if taken > 0 then
        put_slot(b, place, there - taken)
        b.total, amount, b.changed = math.max(b.total - taken, 0), amount - taken, true
      end
    end
  end,
} or {
  open = open,
  charge = charge,
  save = save,
  room = function(b)
    return b.limit - b.total
  end,
  wait = function(b, amount)
    local left = b.total
    for place = 0, b.n do
      left = left - slot(b, place)
      if left + amount <= b.limit then
        return (b.head + place + 1) * b.length - now
      end
    end
    return -3
  end,
  gauge = function(b)
    local left = 0
    for place = b.n, 0, -1 do
      if slot(b, place) > 0 then
        left = (b.head + place + 1) * b.length - now
        break
      end
    end
    return window_gauge(b.total, b.limit, left)
  end,
}
