-- A bucket is 'T', its head, then limit, num, den, generation, level, time, interval, charged (doubles), then
-- per remembered interval, oldest first: level, early refunds, own refunds (doubles). The intervals stay one
-- string: most calls look only at the last one.

local INTERVALS, INTERVALS_PER_FILL = 32, 16
local COUNTED, MEMORY = 64, 24

local function whole(number)
  return number % 1 == 0 and number <= LARGEST and number >= -LARGEST
end

local function full(b)
  return math.min(b.held_limit * b.den, MAX_AMOUNT)
end

local function interval_ms(b)
  return math.max(math.ceil(math.ceil(full(b) / b.num) / INTERVALS_PER_FILL), 1)
end

-- A level after so many milliseconds.
local function grown(b, from, ms)
  if ms >= math.ceil((full(b) - from) / b.num) then
    return full(b)
  end
  return from + ms * b.num
end

local function remember_from_here(b)
  b.interval = math.floor(b.time / interval_ms(b))
  b.charged, b.memories = 0, struct.pack('>ddd', b.level, 0, 0)
end

-- Another generation: what was held before is not refunded.
local function forget(b)
  b.generation, b.portions = math.max(b.generation + 1, b.time), nil
  remember_from_here(b)
end

local function advance(b)
  if now < b.time then
    -- The clock went back. Left in the future the bucket would not grow until then.
    b.time, b.went_back = now, true
    forget(b)
    return
  end
  local length = interval_ms(b)
  local index = math.floor(now / length)
  if index > b.interval then
    b.charged = 0
    local first = b.interval + 1
    if index - b.interval >= INTERVALS then
      first, b.memories = index, ''
    end
    local added = {}
    for interval = first, index do
      local level = grown(b, b.level, math.max(interval * length - b.time, 0))
      added[#added + 1] = struct.pack('>ddd', level, 0, 0)
    end
    b.memories = string.sub(b.memories .. table.concat(added), -INTERVALS * MEMORY)
  end
  b.level = grown(b, b.level, now - b.time)
  b.interval, b.time = index, now
end

-- The policy has changed: whole units stay, a fraction of one is lost, and the memory. A full bucket stays full,
-- as one does that is no longer stored.
local function reshape(b, limit, num, den)
  local was_full = b.level == full(b)
  local units = math.floor(b.level / b.den)
  b.held_limit, b.num, b.den = limit, num, den
  if was_full then
    b.level = full(b)
  else
    b.level = math.min(math.max(units * den, -MAX_AMOUNT), full(b))
  end
  forget(b)
end

local function take(b, amount)
  b.level = math.max(b.level - math.min(amount * b.den, MAX_AMOUNT), -MAX_AMOUNT)
  b.changed = b.changed or amount > 0
end

-- How far a level has grown, at most, between a moment and the end of an interval, or now.
local function growth(b, from, interval, length)
  return math.max(math.min(b.time, (interval + 1) * length) - from, 0) * b.num
end

-- Since the bucket was full a hold has had all its headroom, and what is not remembered gives none.
local function keep_portions(b)
  if b.level >= full(b) then
    b.portions = nil
    return
  end
  local portions, oldest = b.portions, b.interval - (#b.memories / MEMORY - 1)
  for i = #portions - 2, 1, -3 do
    if portions[i] < oldest or portions[i] > b.interval then
      forget_portion(portions, i)
    end
  end
end

local function open(b, text, at)
  local num, den = struct.unpack('>dd', text, at)
  local past = at + 16
  local value, from, failed = read_value(b)
  if failed then
    return past, failed
  elseif not value then
    b.held_limit, b.num, b.den = b.limit, num, den
    b.generation, b.time, b.level = now, now, full(b)
    remember_from_here(b)
    b.place = b.interval
    return past
  end
  local size = (#value - from + 1 - COUNTED) / MEMORY
  if size < 1 or size > INTERVALS or size % 1 ~= 0 then
    return past, 'X'
  end
  b.held_limit, b.num, b.den, b.generation, b.level, b.time, b.interval, b.charged =
    struct.unpack('>dddddddd', value, from)
  if not (amount_like(b.held_limit) and amount_like(b.num) and amount_like(b.den) and whole(b.level)
      and amount_like(b.generation) and amount_like(b.time) and amount_like(b.interval)
      and amount_like(b.charged) and b.num >= 1 and b.den >= 1) then
    return past, 'X'
  end
  b.memories = string.sub(value, from + COUNTED)
  advance(b)
  if b.held_limit ~= b.limit or b.num ~= num or b.den ~= den then
    reshape(b, b.limit, num, den)
  end
  if b.portions then
    keep_portions(b)
  end
  b.place = b.interval
  return past
end

local function charge(b, amount)
  local before = b.charged
  if amount <= math.floor(b.level / b.den) then
    take(b, amount)
  else
    -- Attempts are counted in full, but a caller that hammers must not lock itself out for days.
    local lowest = math.min(b.level, -full(b))
    take(b, amount)
    b.level = math.max(b.level, lowest)
  end
  b.charged = math.min(before + math.min(amount * b.den, MAX_AMOUNT), MAX_AMOUNT)
  return struct.pack('>ddddd', b.generation, b.interval, b.time, b.level, before) .. string.sub(b.memories, -16)
end

local function save(b)
  local head = value_of(b, '>BBdddddddd', '>BBBddddddddddd', b.held_limit, b.num, b.den, b.generation, b.level, b.time,
    b.interval, b.charged)
  local keep = math.ceil((full(b) - b.level) / b.num) + CLOCK_MARGIN_MS
  -- In deep debt more than 2^52, which some servers would write with an exponent.
  redis.call('SET', b.key, head .. b.memories, 'PX', digits(keep))
end

algorithms.T = corrects and {
  open = open,
  save = save,
  refund = function(b, text, at, amount)
    local generation, interval, time, level, before, early, own = struct.unpack('>ddddddd', text, at)
    local size = #b.memories / MEMORY
    local oldest = math.max(b.interval - (size - 1), 0)
    if generation ~= b.generation or interval > b.interval or interval < oldest then
      return
    end
    -- A refund is worth at most the headroom that the bucket has had since the hold.
    local place, length = interval - oldest, interval_ms(b)
    local levels, earlies, owns = {}, {}, {}
    for i = place, size - 1 do
      levels[i], earlies[i], owns[i] = struct.unpack('>ddd', b.memories, i * MEMORY + 1)
      if not (whole(levels[i]) and amount_like(earlies[i]) and amount_like(owns[i])) then
        return 'X'
      end
    end
    local refunded = math.max(earlies[place] - early, 0) + math.min(math.max(owns[place] - own, 0), before)
    local headroom = full(b) - level - growth(b, time, interval, length) - refunded
    for i = place + 1, size - 1 do
      local later = oldest + i
      headroom = math.min(headroom, full(b) - levels[i] - growth(b, later * length, later, length) - earlies[i])
    end
    local refund = math.max(math.min(headroom, math.min(amount * b.den, MAX_AMOUNT)), 0)
    owns[place] = owns[place] + refund
    local parts, too_much = { string.sub(b.memories, 1, place * MEMORY) }, owns[place] > MAX_AMOUNT
    for i = place, size - 1 do
      if i > place then
        earlies[i] = earlies[i] + refund
        too_much = too_much or earlies[i] > MAX_AMOUNT
      end
      parts[#parts + 1] = struct.pack('>ddd', levels[i], earlies[i], owns[i])
    end
    b.memories = table.concat(parts)
    b.level = math.min(b.level + refund, full(b))
    b.changed = b.changed or refund > 0
    if too_much then
      forget(b)
    end
    return nil, true
  end,
  give_back = function(b, amount)
    local level = math.min(b.level + math.min(amount * b.den, MAX_AMOUNT), full(b))
    b.changed = b.changed or level ~= b.level
    b.level = level
  end,
  excess = take,
} or {
  open = open,
  charge = charge,
  save = save,
  room = function(b)
    return math.floor(b.level / b.den)
  end,
  wait = function(b, amount)
    return math.ceil((amount * b.den - b.level) / b.num)
  end,
  gauge = function(b)
    local missing = full(b) - b.level
    return math.ceil(missing / b.den), math.floor(b.level / b.den), math.ceil(missing / b.num)
  end,
}
