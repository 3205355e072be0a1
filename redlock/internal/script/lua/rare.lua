-- What ballot.lua rarely needs: shared locks, several names, hand-overs, waiters. It precedes
-- ballot.lua in the same script. One function makes all others: a call that needs none of
-- them pays for one closure that captures nothing.
local function rareOperations(state)
  local call, sub = redis.pcall, string.sub
  local keys, records, fields, counters = KEYS, ARGV[4], state.fields, state.counters
  local late, clock, changed = state.late, state.clock, state.changed

  -- What the value of a key is that readers share, and what is shown of who waits.
  local SHARED, WRITER, KEPT = 'redlockd:shared', 'redlockd:writer', 'redlockd:kept'
  -- As in ballot.lua.
  local AHEAD, LIMIT = 1000000, 9006099743113216
  -- As in ballot.lua. A time that is left is cut as well: what somebody else wrote can be
  -- more than a number of Redis has.
  local SHOWN, LONGEST = 4096, 1000000000000000
  -- How many of those who share a lock are shown to whoever may be one of many who ask at
  -- once: what all of them are shown together is read at once, too.
  local FEW = 100
  -- How far a counter may be raised ahead of this node's TIME, in microseconds (52
  -- weeks): another node's word alone must not bring it near to LIMIT.
  local FARTHEST = 31449600000000
  -- For how many milliseconds a release is remembered that somebody waited for: until
  -- he has asked again, and was refused again.
  local ASKED = 250

  local t = call('TIME')
  local now = t[1] * 1000 + math.floor(t[2] / 1000)
  -- isKind: what else begins so is another client's.
  local function isKind(value)
    return value == SHARED or type(value) == 'string' and string.match(value, '^redlockd:slots=%d+$') ~= nil
  end

  local function shown(value) return sub(value, 1, SHOWN) end

  -- left is how long it is until an instant.
  local function left(instant) return math.min(instant - now, LONGEST) end

  -- fault is the error that stands for a value, but for that of a key of another type,
  -- which no token holds.
  local function fault(value)
    return type(value) == 'table' and sub(value.err, 1, 9) ~= 'WRONGTYPE' and value or nil
  end

  local function at(ttl) return string.format('%.0f', now + ttl) end

  -- settle forgets the members that have expired, and has the key last as long as
  -- the longest of the others: false where there are none, and none is the key. And
  -- the error of that: who takes or extends must not count on the key then.
  local function settle(key)
    local set = key .. '\0m'
    local gone = call('ZREMRANGEBYSCORE', set, '-inf', at(0)) -- also of this millisecond: PEXPIREAT would delete
    local last = call('ZRANGE', set, -1, -1, 'WITHSCORES')
    if last[2] then
      local done, also = call('PEXPIREAT', key, last[2]), call('PEXPIREAT', set, last[2])
      return true, type(gone) == 'table' and gone or type(done) == 'table' and done or type(also) == 'table' and also or nil
    elseif last.err then -- somebody wrote to it
      return true, last
    end
    call('DEL', key)
    return false
  end

  local function isMember(key, token)
    local score = call('ZSCORE', key .. '\0m', token)
    return type(score) == 'string' and tonumber(score) > now
  end

  -- holder shows by whom the key is held that has this value.
  local function holder(key, value)
    local reply = {value, call('PTTL', key)}
    local last = call('ZRANGE', key .. '\0m', -1, -1, 'WITHSCORES')
    if last[2] then
      reply[3], reply[4] = shown(last[1]), left(last[2])
    end
    return reply
  end

  -- place is nil where nobody else has the place with which the token begins. Or
  -- else, who has it, when the first of all is over, and a place that is free.
  local function place(key, token, kind)
    local members = call('ZRANGE', key .. '\0m', 0, -1, 'WITHSCORES')
    if members.err then
      return members
    end
    local wanted, slots = tonumber(string.match(token, '^%d+')), tonumber(string.match(kind, '%d+$'))
    local taken, refusal = {}, nil
    for i = 1, #members, 2 do
      local slot = tonumber(string.match(members[i], '^%d+'))
      if slot == wanted and members[i] ~= token then
        refusal = {kind, left(members[2]), shown(members[i]), left(members[i + 1]), 0}
      end
      taken[slot or 0] = true
    end
    for i = wanted, refusal and wanted + slots - 2 or 0 do
      if not taken[i % slots + 1] then
        refusal[5] = i % slots + 1
        break
      end
    end
    return refusal
  end

  -- obstacle is what keeps the token from those who share the key; nil: nothing.
  local function obstacle(key, token, kind)
    local value = call('GET', key)
    if type(value) == 'table' then
      return value
    elseif value and not isKind(value) then
      return {shown(value), call('PTTL', key)}
    elseif value and not settle(key) then
      value = false
    end
    if value and value ~= kind then
      return holder(key, value)
    end
    return value and kind ~= SHARED and place(key, token, kind) or nil
  end

  -- enter adds the token to those who share the key; or the error of it.
  local function enter(key, token, kind, ttl)
    if not call('GET', key) then -- of those whose key somebody deleted nobody comes back
      call('DEL', key .. '\0m')
    end
    local done = call('SET', key, kind, 'NX', 'PX', ttl)
    if done and done.err then
      return done
    end
    done = call('ZADD', key .. '\0m', 'GT', at(ttl), token)
    if type(done) == 'table' then
      return done
    end
    local _, err = settle(key)
    return err
  end

  -- refusal is why nothing can be granted by a record, whoever holds the lock.
  local function refusal(r)
    return late or counters[fields[r + 1]] >= LIMIT
      and redis.error_reply('FULL its fencing counter ' .. fields[r + 1] .. ' is at its end: somebody else wrote to it; HDEL redlockd:node epoch on this node, and after max_ttl it has the counters of the others')
  end

  -- far is why the counter of a record cannot be raised to so much; nil: it can.
  local function far(r, count)
    if count > counters[fields[r + 1]] and count > clock + FARTHEST then
      return redis.error_reply('FAR a fencing token is more than a year ahead of this node\'s clock: set that clock, or find the node that gives such tokens')
    end
  end

  -- fence is the fencing token of what is granted by a record; the counter has it
  -- from now on.
  local function fence(r)
    local field, text = fields[r + 1], sub(records, 18 * r - 15, 18 * r)
    local count, proposal = counters[field] + 1, tonumber(text)
    if proposal > count and proposal <= clock + AHEAD then
      count = proposal
    else
      text = string.format('%.0f', count)
    end
    counters[field] = count
    changed[#changed + 1] = field
    changed[#changed + 1] = text
    return count
  end

  -- raise has the counter of a record be no less than so much.
  local function raise(r, count, text)
    local field = fields[r + 1]
    if count > counters[field] then
      counters[field] = count
      changed[#changed + 1] = field
      changed[#changed + 1] = text
    end
  end

  -- blocker is what keeps the token from the key: nil where nothing does.
  local function blocker(key, token)
    local value = call('GET', key)
    if not value or value == token then
      return nil
    elseif not isKind(value) then
      return type(value) == 'table' and value or {shown(value), call('PTTL', key)}
    end
    return settle(key) and holder(key, value) or nil
  end

  -- granted is the reply where several names were taken: they have one token,
  -- which all of their counters get.
  local function granted(from, to, record)
    local most, wanted = 0, 1
    for i = from, to do
      most = math.max(most, fence(record - to + i))
      local wakeup = call('EXISTS', keys[i + 1] .. '\0b', keys[i + 1] .. '\0a')
      if type(wakeup) == 'table' then
        return wakeup
      end
      wanted = wakeup > 0 and -1 or wanted
    end
    for i = from, to do -- before any: a counter that is far ahead must not take the others along
      local refused = far(record - to + i, most)
      if refused then
        return refused
      end
    end
    for i = from, to do
      raise(record - to + i, most, string.format('%.0f', most))
    end
    return wanted * most
  end

  -- marked shows somebody else whose mark is there; how is what he is called.
  local function marked(where, mark, how)
    local other = call('GET', where)
    if type(other) == 'string' and other ~= mark then
      local ttl = call('PTTL', where)
      return {how, ttl, shown(other), ttl}
    end
  end

  -- markAfter is the mark of who asks in the i-th operation, and waits if he is
  -- refused. next is the argument behind his.
  local function markAfter(i, next)
    return sub(ARGV[3], i + 1, i + 1) == 'i' and next or nil
  end

  -- kept shows somebody else for whom a key is kept that the token does not hold.
  local function kept(key, token, mark)
    return call('GET', key) ~= token and marked(key .. '\0k', mark, KEPT) or nil
  end

  -- mark has one who waits be known by it, and kept in mind for so long. It is true
  -- where the mark is his.
  local function mark(where, whose, ttl)
    local set = call('SET', where, whose, 'NX', 'PX', ttl)
    if set then
      return not set.err
    end
    local his = call('GET', where) == whose
    if his then
      call('PEXPIRE', where, ttl, 'GT')
    end
    return his
  end

  return {refusal = refusal, fence = fence, far = far, raise = raise, blocker = blocker,
    mark = mark, markAfter = markAfter, kept = kept,

    -- take takes the i-th operation's key, which may be kept for somebody.
    take = function(i, token, ttl, next)
      local key = keys[i + 1]
      local refused = blocker(key, token) or kept(key, token, markAfter(i, next))
      local set = not refused and call('SET', key, token, 'NX', 'PX', ttl)
      return refused or set and set.err and set or nil
    end,

    -- all takes several names, or none: the reply to each of them. record is the last
    -- one's.
    all = function(from, to, token, ttl, record, keeping, next)
      local refused, mark = nil, markAfter(to, next)
      for i = from, to do
        refused = refused or refusal(record - to + i) or blocker(keys[i + 1], token)
      end
      for i = from, keeping and to or 0 do
        refused = refused or kept(keys[i + 1], token, mark)
      end
      for i = from, refused and 0 or to do
        local set = call('SET', keys[i + 1], token, 'PX', ttl)
        refused = refused or set.err and set
      end
      return refused or granted(from, to, record)
    end,

    -- share joins those who share one name or several, or none.
    share = function(from, to, token, ttl, record, kind, keeping, next)
      local refused, mark = nil, markAfter(to, next)
      for i = from, to do
        local key = keys[i + 1]
        refused = refused or refusal(record - to + i)
          or not isMember(key, token) and marked(key .. '\0w', mark, WRITER) or obstacle(key, token, kind)
      end
      for i = from, keeping and to or 0 do
        local key = keys[i + 1]
        refused = refused or not isMember(key, token) and marked(key .. '\0k', mark, KEPT) or nil
      end
      for i = from, refused and 0 or to do
        refused = refused or enter(keys[i + 1], token, kind, ttl)
      end
      return refused or granted(from, to, record)
    end,

    -- join is for one who has joined before.
    join = function(key, token, kind, ttl)
      return obstacle(key, token, kind) or enter(key, token, kind, ttl)
    end,

    -- holds tells whether the token holds the key.
    holds = function(key, token)
      local value = call('GET', key)
      return value == token or isKind(value) and isMember(key, token)
    end,

    -- intend has one who wants the key in one way be known to those who share it in
    -- another.
    intend = function(key, whose, ttl, wanted)
      local value = call('GET', key)
      if isKind(value) and value ~= wanted then
        mark(key .. '\0w', whose, ttl)
      end
    end,

    -- keep has the key be kept for one who waits, if it is for nobody: true where it
    -- is. Other calls know by the field keeps that they have to look.
    keep = function(key, whose, ttl)
      local his = mark(key .. '\0k', whose, ttl)
      if his then
        state.keeps = math.max(state.keeps, now + ttl)
        changed[#changed + 1] = 'keeps'
        changed[#changed + 1] = string.format('%.0f', state.keeps)
      end
      return his
    end,

    -- done forgets a mark, and tells those who were kept out for it.
    done = function(key, whose)
      for _, where in ipairs({key .. '\0w', key .. '\0k'}) do
        if call('GET', where) == whose then
          call('DEL', where, key .. '\0b')
        end
      end
      return 1
    end,

    -- leave is a release of a key that has this value.
    leave = function(key, token, value)
      if not isKind(value) then
        return fault(value) or 0
      end
      local done = call('ZREM', key .. '\0m', token)
      if done == 1 then
        settle(key)
        if call('DEL', key .. '\0b') == 1 then
          call('SET', key .. '\0a', '1', 'PX', ASKED)
        end
      end
      return done
    end,

    extend = function(key, token, ttl, value)
      local score = isKind(value) and call('ZSCORE', key .. '\0m', token)
      local err = fault(value) or fault(score)
      if err then
        return err
      elseif type(score) ~= 'string' or tonumber(score) <= now then
        return 0
      end
      call('PEXPIRE', key, ttl, 'GT') -- a node without memory lets a script write more that has written
      local done = call('ZADD', key .. '\0m', 'GT', at(ttl), token)
      local _, err = settle(key)
      return type(done) == 'table' and done or err or 1
    end,

    -- who shows all, or that they are many; of a lock that nobody holds, for whom it is
    -- kept.
    who = function(key, value, all)
      if value and not isKind(value) then
        return {shown(value), call('PTTL', key)}
      elseif not value or not settle(key) then
        return marked(key .. '\0k', nil, KEPT) or {}
      end
      local last = FEW
      if all then
        last = -1
      end
      local reply, members = {value, call('PTTL', key)}, call('ZRANGE', key .. '\0m', 0, last, 'WITHSCORES')
      if not all and #members > 2 * FEW then
        return reply
      end
      for i = 1, #members, 2 do
        reply[i + 2], reply[i + 3] = shown(members[i]), left(members[i + 1])
      end
      return reply
    end,
  }
end
