-- What people and lists ask of a node, for rare.lua, which precedes ballot.lua in the same script: see
-- there for KEYS, ARGV and the reply. lib is what rare.lua shares with this file.
local function adminOperations(lib)
  local call, keys, args, now = redis.pcall, KEYS, ARGV, lib.now
  local isKind, shown, left, fault = lib.isKind, lib.shown, lib.left, lib.fault
  local waiters, shared = lib.waiters, lib.shared

  local SHARED, TURN, FORCED = lib.SHARED, lib.TURN, lib.FORCED
  -- How many holders of a shared lock WHO shows. Many clients may ask at once, and the
  -- daemon reads all of their replies at once.
  local FEW = 100
  local FEWER = 10 -- how many DESCRIBE shows, of many locks at once

  -- holders shows up to a number of holders, in the order of their places and tokens, after the given
  -- token; of a lock that nobody holds, whose turn it is. Expired members that were not pruned yet are shown
  -- with 0, because the next page begins after the last one.
  local function holders(key, most, token)
    local value = call('GET', key)
    if type(value) == 'table' then
      return value
    elseif value and not isKind(value) then
      return {shown(value), call('PTTL', key)}
    elseif not value or not shared().lastExpiry(key) then
      local waiter, ms = waiters().turnLeft(key)
      return waiter and {TURN, ms, waiters().tokenOf(waiter), ms} or {}
    end
    shared().prune(key)
    local reply, all = {value, call('PTTL', key)}, nil
    if value == SHARED then
      all = call('ZRANGE', key .. '\0s', token == '' and '-' or '(' .. token, '+', 'BYLEX', 'LIMIT', 0, most)
    else
      all = call('ZRANGE', key .. '\0s', '(' .. shared().placeOf(token, value), '+inf', 'BYSCORE', 'LIMIT', 0, most)
    end
    for i, one in ipairs(all) do
      local score = call('ZSCORE', key .. '\0m', one)
      reply[2 * i + 1], reply[2 * i + 2] = shown(one), type(score) == 'string' and left(score) or 0
    end
    return reply
  end

  local function who(key, arg) return holders(key, FEW, args[arg]) end

  -- note notes that a token was forced away. It returns an error, or nil.
  local function note(arg)
    local set = call('SET', FORCED .. redis.sha1hex(args[arg]), '1', 'PX', args[arg + 1])
    return set.err and set
  end

  local function noteForced(key, arg)
    local err = note(arg)
    if err then
      return err
    end
    local value = call('GET', key)
    if value == args[arg] then
      return 1
    end
    local score = isKind(value) and call('ZSCORE', key .. '\0m', args[arg])
    return fault(value) or fault(score) or type(score) == 'string' and tonumber(score) > now and 1 or 0
  end

  local function force(key, arg)
    local token = args[arg]
    local err = note(arg)
    if err then
      return err
    end
    local value = call('GET', key)
    if value ~= token then
      return value and shared().leave(key, token, value) or 0
    end
    return lib.delete(key) or 1
  end

  local function readCounters() return call('HGETALL', keys[1]) end

  local function scan(_, arg)
    return call('SCAN', args[arg], 'MATCH', args[arg + 1], 'COUNT', args[arg + 2])
  end

  local function describe(key)
    local reply = holders(key, FEWER + 1, '')
    if reply.err then
      return reply
    elseif #reply > 2 + 2 * FEWER then
      reply = {reply[1], reply[2]}
    end
    return {reply, waiters().list(key)}
  end

  return {operations = {w = who, z = noteForced, x = force, c = readCounters, y = scan, o = describe}}
end
