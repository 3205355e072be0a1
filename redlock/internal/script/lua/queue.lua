-- The wait queue of a lock: the waiters of all hosts, in the order of their tickets. When the lock
-- becomes free, this node calls the first waiter by name: it is that waiter's turn. A request for
-- several names stands in the queue of the one that it waits for. The queue is advice. Who holds the
-- lock never depends on it.
--
-- Keys, which a lock has only while clients wait for it:
--   key\0q  the entries of the waiters, by ticket: a sorted set
--   key\0t  'until entry' while it is the turn of this entry, until an instant in microseconds of
--           TIME. Otherwise 0. It exists as long as there are entries, so a RELEASE that deletes it
--           together with the lock knows that clients wait
--   redlockd:host:ID  exists while the daemon ID waits for any lock and lives. It is also the
--           name of the channel on which this daemon is notified
--
-- An entry is 'host kind turn token': the id of the daemon, the kind of the lock (- if exclusive),
-- for how many milliseconds its turn lasts, and a token that no lock has.
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
  -- How many entries at the head of a queue a call looks at: of those that wait to share the lock, and
  -- usually.
  local LOOK, FIRST = 64, 6
  -- How many entries after the callees are told when to ask, and how many milliseconds after each
  -- other: all before them may be gone. See askingWaiters in retry.go.
  local ASKING, LATER = 4, 200
  -- How far a ticket may be ahead of TIME, in microseconds.
  local AHEAD = 1000000

  local removable = 512 -- how many entries of hosts that are gone this script may still remove
  local alive = {}      -- whether a host lives, as far as this script has looked

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
      return entry, till - now <= 1000 * (lasts or 0) and till or 0
    end
  end

  -- endTurn makes it nobody's turn.
  local function endTurn(key)
    if call('EXISTS', key .. '\0q') == 1 then
      call('SET', key .. '\0t', '0', 'PX', QUEUE_TTL)
    else
      call('DEL', key .. '\0t')
    end
  end

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
    local taken = value and call('ZCOUNT', key .. '\0m', string.format('(%.0f', math.floor(now / 1000)), '+inf')
    return (tonumber(match(kind, '%d+$')) or 0) - (type(taken) == 'number' and taken or 0)
  end

  local function isAlive(host)
    if host and alive[host] == nil then
      alive[host] = call('EXISTS', HOST .. host) == 1
    end
    return host and alive[host]
  end

  -- head returns the first entries of hosts that live, and removes those before them. The second
  -- result is true if there may be more of these than the script may remove. No entry is read twice:
  -- behind those of hosts that live there may be many others.
  local function head(key, most)
    local list, size = {}, most
    while true do
      local gone, entries = {}, call('ZRANGE', key .. '\0q', #list, #list + size - 1)
      for _, entry in ipairs(entries) do
        if #list == most then
          break
        elseif isAlive(parse(entry)) then
          list[#list + 1] = entry
        elseif removable > 0 then
          gone[#gone + 1], removable = entry, removable - 1
        end
      end
      if gone[1] then
        call('ZREM', key .. '\0q', unpack(gone))
      end
      if #list == most or #entries < size or removable == 0 then
        return list, #list < most and #entries == size
      end
      size = LOOK -- where some are gone, there may be many
    end
  end

  -- callees returns the first entries. It also returns how many of them can have the lock now, how many
  -- clients of that kind can have it, and whether entries of hosts that are gone hide others.
  local function callees(key)
    local list, hidden = head(key, FIRST)
    if not list[1] then
      return list, 0, 0, hidden
    end
    local _, kind = parse(list[1])
    local left, n = room(key, kind), 0
    if kind ~= EXCLUSIVE and left >= FIRST and #list == FIRST then
      list, hidden = head(key, LOOK)
    end
    while n < left and list[n + 1] and select(2, parse(list[n + 1])) == kind do
      n = n + 1
    end
    return list, n, left, hidden
  end

  -- notify sends a message to the host of an entry.
  local function notify(key, entry, what)
    local host = parse(entry)
    if host then
      call('PUBLISH', HOST .. host, what .. '\0' .. key .. '\0' .. entry)
    end
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
    local list, n, _, hidden = callees(key)
    if n == 0 then
      endTurn(key)
      if hidden then -- the last ones are told: each attempt removes more
        tellFollowing(key, -ASKING, -1, 1)
      end
      return
    end
    local first, till = turnOf(key)
    local given = first ~= list[1] or till <= now
    if given then
      local _, _, lasts = parse(list[1])
      till = now + 1000 * lasts
      call('SET', key .. '\0t', string.format('%.0f ', till) .. list[1], 'PX', QUEUE_TTL)
    end
    for i = 1, n do
      if given or i > 1 then
        notify(key, list[i], 'turn')
      end
    end
    tellFollowing(key, n, n + ASKING - 1, (till - now) / 1000)
  end

  -- passOver ends a turn that was not used. The entry goes to the end of the queue until its client
  -- asks again. Other tickets may be ahead of TIME.
  local function passOver(key, entry)
    local last = call('ZRANGE', key .. '\0q', -1, -1, 'WITHSCORES')
    call('ZADD', key .. '\0q', 'XX', string.format('%.0f', math.max(now, tonumber(last[2]) or 0) + 1), entry)
    endTurn(key)
  end

  -- before returns the entry that is to have a lock before a client, and for how many more
  -- milliseconds; nil: the client can have it now, as far as its holders allow. entry is the client's; nil: it
  -- does not wait. Its ticket decides if the entry is not in this queue.
  local function before(key, entry, kind, ticket)
    local who, till = turnOf(key)
    if who == entry and who then
      return nil
    end
    if who and (till <= now or not call('ZSCORE', key .. '\0q', who)) then
      passOver(key, who)
      who = nil
    end
    local list, n, left, hidden = callees(key)
    local mine, theirs = false, not who
    for i = 1, n do
      mine, theirs = mine or list[i] == entry, theirs or list[i] == who
    end
    if not list[1] then
      mine = not hidden
    elseif not mine and not who and ticket and not call('ZSCORE', key .. '\0q', entry) then
      mine = tonumber(ticket) < tonumber(call('ZSCORE', key .. '\0q', list[1]))
    end
    if not mine and not hidden and n == #list and n < math.min(left, LOOK) then -- there is room for all
      mine = select(2, parse(list[1])) == kind
    end
    if mine and theirs then
      if not list[1] then
        endTurn(key) -- nobody may wait any more
      end
      return nil
    end
    if not who and not hidden then
      callNext(key)
      who, till = turnOf(key)
    elseif hidden and entry then -- it asks again, and more are removed
      notify(key, entry, 'next 1')
    end
    local shown = who or list[n + 1] or hidden and call('ZRANGE', key .. '\0q', 0, 0)[1]
    if not shown then
      return nil
    end
    local _, _, lasts = parse(shown)
    return shown, math.max(math.ceil(who and (till - now) / 1000 or lasts or 1), 1)
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
    if alive[host] ~= 'entered' then
      call('SET', HOST .. host, '1', 'PX', HOST_TTL)
      alive[host] = 'entered'
    end
    if not call('SET', key .. '\0t', '0', 'NX', 'PX', QUEUE_TTL) then
      call('PEXPIRE', key .. '\0t', QUEUE_TTL)
    end
    -- An acquire looks for waiters until this instant.
    if not state.queuesUntil or 1000 * state.queuesUntil < now + 500 * QUEUE_TTL then
      state.queuesUntil = math.ceil(now / 1000) + QUEUE_TTL
      call('HSET', KEYS[1], 'queues', string.format('%.0f', state.queuesUntil))
    end
    return call('ZRANK', queue, entry) + 1
  end

  -- turnLeft returns the entry whose turn it is, and for how many milliseconds; nil: it is nobody's.
  local function turnLeft(key)
    local entry, till = turnOf(key)
    if entry and till > now then
      return entry, math.ceil((till - now) / 1000)
    end
  end

  -- tokenOf returns the token of an entry.
  local function tokenOf(entry) return match(entry, '^%S+ %S+ %d+ (.*)') or '' end

  -- list returns the tokens of the first entries, each followed by how many milliseconds it has
  -- waited.
  local function list(key)
    local first, entries = {}, call('ZRANGE', key .. '\0q', 0, LOOK - 1, 'WITHSCORES')
    for i = 1, #entries, 2 do
      first[i], first[i + 1] = tokenOf(entries[i]), math.max(math.floor((now - tonumber(entries[i + 1])) / 1000), 0)
    end
    return first
  end

  -- remove takes an entry out of the queue. It returns whether the entry was there.
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
    local rank = call('ZRANK', key .. '\0q', entry)
    local removed, ttl = remove(key, entry), call('PTTL', key)
    if type(rank) == 'number' and rank < ASKING and type(ttl) == 'number' and ttl >= 0 then
      local first = call('ZRANGE', key .. '\0m', 0, 0, 'WITHSCORES') -- of those that share it
      ttl = first[2] and tonumber(first[2]) - now / 1000 or ttl
      tellFollowing(key, rank, ASKING - 1, ttl + LATER * rank)
    end
    return removed
  end

  -- taken removes an entry whose client has this node's vote now. Of those that wait to share the lock, a
  -- call names no more than LOOK, so the next one is called. If it was nobody's turn, because the first one
  -- is gone, all of them are.
  local function taken(key, entry)
    local who, _, kind = turnOf(key), parse(entry)
    if not remove(key, entry) or kind == EXCLUSIVE then
      return
    elseif not who then
      callNext(key)
    else
      local next = call('ZRANGE', key .. '\0q', LOOK - 1, LOOK - 1)[1]
      if next and select(2, parse(next)) == kind then
        notify(key, next, 'turn')
      end
    end
  end

  return {
    before = before, callNext = callNext, enter = enter, leave = leave, taken = taken,
    turnLeft = turnLeft, tokenOf = tokenOf, list = list,
  }
end
