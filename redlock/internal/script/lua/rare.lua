-- The operations of ballot.lua that are rarely needed, and the rare cases of the others: several names,
-- waiters, foreign values, fencing counters. queue.lua, share.lua and admin.lua precede this file, and
-- ballot.lua, which has KEYS, ARGV and the reply, follows it in the same script. Each of them has one
-- function that makes all others, and captures nothing. So a call pays for what it needs.
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

  -- What the other files need of this one.
  local lib = {
    SHARED = SHARED, EXCLUSIVE = EXCLUSIVE, TURN = TURN, FORCED = FORCED,
    now = now, micros = t[1] * 1000000 + t[2], isKind = isKind, shown = shown, left = left, after = after, fault = fault, isForced = isForced,
  }

  local shares, queue, admin -- the functions of share.lua, queue.lua and admin.lua, once they are needed

  local function shared()
    shares = shares or shareOperations(lib)
    return shares
  end
  lib.shared = shared

  local function waiters()
    queue = queue or queueOperations(state, lib)
    return queue
  end
  lib.waiters = waiters

  local function haveWaiters(key) return call('EXISTS', key .. '\0t') == 1 end

  -- holds tells whether the token holds the lock, alone or together with others.
  local function holds(key, token)
    local value = call('GET', key)
    return value == token or isKind(value) and shared().isMember(key, token)
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
  -- token, and all of their counters are raised to it. record is the last name's. Clients waited for the names in waited.
  local function fenceAll(from, to, record, waited)
    local most, sign = 0, 1
    for i = from, to do
      most = math.max(most, fence(record - to + i))
      sign = waited[i] and haveWaiters(keys[i + 1]) and -1 or sign
    end
    for i = from, to do -- before any: a counter that is far ahead must not take the others along
      local refused = tooFar(record - to + i, most)
      if refused then
        return refused
      end
    end
    local text = string.format('%.0f', most)
    for i = from, to do
      raise(record - to + i, most, text)
    end
    return sign * most
  end

  -- Waiters.

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

  -- overtaken shows the waiter that a client would overtake if it took the key, for which clients wait; nil:
  -- it would overtake none. The client enters the queue first if it stands there, so that this node calls the
  -- same waiter as the others.
  local function overtaken(key, kind, entry, ticket, stands)
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
    return shared().lastExpiry(key) and shared().holder(key, value) or nil, true
  end

  -- callNext gives the turn to the next waiters.
  local function callNext(key) waiters().callNext(key) end

  -- notifyWaiters calls the next waiters, if there are any.
  function lib.notifyWaiters(key)
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
    lib.notifyWaiters(key)
  end
  lib.delete = delete

  -- The cases that ballot.lua leaves to this file. Each returns nil if the lock was acquired,
  -- or what blocked it: a table. Of several names, the reply to each of them.

  -- acquire acquires the key of the i-th operation.
  local function acquire(i, token, ttl, record, next)
    local key = keys[i + 1]
    local refused, isFree = exhausted(record), false
    if not refused then
      refused, isFree = blocker(key, token)
    end
    if not refused and isFree and haveWaiters(key) then
      refused = overtaken(key, EXCLUSIVE, entryOf(i, next))
    end
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
    return shared().joinBlocker(key, token, kind)
  end

  -- blockerOf is holderOf, and looks at other clients that wait, too. The third result is whether there are any.
  local function blockerOf(key, token, kind, ...)
    local blocked, isFree = holderOf(key, token, kind)
    local waits = not blocked and call('EXISTS', key .. '\0t')
    if type(waits) == 'table' then
      return waits
    elseif waits == 1 and (isFree or kind ~= EXCLUSIVE and not shared().isMember(key, token)) then
      blocked = overtaken(key, kind, ...)
    end
    return blocked, isFree, waits == 1
  end

  -- acquireAll acquires several names, or shares one or several: all or none. It writes the reply to each of
  -- them, and returns what blocks the first one that is not free; otherwise their fencing token.
  local function acquireAll(replies, from, to, token, kind, ttl, record, next)
    local refused, isFree, waited, entry, ticket, stands = nil, {}, {}, entryOf(to, next)
    for i = from, to do
      local blocked = exhausted(record - to + i)
      if not blocked and refused then -- it is not granted, so it overtakes nobody
        blocked = holderOf(keys[i + 1], token, kind)
      elseif not blocked then
        blocked, isFree[i], waited[i] = blockerOf(keys[i + 1], token, kind, entry, ticket, stands)
      end
      refused, replies[i] = refused or blocked, blocked or 0
    end
    if refused then
      return refused
    end
    local failed
    local till = kind ~= EXCLUSIVE and after(ttl)
    for i = from, to do
      if till then
        failed = failed or shared().addMember(keys[i + 1], token, kind, ttl, till, isFree[i])
      else
        local set = call('SET', keys[i + 1], token, 'PX', ttl)
        failed = failed or set.err and set
      end
    end
    for key in pairs(stands) do -- its own entry is not another client that waits
      if not failed and haveWaiters(key) then
        waiters().taken(key, entry)
      end
    end
    local reply = failed or fenceAll(from, to, record, waited)
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
      local blocked, isFree = shared().joinBlocker(key, token, kind)
      blocked = blocked or shared().addMember(key, token, kind, ttl, after(ttl), isFree)
      if blocked and blocked.err then
        refused = blocked
      end
    end
    return refused or raiseIfHeld(key, token, record)
  end

  local function reenter(key, arg) return waiters().enter(key, args[arg], args[arg + 1]) end

  local function endWait(key, arg)
    waiters().leave(key, args[arg])
    return 1
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

  local operations = {
    u = exchange, v = confirm, f = raiseCounter, p = repair, q = repairShared, k = reenter, d = endWait,
  }

  -- operation returns the function of an operation that ballot.lua does not have.
  local function operation(letter)
    local one = operations[letter] or shared().operations[letter]
    if not one then
      admin = admin or adminOperations(lib)
      one = admin.operations[letter]
    end
    return one
  end

  return {
    acquire = acquire, acquireAll = acquireAll, handOverBlocker = handOverBlocker, fence = fence,
    extend = function(...) return shared().extend(...) end, leave = function(...) return shared().leave(...) end, callNext = callNext,
    enter = function(...) return waiters().enter(...) end, taken = function(...) waiters().taken(...) end,
    operation = operation, arguments = arguments, counted = counted, withdrawVotes = withdrawVotes,
  }
end
