-- The wait queue of a lock: the waiters of all hosts, in the order of their tickets. A waiter stands
-- in it once. When the lock becomes free, this node calls the first waiter by name: it is that
-- waiter's turn. The queue is advice. Who holds the lock never depends on it.
--
-- Keys, which a lock has only while clients wait for it:
--   key\0q  the entries of the waiters, by ticket: a sorted set
--   key\0t  'until entry' while it is the turn of this entry, until an instant in microseconds of
--           TIME. Otherwise 0. It exists as long as there are entries, so a RELEASE that deletes it
--           together with the lock knows that clients wait
--   key\0p  how often an entry for several names was passed over: a sorted set. It lasts HOST_TTL
--           longer than the queue
--   redlockd:host:ID  exists while the daemon ID waits for any lock and lives. It is also the
--           name of the channel on which this daemon is notified
--
-- An entry is 'host kind turn token': the id of the daemon, the kind of the lock (- if exclusive),
-- for how many milliseconds its turn lasts, and a token that no lock has. If it is for several
-- names, \0 and each key follow, sorted.
--
-- A message has the parts 'what \0 key \0 entry'. What is 'turn', or 'next MS': the entry is behind
-- those whose turn it is, or the lock is held. If it is not called within MS milliseconds, all before
-- it may be gone, and it should ask.
--
-- state is that of rare.lua. now is TIME in microseconds. lastExpiry and isKind are functions of rare.lua.
local function queueOperations(state, now, lastExpiry, isKind)
  local call, find, match, sub = redis.pcall, string.find, string.match, string.sub
  local HOST = 'redlockd:host:'
  local EXCLUSIVE, SHARED = '-', 'redlockd:shared'

  -- How long a host counts as alive after it entered, or after its last look at this node.
  local HOST_TTL = 3500
  -- How long a queue lasts without a waiter that enters: a waiter enters again three times as often.
  local QUEUE_TTL = 60000
  -- How many entries at the head of a queue a call looks at, and how often it looks at as many more if
  -- the hosts of all of them are gone.
  local LOOK, MORE = 64, 16
  -- How often an entry for several names is passed over before the key is reserved for it although
  -- another of its names is held, and how many turns the reservation lasts.
  local PASSES, RESERVED = 16, 20
  -- How many entries after the callees are told when to ask, and how many milliseconds after each
  -- other: all before them may be gone. See askingWaiters in retry.go.
  local ASKING, LATER = 4, 200
  -- How far a ticket may be ahead of TIME, in microseconds.
  local AHEAD = 1000000

  local function parse(entry)
    local host, kind, turn = match(entry, '^(%S+) (%S+) (%d+) ')
    return host, kind, tonumber(turn)
  end

  -- turnOf returns the entry whose turn it is, and until when; nil: it is nobody's. A turn that ends
  -- later than any turn can has ended: TIME was set back.
  local function turnOf(key)
    local turn = call('GET', key .. '\0t')
    local at = type(turn) == 'string' and find(turn, ' ', 1, true)
    if at then
      local entry, till = sub(turn, at + 1), tonumber(sub(turn, 1, at - 1)) or 0
      local _, _, lasts = parse(entry)
      return entry, till - now <= 1000 * RESERVED * (lasts or 0) and till or 0
    end
  end

  -- endTurn makes it nobody's turn.
  local function endTurn(key)
    if call('EXISTS', key .. '\0q') == 1 then
      call('SET', key .. '\0t', '0', 'PX', QUEUE_TTL)
    else
      call('DEL', key .. '\0t')
      call('PEXPIRE', key .. '\0p', HOST_TTL)
    end
  end

  -- passes returns how often an entry was passed over.
  local function passes(key, entry) return tonumber(call('ZSCORE', key .. '\0p', entry) or 0) or 0 end

  -- room returns how many more clients can hold a lock of this kind now.
  local function room(key, kind)
    local value = call('GET', key)
    if type(value) == 'string' and isKind(value) and not lastExpiry(key) then
      value = false
    end
    if kind == EXCLUSIVE then
      return value and 0 or 1
    elseif value and kind ~= value then
      return 0
    elseif kind == SHARED then
      return LOOK
    end
    return (tonumber(match(kind, '%d+$')) or 0) - (value and call('ZCOUNT', key .. '\0m', string.format('(%.0f', math.floor(now / 1000)), '+inf') or 0)
  end

  -- heldElsewhere tells whether an entry for several names cannot have all others of them now. The
  -- second result is whether the first such name is sorted before this key: its holder may want
  -- this key next.
  local function heldElsewhere(key, entry, kind)
    local at = find(entry, '\0', 1, true)
    while at do
      local next = find(entry, '\0', at + 1, true)
      local other = sub(entry, at + 1, next and next - 1)
      if other ~= key then
        local who, till = turnOf(other)
        if room(other, kind) < 1 or who and who ~= entry and till > now then
          return true, other < key
        end
      end
      at = next
    end
    return false
  end

  -- callees returns the entries that can have the lock now, in order; the first entry after them
  -- that waits for more than they do (nil: none); those for several names that were passed over;
  -- and how many more of their kind could have the lock. It removes entries of hosts that are gone.
  local function callees(key)
    local list, passed, left, kind = {}, {}, 0, nil
    for _ = 1, MORE do
      local gone = 0
      for _, entry in ipairs(call('ZRANGE', key .. '\0q', 0, LOOK - 1)) do
        local host, its = parse(entry)
        if not host or call('EXISTS', HOST .. host) ~= 1 then
          call('ZREM', key .. '\0q', entry)
          call('ZREM', key .. '\0p', entry)
          gone = gone + 1
        else
          local held, before = heldElsewhere(key, entry, its)
          if held and (before or passes(key, entry) < PASSES) then
            passed[#passed + 1] = entry
          else
            if not kind then
              kind, left = its, room(key, its)
            end
            if its ~= kind or left < 1 then
              return list, entry, passed, left, kind
            end
            list[#list + 1], left = entry, left - 1
          end
        end
      end
      if gone < LOOK then
        break
      end
    end
    return list, nil, passed, left, kind
  end

  -- notify sends a message to the host of an entry.
  local function notify(key, entry, what)
    call('PUBLISH', HOST .. parse(entry), what .. '\0' .. key .. '\0' .. entry)
  end

  -- tellFollowing tells the entries of these ranks when to ask: the first one in ms milliseconds.
  local function tellFollowing(key, from, to, ms)
    for i, entry in ipairs(call('ZRANGE', key .. '\0q', from, to)) do
      notify(key, entry, string.format('next %.0f', math.max(ms, 1) + LATER * (i - 1)))
    end
  end

  -- callNext gives the turn to the entries that can have the lock now, and notifies them and those
  -- that follow. If it is the first one's turn already, that one was notified.
  local function callNext(key)
    local list, next, passed = callees(key)
    if #list == 0 then
      endTurn(key)
      if passed[1] then -- it may be the turn of a client for another of its names that does not take it
        local _, _, lasts = parse(passed[1])
        notify(key, passed[1], string.format('next %.0f', 3 * lasts))
      end
      if not next then -- those that callees has looked at are gone, or cannot have the lock
        tellFollowing(key, #passed, #passed + ASKING - 1, 1)
      end
      return
    end
    local first, till = turnOf(key)
    local _, kind, lasts = parse(list[1])
    local given = first ~= list[1] or till <= now
    if given then
      if heldElsewhere(key, list[1], kind) then -- it was passed over often enough
        lasts = RESERVED * lasts
      end
      till = now + 1000 * lasts
      call('SET', key .. '\0t', string.format('%.0f ', till) .. list[1], 'PX', QUEUE_TTL)
    end
    for i, entry in ipairs(list) do
      if given or i > 1 then
        notify(key, entry, 'turn')
      end
    end
    local left = math.max((till - now) / 1000, 1)
    if passed[1] then
      notify(key, passed[1], string.format('next %.0f', left))
    end
    local before = #list + #passed
    tellFollowing(key, before, before + ASKING - 1, left)
    for _, entry in ipairs(passed) do
      call('ZADD', key .. '\0p', passes(key, entry) + 1, entry)
      call('PEXPIRE', key .. '\0p', QUEUE_TTL)
    end
    if passed[1] then
      for _, entry in ipairs(call('ZRANGE', key .. '\0p', 0, -1)) do
        if not call('ZSCORE', key .. '\0q', entry) then -- its client has the lock, or asks no more: see taken
          call('ZREM', key .. '\0p', entry)
        end
      end
    end
  end

  -- passOver ends a turn that was not used. The entry goes to the end of the queue until its client
  -- asks again, unless it waits for another of its names. Other tickets may be ahead of TIME.
  local function passOver(key, entry)
    local _, kind = parse(entry)
    if heldElsewhere(key, entry, kind) then
      call('ZREM', key .. '\0p', entry)
    else
      local last = call('ZRANGE', key .. '\0q', -1, -1, 'WITHSCORES')
      call('ZADD', key .. '\0q', 'XX', string.format('%.0f', math.max(now, tonumber(last[2]) or 0) + 1), entry)
    end
    endTurn(key)
  end

  -- before returns the entry that is to have a free lock before a client, and for how many more
  -- milliseconds; nil: the client can have it now. entry is the client's, which stands in the
  -- queue; nil: it has none.
  local function before(key, entry, kind)
    local who, till = turnOf(key)
    if who == entry and who then
      return nil
    end
    if who and (till <= now or not call('ZSCORE', key .. '\0q', who)) then
      passOver(key, who)
      who = nil
    end
    local list, next, _, left, its = callees(key)
    local mine, theirs = false, not who
    for _, one in ipairs(list) do
      mine, theirs = mine or one == entry, theirs or one == who
    end
    if not entry then
      mine = not next and (#list == 0 or its == kind and left > 0)
    end
    if mine and theirs then
      if #list == 0 and not next then
        endTurn(key) -- nobody may wait any more
      end
      return nil
    end
    if not who then
      callNext(key)
      who, till = turnOf(key)
    end
    local shown = who or next
    if not shown then
      return nil
    end
    local _, _, lasts = parse(shown)
    return shown, math.max(math.ceil(who and (till - now) / 1000 or lasts), 1)
  end

  -- enter puts an entry into the queue, or an entry that was passed over back to its place: its client
  -- lives, and has the same place on all nodes. Otherwise the nodes would call different clients, again
  -- and again. enter returns its position, from 1 on; 0: it has none.
  local function enter(key, entry, ticket)
    local queue, host = key .. '\0q', parse(entry)
    if not host then
      return 0
    end
    local done
    if tonumber(ticket) <= now + AHEAD then
      done = call('ZADD', queue, ticket, entry)
    else -- the clients that asked before it stay before it
      done = call('ZADD', queue, 'NX', string.format('%.0f', now + AHEAD), entry)
    end
    if type(done) == 'table' then
      return 0
    end
    call('PEXPIRE', queue, QUEUE_TTL)
    call('SET', HOST .. host, '1', 'PX', HOST_TTL)
    if not call('SET', key .. '\0t', '0', 'NX', 'PX', QUEUE_TTL) then
      call('PEXPIRE', key .. '\0t', QUEUE_TTL)
    end
    -- An acquire looks for waiters until this instant.
    if not state.queuesUntil or 1000 * state.queuesUntil < now + 500 * QUEUE_TTL then
      state.queuesUntil = math.ceil(now / 1000) + QUEUE_TTL
      call('HSET', KEYS[1], 'queues', string.format('%.0f', state.queuesUntil))
    end
    for position, one in ipairs(call('ZRANGE', queue, 0, LOOK - 1)) do
      if one == entry then
        return position
      end
    end
    return LOOK + 1
  end

  -- yield passes the turn of an entry for several names on, because another of its names is held.
  local function yield(key, entry)
    if find(entry, '\0', 1, true) and turnOf(key) == entry and passes(key, entry) < PASSES then
      endTurn(key)
      callNext(key)
    end
  end

  -- turnLeft returns the entry whose turn it is, and for how many milliseconds; nil: it is nobody's.
  local function turnLeft(key)
    local entry, till = turnOf(key)
    if entry and till > now then
      return entry, math.ceil((till - now) / 1000)
    end
  end

  -- tokenOf returns the token of an entry.
  local function tokenOf(entry) return match(entry, '^%S+ %S+ %d+ ([^%z]*)') or '' end

  -- list returns the tokens of the first entries, each followed by how many milliseconds it has
  -- waited.
  local function list(key)
    local first, entries = {}, call('ZRANGE', key .. '\0q', 0, LOOK - 1, 'WITHSCORES')
    for i = 1, #entries, 2 do
      first[i], first[i + 1] = tokenOf(entries[i]), math.max(math.floor((now - tonumber(entries[i + 1])) / 1000), 0)
    end
    return first
  end

  -- remove takes an entry out of the queue, but keeps its passes. It returns whether the entry was there.
  local function remove(key, entry)
    local removed = call('ZREM', key .. '\0q', entry) == 1
    if turnOf(key) == entry or removed and call('EXISTS', key .. '\0q') == 0 then
      endTurn(key)
    end
    return removed
  end

  -- leave removes an entry whose client waits no longer. It returns whether the entry was there. If
  -- the lock is held, those that become one of the first are told when it ends: its holder may be gone.
  local function leave(key, entry)
    local rank
    for i, one in ipairs(call('ZRANGE', key .. '\0q', 0, ASKING - 1)) do
      rank = one == entry and i - 1 or rank
    end
    call('ZREM', key .. '\0p', entry)
    local removed, ttl = remove(key, entry), call('PTTL', key)
    if rank and type(ttl) == 'number' and ttl >= 0 then
      local first = call('ZRANGE', key .. '\0m', 0, 0, 'WITHSCORES') -- of those that share it
      ttl = first[2] and tonumber(first[2]) - now / 1000 or ttl
      tellFollowing(key, rank, ASKING - 1, ttl + LATER * rank)
    end
    return removed
  end

  -- taken removes an entry whose client has this node's vote now. It keeps the passes: without a
  -- quorum, the client gives the vote back and enters again. Otherwise the nodes would count from
  -- different instants, and would never reserve the key at the same time. Readers that were too many
  -- for one call are called when the first one has the lock. If the first one is gone, one of those
  -- that were told when to ask has it, in nobody's turn.
  local function taken(key, entry)
    local who = turnOf(key)
    local _, kind = parse(entry)
    remove(key, entry)
    if kind == SHARED and (not who or who == entry and #call('ZRANGE', key .. '\0q', LOOK - 1, LOOK - 1) > 0) then
      callNext(key)
    end
  end

  return {
    before = before, callNext = callNext, enter = enter, leave = leave, taken = taken, yield = yield,
    turnLeft = turnLeft, tokenOf = tokenOf, list = list,
  }
end
