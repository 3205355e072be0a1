-- Locks that several clients share, readers or slots, for rare.lua and admin.lua, which precede ballot.lua in
-- the same script: see there for KEYS, ARGV and the reply.
--
-- Keys, which a lock has only while it is shared:
--   key     its kind: redlockd:shared, or redlockd:slots=K
--   key\0m  the tokens of its holders, by the millisecond at which each expires: a sorted set
--   key\0s  the same tokens by their places. All readers have the place 0, so these are in the order of
--           their tokens; each token of a semaphore begins with its place and a space
--
-- The three keys expire together with the last holder. lib is what rare.lua shares with this file.
local function shareOperations(lib)
  local call, args, now = redis.pcall, ARGV, lib.now
  local isKind, shown, left, after, fault = lib.isKind, lib.shown, lib.left, lib.after, lib.fault

  local SHARED = lib.SHARED
  -- How many expired members of a shared lock an operation removes. (A number in a command costs as much as
  -- a short command: Redis formats it.)
  local CUT = '32'
  local past = after(0)

  -- A member is in both sets of a key, so it is removed from both, and deleted with the key.
  local function remove(key, ...) return call('ZREM', key .. '\0m', ...), call('ZREM', key .. '\0s', ...) end
  local function drop(key, ...) return call('DEL', key .. '\0m', key .. '\0s', ...) end

  -- prune removes expired members, but not more than CUT: a call that adds one removes more, so
  -- they do not pile up.
  local function prune(key)
    local gone = call('ZRANGE', key .. '\0m', '-inf', past, 'BYSCORE', 'LIMIT', '0', CUT)
    if gone[1] then
      remove(key, unpack(gone))
    end
  end

  -- lastExpiry returns when the last member of a key expires. If none is left, it deletes the key and
  -- returns nil. The second result is an error, because a foreign client wrote to it.
  local function lastExpiry(key)
    local last = call('ZRANGE', key .. '\0m', '-1', '-1', 'WITHSCORES')
    if last.err then
      return 0, last
    elseif last[2] and tonumber(last[2]) > now then -- not in this millisecond: PEXPIREAT would delete
      return last[2]
    end
    drop(key, key)
  end

  -- settle makes the key expire with the last of its members. It returns an error, or nil: a client
  -- that acquires must not rely on the key then.
  local function settle(key)
    prune(key)
    local last, err = lastExpiry(key)
    for _, each in ipairs(last and not err and {key, key .. '\0m', key .. '\0s'} or {}) do
      local done = call('PEXPIREAT', each, last)
      err = err or type(done) == 'table' and done or nil
    end
    return err
  end

  local function isMember(key, token)
    local score = call('ZSCORE', key .. '\0m', token)
    return type(score) == 'string' and tonumber(score) > now
  end

  -- holder shows the kind of a shared lock, and the member that expires last.
  local function holder(key, kind)
    local reply = {kind, call('PTTL', key)}
    local last = call('ZRANGE', key .. '\0m', '-1', '-1', 'WITHSCORES')
    if last[2] then
      reply[3], reply[4] = shown(last[1]), left(last[2])
    end
    return reply
  end

  -- placeOf returns the place with which a token of a semaphore begins. Readers have no place.
  local function placeOf(token, kind) return tonumber(kind ~= SHARED and string.match(token, '^%d+') or 0) end

  -- freeAfter returns the first place after the given one that nobody has; nil: there is none. Each
  -- place has one holder at most, so the places up to a limit are all taken if they have so many holders.
  local function freeAfter(place, key, slots)
    local low, high = place, slots + 1
    while high - low > 1 do
      local middle = math.floor((low + high) / 2)
      if call('ZCOUNT', key .. '\0s', place + 1, middle) == middle - place then
        low = middle
      else
        high = middle
      end
    end
    return high <= slots and high or nil
  end

  -- placeHolder returns nil if no other token has the place with which this one begins.
  -- Otherwise it shows that token, when the first of all members expires, and a free place.
  local function placeHolder(key, token, kind)
    prune(key)
    local place, slots = placeOf(token, kind), tonumber(string.match(kind, '%d+$'))
    local there = call('ZRANGE', key .. '\0s', place, place, 'BYSCORE', 'LIMIT', 0, 1)
    if there.err or not there[1] or there[1] == token then
      return there.err and there or nil
    end
    local score, first = call('ZSCORE', key .. '\0m', there[1]), call('ZRANGE', key .. '\0m', '0', '0', 'WITHSCORES')
    if type(score) ~= 'string' or tonumber(score) <= now then -- it was not pruned yet
      remove(key, there[1])
      return type(score) == 'table' and score or nil
    end
    return {kind, left(first[2]), shown(there[1]), left(score), freeAfter(place, key, slots) or freeAfter(0, key, place) or 0}
  end

  -- joinBlocker returns what keeps the token from sharing the key; nil: nothing. The second result is
  -- whether nobody holds it.
  local function joinBlocker(key, token, kind)
    local value = call('GET', key)
    if type(value) == 'table' then
      return value
    elseif value and not isKind(value) then
      return {shown(value), call('PTTL', key)}
    elseif value and not lastExpiry(key) then
      value = false
    end
    if value and value ~= kind then
      return holder(key, value)
    end
    return value and kind ~= SHARED and placeHolder(key, token, kind) or nil, not value
  end

  -- addMember makes the token share a key that nobody holds, or that others share. It returns an error, or nil.
  -- It takes the place first: after an error, nobody else has it. till is when the ttl has passed.
  local function addMember(key, token, kind, ttl, till, isFree)
    local members, places = key .. '\0m', key .. '\0s'
    if isFree then -- earlier members lost the lock
      drop(key)
    else
      prune(key)
    end
    local longer = not isFree and 'GT' or nil
    for _, step in ipairs({
      isFree and {'SET', key, kind, 'NX', 'PX', ttl} or {'PEXPIREAT', key, till, 'GT'}, {'ZADD', places, kind == SHARED and '0' or placeOf(token, kind), token},
      {'ZADD', members, 'GT', till, token}, {'PEXPIREAT', places, till, longer}, {'PEXPIREAT', members, till, longer},
    }) do
      local done = call(unpack(step))
      if type(done) == 'table' and done.err then
        return done
      end
    end
  end

  -- leave releases a key that has this value, which is not the token alone.
  local function leave(key, token, value)
    if not isKind(value) then
      return fault(value) or 0
    end
    local done = remove(key, token)
    if done == 1 then
      settle(key)
      lib.notifyWaiters(key)
    end
    return done
  end

  -- extend extends a token that does not hold the key alone: the key has this value.
  local function extend(key, token, ttl, value)
    local score = isKind(value) and call('ZSCORE', key .. '\0m', token)
    local err = fault(value) or fault(score)
    if err then
      return err
    elseif type(score) ~= 'string' or tonumber(score) <= now then
      return lib.isForced(token) and -1 or 0
    end
    local till = after(ttl)
    for _, each in ipairs({key, key .. '\0m', key .. '\0s'}) do -- first: a node without memory lets a script write more that has written
      local done = call('PEXPIREAT', each, till, 'GT')
      err = err or type(done) == 'table' and done or nil
    end
    local done = call('ZADD', key .. '\0m', 'GT', till, token)
    return type(done) == 'table' and done or err or 1
  end

  -- downgrade extends a token. If it holds the key alone, it becomes the first of those that
  -- share it. The value changes last: after an error the token holds the key alone, as before.
  local function downgrade(key, arg)
    local token, ttl, value = args[arg], args[arg + 1], call('GET', key)
    if value ~= token then
      return extend(key, token, ttl, value)
    end
    local members, places, rest = key .. '\0m', key .. '\0s', call('PTTL', key)
    if type(rest) == 'table' then
      return rest
    end
    local expiry = after(math.max(ttl, rest))
    drop(key)
    for _, step in ipairs({
      {'ZADD', members, expiry, token}, {'ZADD', places, '0', token}, {'PEXPIREAT', members, expiry}, {'PEXPIREAT', places, expiry},
      {'SET', key, SHARED, 'PXAT', expiry},
    }) do
      local done = call(unpack(step))
      if type(done) == 'table' and done.err then
        drop(key)
        return done
      end
    end
    lib.notifyWaiters(key)
    return 1
  end

  return {
    prune = prune, lastExpiry = lastExpiry, isMember = isMember, holder = holder, placeOf = placeOf,
    joinBlocker = joinBlocker, addMember = addMember, leave = leave, extend = extend,
    operations = {g = downgrade},
  }
end
