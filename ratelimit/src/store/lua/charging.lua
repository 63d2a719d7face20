-- Charges of a reserve or an extension: reading them, and saying how they stand.

-- Rates that count the request alone.
local REQUESTS = string.byte('r')

-- One bucket per argument from `first` on; a letter if one cannot be used.
local function open_charges(first)
  local charges = {}
  for i = 1, #KEYS - 2 do
    local argument = ARGV[first + i - 1]
    local b, failed = open_bucket(KEYS[2 + i], argument, 33)
    if failed then
      return nil, failed
    end
    b.amount, b.base, b.per_output, b.per = struct.unpack('>dddd', argument)
    b.known = string.sub(argument, 33)
    local flags = string.byte(argument, b.past)
    b.shadow, b.attempts = flags % 2 == SHADOW, math.floor(flags / ATTEMPTS) % 2 == 1
    b.fits, b.waits = true, -1
    charges[i] = b
  end
  return charges
end

-- Whether the amount fits, and if not, when.
local function weigh(b)
  b.fits = b.amount <= b.algorithm.room(b)
  if b.fits then
    b.waits = -1
  elseif b.amount > b.limit and b.kind ~= 'B' then
    b.waits = -3
  else
    b.waits = b.algorithm.wait(b, b.amount)
  end
end

local function answer(letter, charges)
  local parts = { letter, struct.pack('>d', now) }
  for i, b in ipairs(charges) do
    local denied = 0
    if not b.fits then
      denied = 1
    end
    local used, remaining, reset = b.algorithm.gauge(b)
    parts[i + 2] = struct.pack('>ddddBd', used, remaining, held_of(b, used), reset, denied, b.waits)
  end
  return table.concat(parts)
end

-- Charges what is held, and makes the entry of a record for it.
local function entry(b)
  local amount = b.amount
  local mark = b.algorithm.charge(b, amount)
  -- 17: after the flags and the bucket's tags. A request that was sent stays counted: it is not held, but used.
  if amount > 0 and b.kind ~= 'N' and string.byte(b.known, b.past - 32 + 17) ~= REQUESTS then
    local place, portions, at = b.place or (born - born % HOUR_MS) / HOUR_MS, b.portions, 1
    while portions and portions[at] and portions[at] ~= place do
      at = at + 3
    end
    if not portions then
      b.portions = { place, math.min(amount, MAX_AMOUNT), lapses }
    elseif portions[at] then
      amount = portions[at + 1] + amount
      portions[at + 1] = amount < MAX_AMOUNT and amount or MAX_AMOUNT
      portions[at + 2] = lapses > portions[at + 2] and lapses or portions[at + 2]
    elseif at < 3 * MOST_PORTIONS then
      portions[at], portions[at + 1], portions[at + 2] = place, math.min(amount, MAX_AMOUNT), lapses
    end
  end
  return b.known .. struct.pack('>d', b.amount) .. mark
end
