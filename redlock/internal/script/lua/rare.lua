-- The operations of ballot.lua that are rarely needed, and the rare cases of the others:
-- shared locks, several names, waiters, foreign values. queue.lua precedes this file, and
-- ballot.lua follows it, in the same script. One function makes all others, and it captures nothing: so a call that
-- needs none of them pays for one closure only.
--
-- state is what ballot.lua read and will write: counters (by field), clock and late,
-- queuesUntil, and changed (fields of the node's hash and their values). It is nil in a call
-- without a counter.
local function rareOperations(state)
  local call, sub = redis.pcall, string.sub
  local keys, args, letters, records = KEYS, ARGV, ARGV[3], ARGV[4]
  state = state or {}
  local counters, clock, late = state.counters, state.clock, state.late

  -- The kind of readers, and of an exclusive waiter. What is shown of a waiter that others may
  -- not overtake: while clients share the lock, and while it is free.
  local SHARED, EXCLUSIVE, WRITER, TURN = 'redlockd:shared', '-', 'redlockd:writer', 'redlockd:turn'
  -- As in ballot.lua.
  local AHEAD, LIMIT, SHOWN = 1000000, 9006099743113216, 4096
  -- The longest time to live that is shown. A foreign client may have set a longer one,
  -- beyond what Redis can return as a number.
  local LONGEST = 1000000000000000
  -- How many holders of a shared lock WHO shows. Many clients may ask at once, and the
  -- daemon reads all of their replies at once.
  local FEW = 100
  -- How many expired members of a shared lock an operation removes.
  local CUT = 32
  local FEWER = 10 -- how many DESCRIBE shows, of many locks at once
  -- How far a counter may be raised ahead of this node's TIME, in microseconds (52 weeks):
  -- the word of one other node must not bring it near to LIMIT.
  local FARTHEST = 31449600000000
  -- The note about a token that was forced away has this prefix and the token's SHA1 as key.
  local FORCED = 'redlockd:forced:'

  local t = call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)

  -- isKind tells whether a value is a kind. Other values with that prefix are foreign.
  local function isKind(value)
    return value == SHARED or type(value) == 'string' and string.match(value, '^redlockd:slots=%d+$') ~= nil
  end

  local function shown(value) return sub(value, 1, SHOWN) end

  -- left returns the milliseconds until an instant.
  local function left(instant) return math.max(math.min(instant - now, LONGEST), 0) end

  -- after returns the instant at which a ttl that begins now has passed.
  local function after(ttl) return string.format('%.0f', now + ttl) end

  -- fault returns a value that is an error; nil for WRONGTYPE: no token holds such a key.
  local function fault(value)
    return type(value) == 'table' and sub(value.err, 1, 9) ~= 'WRONGTYPE' and value or nil
  end

  local function isForced(token) return call('EXISTS', FORCED .. redis.sha1hex(token)) == 1 end

  -- Shared locks.

  -- A member is in both sets of a key, so it is removed from both, and deleted with the key.
  local function remove(key, ...) return call('ZREM', key .. '\0m', ...), call('ZREM', key .. '\0s', ...) end
  local function drop(key, ...) return call('DEL', key .. '\0m', key .. '\0s', ...) end

  -- prune removes expired members, but not more than CUT: a call that adds one removes more, so
  -- they do not pile up.
  local function prune(key)
    local gone = call('ZRANGE', key .. '\0m', '-inf', after(0), 'BYSCORE', 'LIMIT', 0, CUT)
    if gone[1] then
      remove(key, unpack(gone))
    end
  end

  -- lastExpiry returns when the last member of a key expires. If none is left, it deletes the key and
  -- returns nil. The second result is an error, because a foreign client wrote to it.
  local function lastExpiry(key)
    local last = call('ZRANGE', key .. '\0m', -1, -1, 'WITHSCORES')
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

  -- holds tells whether the token holds the lock, alone or together with others.
  local function holds(key, token)
    local value = call('GET', key)
    return value == token or isKind(value) and isMember(key, token)
  end

  -- holder shows the kind of a shared lock, and the member that expires last.
  local function holder(key, kind)
    local reply = {kind, call('PTTL', key)}
    local last = call('ZRANGE', key .. '\0m', -1, -1, 'WITHSCORES')
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
    local score, first = call('ZSCORE', key .. '\0m', there[1]), call('ZRANGE', key .. '\0m', 0, 0, 'WITHSCORES')
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
  -- It takes the place first: after an error, nobody else has it.
  local function addMember(key, token, kind, ttl, isFree)
    local members, places, till = key .. '\0m', key .. '\0s', after(ttl)
    if isFree then -- earlier members lost the lock
      drop(key)
    else
      prune(key)
    end
    local longer = not isFree and 'GT' or nil
    for _, step in ipairs({
      isFree and {'SET', key, kind, 'NX', 'PX', ttl} or {'PEXPIREAT', key, till, 'GT'}, {'ZADD', places, placeOf(token, kind), token},
      {'ZADD', members, 'GT', till, token}, {'PEXPIREAT', places, till, longer}, {'PEXPIREAT', members, till, longer},
    }) do
      local done = call(unpack(step))
      if type(done) == 'table' and done.err then
        return done
      end
    end
  end

  -- Fencing counters. A record is given by its number.

  local function fieldOf(record) return sub(records, 18 * record - 17, 18 * record - 16) end
  local function fenceOf(record) return sub(records, 18 * record - 15, 18 * record) end

  -- setField has a field of the node's hash written at the end of the call.
  local function setField(field, text)
    local changed = state.changed or {}
    changed[#changed + 1] = field
    changed[#changed + 1] = text
    state.changed = changed
  end

  local function setCounter(field, count, text)
    counters[field] = count
    setField(field, text)
  end

  -- fence gives a fencing token for a record.
  local function fence(record)
    local field, text = fieldOf(record), fenceOf(record)
    local count, proposal = counters[field] + 1, tonumber(text)
    if proposal > count and proposal <= clock + AHEAD then
      count = proposal
    else
      text = string.format('%.0f', count)
    end
    setCounter(field, count, text)
    return count
  end

  -- raise sets the counter of a record to at least count.
  local function raise(record, count, text)
    local field = fieldOf(record)
    if count > counters[field] then
      setCounter(field, count, text)
    end
  end

  -- exhausted returns why nothing can be granted for a record, whatever client holds the
  -- lock; false: it can.
  local function exhausted(record)
    local field = fieldOf(record)
    return late or counters[field] >= LIMIT
      and redis.error_reply('FULL its fencing counter ' .. field .. ' is at its end: somebody else wrote to it; HDEL redlockd:node epoch on this node, and after max_ttl it has the counters of the others')
  end

  -- tooFar returns why the counter of a record cannot be raised to count; nil: it can.
  local function tooFar(record, count)
    if count > counters[fieldOf(record)] and count > clock + FARTHEST then
      return redis.error_reply('FAR a fencing token is more than a year ahead of this node\'s clock: set that clock, or find the node that gives such tokens')
    end
  end

  -- fenceAll returns the reply for several names that were acquired: they have one fencing
  -- token, and all of their counters are raised to it. record is the last name's.
  local function fenceAll(from, to, record)
    local most, sign = 0, 1
    for i = from, to do
      most = math.max(most, fence(record - to + i))
      local waits = call('EXISTS', keys[i + 1] .. '\0t')
      if type(waits) == 'table' then
        return waits
      end
      sign = waits > 0 and -1 or sign
    end
    for i = from, to do -- before any: a counter that is far ahead must not take the others along
      local refused = tooFar(record - to + i, most)
      if refused then
        return refused
      end
    end
    for i = from, to do
      raise(record - to + i, most, string.format('%.0f', most))
    end
    return sign * most
  end

  -- Waiters.

  local queue -- the functions of queue.lua, once they are needed

  local function waiters()
    queue = queue or queueOperations(state, t[1] * 1000000 + t[2], lastExpiry, isKind)
    return queue
  end

  local function haveWaiters(key) return call('EXISTS', key .. '\0t') == 1 end

  -- entryOf returns the entry and the ticket of the ENTER operations after the i-th operation, and the keys in
  -- whose queues it stands; next is the number of the argument after those of the i-th operation.
  local function entryOf(i, next)
    local entry, ticket, stands = nil, nil, {}
    while sub(letters, i + 1, i + 1) == 'i' do
      i, entry, ticket, next = i + 1, args[next], args[next + 1], next + 2
      stands[keys[i + 1]] = true
    end
    return entry, ticket, stands
  end

  -- overtaken shows the waiter that a client would overtake if it took the key; nil: it would
  -- overtake none. The client enters the queue first if it stands there, so that this node calls the same
  -- waiter as the others.
  local function overtaken(key, kind, entry, ticket, stands)
    if not haveWaiters(key) then
      return nil
    end
    if stands[key] then
      waiters().enter(key, entry, ticket)
    end
    local other, ms = waiters().before(key, entry, kind, ticket)
    if not other then
      return nil
    end
    local ttl = call('PTTL', key)
    if ttl >= 0 and kind == SHARED then
      return {WRITER, ttl, waiters().tokenOf(other), ttl}
    end
    return {TURN, ms, waiters().tokenOf(other), ms}
  end

  -- Exclusive locks.

  -- blocker returns what keeps the token from the key; nil: nothing. The second result is whether nobody holds it.
  local function blocker(key, token)
    local value = call('GET', key)
    if not value or value == token then
      return nil, not value
    elseif not isKind(value) then
      return type(value) == 'table' and value or {shown(value), call('PTTL', key)}
    end
    return lastExpiry(key) and holder(key, value) or nil, true
  end

  -- callNext gives the turn to the next waiters.
  local function callNext(key) waiters().callNext(key) end

  -- notifyWaiters calls the next waiters, if there are any.
  local function notifyWaiters(key)
    if haveWaiters(key) then
      callNext(key)
    end
  end

  -- delete releases a key that a token holds alone. It returns an error, or nil.
  local function delete(key)
    local done = call('DEL', key)
    if type(done) == 'table' then
      return done
    end
    notifyWaiters(key)
  end

  -- leave releases a key that has this value, which is not the token alone.
  local function leave(key, token, value)
    if not isKind(value) then
      return fault(value) or 0
    end
    local done = remove(key, token)
    if done == 1 then
      settle(key)
      notifyWaiters(key)
    end
    return done
  end

  -- The cases that ballot.lua leaves to this file. Each returns nil if the lock was acquired,
  -- or what blocked it: a table. Of several names, the reply to each of them.

  -- acquire acquires the key of the i-th operation.
  local function acquire(i, token, ttl, record, next)
    local key = keys[i + 1]
    local refused = exhausted(record) or blocker(key, token)
      or call('GET', key) ~= token and overtaken(key, EXCLUSIVE, entryOf(i, next))
    if refused then
      return refused
    end
    local set = call('SET', key, token, 'NX', 'PX', ttl)
    return set and set.err and set or nil
  end

  -- holderOf returns what keeps a token from a key, apart from other clients that wait, and whether nobody holds it.
  local function holderOf(key, token, kind)
    if kind == EXCLUSIVE then
      return blocker(key, token)
    end
    return joinBlocker(key, token, kind)
  end

  -- blockerOf is holderOf, and looks at other clients that wait, too.
  local function blockerOf(key, token, kind, ...)
    local blocked, isFree = holderOf(key, token, kind)
    if not blocked and haveWaiters(key) and (isFree or kind ~= EXCLUSIVE and not isMember(key, token)) then
      blocked = overtaken(key, kind, ...)
    end
    return blocked, isFree
  end

  -- acquireAll acquires several names, or shares one or several: all or none. It writes the reply to each of
  -- them, and returns what blocks the first one that is not free; otherwise their fencing token.
  local function acquireAll(replies, from, to, token, kind, ttl, record, next)
    local refused, isFree, entry, ticket, stands = nil, {}, entryOf(to, next)
    for i = from, to do
      local blocked = exhausted(record - to + i)
      if not blocked and refused then -- it is not granted, so it overtakes nobody
        blocked = holderOf(keys[i + 1], token, kind)
      elseif not blocked then
        blocked, isFree[i] = blockerOf(keys[i + 1], token, kind, entry, ticket, stands)
      end
      refused, replies[i] = refused or blocked, blocked or 0
    end
    local failed
    for i = from, refused and 0 or to do
      if kind ~= EXCLUSIVE then
        failed = failed or addMember(keys[i + 1], token, kind, ttl, isFree[i])
      else
        local set = call('SET', keys[i + 1], token, 'PX', ttl)
        failed = failed or set.err and set
      end
    end
    if refused then
      return refused
    end
    for key in pairs(stands) do -- its own entry is not another client that waits
      if not failed and haveWaiters(key) then
        waiters().taken(key, entry)
      end
    end
    local reply = failed or fenceAll(from, to, record)
    for i = from, to do
      replies[i] = reply
    end
    return reply
  end

  -- handOverBlocker returns what keeps a new token from the key. old holds it, or is false. It
  -- releases an old token that was forced away.
  local function handOverBlocker(i, old, new, record)
    local refused, key = exhausted(record), keys[i + 1]
    if not refused and not old then
      refused = blockerOf(key, new, EXCLUSIVE, nil, nil, {})
    elseif not refused then
      local forced = call('EXISTS', FORCED .. redis.sha1hex(old))
      if type(forced) == 'table' then
        return forced
      end
      refused = {shown(old), call('PTTL', key)}
      refused = delete(key) or refused
    end
    return refused or nil
  end

  -- extend extends a token that does not hold the key alone: the key has this value.
  local function extend(key, token, ttl, value)
    local score = isKind(value) and call('ZSCORE', key .. '\0m', token)
    local err = fault(value) or fault(score)
    if err then
      return err
    elseif type(score) ~= 'string' or tonumber(score) <= now then
      return isForced(token) and -1 or 0
    end
    for _, each in ipairs({key, key .. '\0m', key .. '\0s'}) do -- first: a node without memory lets a script write more that has written
      local done = call('PEXPIREAT', each, after(ttl), 'GT')
      err = err or type(done) == 'table' and done or nil
    end
    local done = call('ZADD', key .. '\0m', 'GT', after(ttl), token)
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
      {'ZADD', members, expiry, token}, {'ZADD', places, 0, token}, {'PEXPIREAT', members, expiry}, {'PEXPIREAT', places, expiry},
      {'SET', key, SHARED, 'PXAT', expiry},
    }) do
      local done = call(unpack(step))
      if type(done) == 'table' and done.err then
        drop(key)
        return done
      end
    end
    notifyWaiters(key)
    return 1
  end

  -- exchange extends a token that holds the key alone. If the old token holds the key, it is
  -- exchanged first, unless one of them was forced away.
  local function exchange(key, arg)
    local old, token = args[arg], args[arg + 1]
    local value = call('GET', key)
    local forced = call('EXISTS', FORCED .. redis.sha1hex(old), FORCED .. redis.sha1hex(token))
    local err = fault(value) or fault(forced)
    if err then
      return err
    elseif value ~= token and (value ~= old or forced > 0) then
      return forced > 0 and -1 or 0
    end
    local set = value == old and call('SET', key, token, 'KEEPTTL')
    if set and set.err then
      return set
    end
    local done = call('PEXPIRE', key, args[arg + 2], 'GT')
    return type(done) == 'table' and done or 1
  end

  -- raiseIfHeld raises the counter of a record if the token holds the key.
  local function raiseIfHeld(key, token, record)
    if not holds(key, token) then
      return 0
    end
    local text = fenceOf(record)
    raise(record, tonumber(text), text)
    return 1
  end

  -- The operations that ballot.lua does not have, in the order of operation.go. Each returns
  -- its reply. arg is the index of its first argument, record the number of its record.

  local function confirm(key, arg, record)
    local token, ttl, fence = args[arg], args[arg + 1], tonumber(fenceOf(record))
    local value = call('GET', key)
    local forced = call('EXISTS', FORCED .. redis.sha1hex(token))
    local err = fault(value) or fault(forced) or tooFar(record, fence)
    if err then
      return err
    elseif forced == 1 then
      return -1
    elseif value ~= token then
      return 0
    end
    local done = call('PEXPIRE', key, ttl, 'GT')
    local waited = call('EXISTS', key .. '\0t')
    if type(done) == 'table' or type(waited) == 'table' then
      return type(done) == 'table' and done or waited
    end
    raise(record, fence, fenceOf(record))
    return 1 + waited
  end

  -- holders shows up to a number of holders, in the order of their places and tokens, after the given
  -- token; of a lock that nobody holds, whose turn it is. Expired members that were not pruned yet are shown
  -- with 0, because the next page begins after the last one.
  local function holders(key, most, token)
    local value = call('GET', key)
    if type(value) == 'table' then
      return value
    elseif value and not isKind(value) then
      return {shown(value), call('PTTL', key)}
    elseif not value or not lastExpiry(key) then
      local waiter, ms = waiters().turnLeft(key)
      return waiter and {TURN, ms, waiters().tokenOf(waiter), ms} or {}
    end
    prune(key)
    local reply, all = {value, call('PTTL', key)}, nil
    if value == SHARED then
      all = call('ZRANGE', key .. '\0s', token == '' and '-' or '(' .. token, '+', 'BYLEX', 'LIMIT', 0, most)
    else
      all = call('ZRANGE', key .. '\0s', '(' .. placeOf(token, value), '+inf', 'BYSCORE', 'LIMIT', 0, most)
    end
    for i, one in ipairs(all) do
      local score = call('ZSCORE', key .. '\0m', one)
      reply[2 * i + 1], reply[2 * i + 2] = shown(one), type(score) == 'string' and left(score) or 0
    end
    return reply
  end

  local function who(key, arg) return holders(key, FEW, args[arg]) end

  local function raiseCounter(key, arg, record)
    return tooFar(record, tonumber(fenceOf(record))) or raiseIfHeld(key, args[arg], record)
  end

  local function repair(key, arg, record)
    local token = args[arg]
    local refused = late or tooFar(record, tonumber(fenceOf(record)))
    if not refused and not isForced(token) then
      local set = call('SET', key, token, 'NX', 'PX', args[arg + 1])
      if set and set.err then
        refused = set
      end
    end
    return refused or raiseIfHeld(key, token, record)
  end

  local function repairShared(key, arg, record)
    local token, ttl, kind = args[arg], args[arg + 1], args[arg + 2]
    local refused = late or tooFar(record, tonumber(fenceOf(record)))
    if not refused and not isForced(token) then
      local blocked, isFree = joinBlocker(key, token, kind)
      blocked = blocked or addMember(key, token, kind, ttl, isFree)
      if blocked and blocked.err then
        refused = blocked
      end
    end
    return refused or raiseIfHeld(key, token, record)
  end

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
      return value and leave(key, token, value) or 0
    end
    return delete(key) or 1
  end

  local function reenter(key, arg) return waiters().enter(key, args[arg], args[arg + 1]) end

  local function endWait(key, arg)
    waiters().leave(key, args[arg])
    return 1
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

  -- How many arguments each operation has, and which of them have a record.
  local arguments = {a = 2, n = 1, s = 3, h = 3, e = 2, g = 2, u = 3, v = 2, r = 1, w = 1, f = 1, p = 2, q = 3, z = 2, x = 2, i = 2, k = 2, d = 1, c = 0, y = 3, o = 0}
  local counted = {a = 1, n = 1, s = 1, h = 1, v = 1, f = 1, p = 1, q = 1}

  -- withdrawVotes replaces by an error the replies that count on counters that were not
  -- written.
  local function withdrawVotes(replies, err)
    for i = 1, #keys - 1 do
      local reply = replies[i]
      local voted = type(reply) == 'number' and reply ~= 0 or type(reply) == 'table' and type(reply[1]) == 'number'
      if voted and counted[sub(letters, i, i)] then
        replies[i] = err
      end
    end
  end

  return {
    acquire = acquire, acquireAll = acquireAll, handOverBlocker = handOverBlocker, fence = fence,
    extend = extend, leave = leave, callNext = callNext,
    enter = function(key, entry, ticket) return waiters().enter(key, entry, ticket) end,
    taken = function(key, entry) waiters().taken(key, entry) end,
    operations = {
      g = downgrade, u = exchange, v = confirm, w = who, f = raiseCounter, p = repair, q = repairShared,
      z = noteForced, x = force,
      k = reenter, d = endWait, c = readCounters, y = scan, o = describe,
    },
    arguments = arguments, counted = counted, withdrawVotes = withdrawVotes,
  }
end
