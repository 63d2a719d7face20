-- A bucket is 'B', its head, granted, spent (doubles). It never ends; what is not there is worth 0.

local function open(b, _, at)
  local value, from, failed = read_value(b)
  b.granted, b.spent = 0, 0
  if failed then
    return at, failed
  elseif value then
    if #value ~= from + 15 then
      return at, 'X'
    end
    b.granted, b.spent = struct.unpack('>dd', value, from)
    if not (amount_like(b.granted) and amount_like(b.spent)) then
      return at, 'X'
    end
  end
  return at
end

local function charge(b, amount)
  b.spent = math.min(b.spent + amount, MAX_AMOUNT)
  b.changed = b.changed or amount > 0
  return ''
end

local function save(b)
  redis.call('SET', b.key, value_of(b, '>BBdd', '>BBBddddd', b.granted, b.spent))
end

algorithms.B = corrects and {
  open = open,
  save = save,
  excess = charge,
  refund = function(b, _, _, amount)
    b.changed = b.changed or (amount > 0 and b.spent > 0)
    b.spent = math.max(b.spent - amount, 0)
    return nil, true
  end,
  give_back = function(b, amount)
    b.changed = b.changed or (amount > 0 and b.spent > 0)
    b.spent = math.max(b.spent - amount, 0)
  end,
} or {
  open = open,
  charge = charge,
  save = save,
  room = function(b)
    return b.granted - b.spent
  end,
  wait = function()
    return -2
  end,
  gauge = function(b)
    return b.spent, b.granted - b.spent, 0
  end,
}
