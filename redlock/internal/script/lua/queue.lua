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
-- A message has the parts 'what \0 key \0 entry'. What is 'turn', of one or more entries of a host, or
-- 'next MS': the entry is behind those whose turn it is, or the lock is held. If it is not called within
-- MS milliseconds, all before it may be gone, and it should ask.
--
-- This file precedes ballot.lua in the same script: see there for KEYS, ARGV and the reply. state is that of
-- rare.lua, and lib what that file shares with this one.
local function queueOperations(state, lib)
  local call, find, match, sub = redis.pcall, string.find, string.match, string.sub
  local now = lib.micros -- TIME
  local HOST = 'redlockd:host:'
  local EXCLUSIVE, SHARED = lib.EXCLUSIVE, lib.SHARED

  -- How long a host counts as alive after it entered, or after its last look at this node.
  local HOST_TTL = 3500
  -- How long a queue lasts without a waiter that enters: a waiter enters again three times as often.
  local QUEUE_TTL = 60000
  -- How many entries at the head of a queue a call looks at: usually, and at most. How many it calls
  -- together if they can share the lock: each of them that takes it calls one more.
  local FIRST, LOOK, CALLED = 6, 64, 16
  -- How many hosts after the callees are told when to ask, and how many milliseconds after each
  -- other: all before them may be gone. See askingWaiters in retry.go.
  local ASKING, LATER = 4, 200
  -- For how many milliseconds at most others are told to leave a turn alone: its host may be gone.
  local CHECK = 1000
  -- How far a ticket may be ahead of TIME, in microseconds.
  local AHEAD = 1000000

  local removable = 512 -- how many entries of hosts that are gone this script may still remove
  local alive = {}      -- whether a host lives, as far as this script has looked
  local parsed = {}     -- the parts of entries, as far as this script has looked

  -- parse returns the host, the kind and the turn of an entry.
  local function parse(entry)
    local parts = parsed[entry]
    if not parts then
      local host, kind, turn = match(entry, '^(%S+) (%S+) (%d+) ')
      parts = {host, kind, tonumber(turn)}
      parsed[entry] = parts
    end
    return parts[1], parts[2], parts[3]
  end

  local function kindOf(entry)
    local _, kind = parse(entry)
    return kind
  end

  -- hostOf returns the host of an entry: less work than parse, if it is read once.
  local function hostOf(entry) return match(entry, '^%S+') or '' end

  -- canShare returns whether the clients of two entries can share a lock.
  local function canShare(one, other)
    local kind = kindOf(one)
    return kind ~= EXCLUSIVE and kind == kindOf(other)
  end

  -- entries returns the entries of these ranks.
  local function entries(key, from, to) return call('ZRANGE', key .. '\0q', from, to) end

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
    if type(value) == 'string' and lib.isKind(value) and not lib.shared().lastExpiry(key) then
      value = false
    end
    if not lib.isKind(kind) then -- exclusive, or of another version
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
  -- behind those of hosts that live there may be many others. list has the first ones that head returned
  -- before; nil: none.
  local function head(key, most, list)
    list = list or {}
    local size = most - #list
    while true do
      local gone, read = {}, entries(key, #list, #list + size - 1)
      for _, entry in ipairs(read) do
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
      if #list == most or #read < size or removable == 0 then
        return list, #list < most and #read == size
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
    local kind = kindOf(list[1])
    local left, n = room(key, kind), 0
    if kind ~= EXCLUSIVE and left >= FIRST and #list == FIRST then
      list, hidden = head(key, CALLED, list)
    end
    while n < left and list[n + 1] and kindOf(list[n + 1]) == kind do
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

  -- tell tells the first of these entries of each host when to ask: the first host in ms milliseconds.
  local function tell(key, list, ms)
    local told, n = {}, 0
    for _, entry in ipairs(list) do
      local host = hostOf(entry)
      if not told[host] and n < ASKING and parse(entry) then
        notify(key, entry, string.format('next %.0f', math.max(ms, 1) + LATER * n))
        told[host], n = true, n + 1
      end
    end
  end

  -- tellFollowing tells the hosts after the first n entries when to ask.
  local function tellFollowing(key, n, ms)
    local list, hosts, several = entries(key, n, n + ASKING - 1), {}, 0
    for _, entry in ipairs(list) do
      local host = hostOf(entry)
      several = several + (hosts[host] and 0 or 1)
      hosts[host] = true
    end
    if several < ASKING and #list == ASKING then -- one host has many entries, and may be gone
      list = entries(key, n, n + LOOK - 1)
    end
    tell(key, list, ms)
  end

  -- callNext gives the turn to the entries that can have the lock now, and notifies them and those
  -- that follow. If it is the first one's turn already, that one was notified, and so were as many of
  -- the entries as called says, if they are of that kind.
  local function callNext(key, called, kind)
    local had = removable
    local list, n, _, hidden = callees(key)
    called = list[1] and kindOf(list[1]) == kind and math.max(called - (had - removable), 0) or 0
    if n == 0 then
      endTurn(key)
      if hidden then -- the last ones are told: each attempt removes more
        tell(key, entries(key, -ASKING, -1), 1)
      end
      return
    end
    local first, till = turnOf(key)
    local given = first ~= list[1] or till <= now
    if given and first and till > now and not canShare(first, list[1]) and call('ZSCORE', key .. '\0q', first) then
      return -- list[1] entered again before it, and was not called
    end
    if given then
      local _, _, lasts = parse(list[1])
      till = now + 1000 * lasts
      call('SET', key .. '\0t', string.format('%.0f ', till) .. list[1], 'PX', QUEUE_TTL)
    end
    local hosts, theirs, isNew = {}, {}, false -- theirs: the entries of each host that are called
    for i = 1, n do
      local host = parse(list[i])
      isNew = not theirs[host]
      if isNew then
        hosts[#hosts + 1], theirs[host] = host, ''
      end
      if i > called and (given or i > 1) then
        theirs[host] = theirs[host] .. '\0' .. list[i]
      end
    end
    for _, host in ipairs(hosts) do
      if theirs[host] ~= '' then
        call('PUBLISH', HOST .. host, 'turn\0' .. key .. theirs[host])
      end
    end
    if called == 0 or n > called and isNew and #hosts < ASKING then -- all of them may be gone
      tellFollowing(key, n, math.min((till - now) / 1000, CHECK))
    end
  end

  -- stillCalled returns how many of the entries that are the first without this one were called, and their
  -- kind. So many clients can have had the lock before it.
  local function stillCalled(key, entry, left)
    local who, till = turnOf(key)
    local rank = call('ZRANK', key .. '\0q', entry)
    if not who or till <= now or type(rank) ~= 'number' then
      return 0
    elseif canShare(who, entry) then
      return math.min(CALLED, left) - (rank < CALLED and 1 or 0), kindOf(who)
    end
    return entry == who and 0 or rank, kindOf(who)
  end

  -- passOver ends a turn that was not used. The entry goes to the end of the queue until its client
  -- asks again. Other tickets may be ahead of TIME.
  local function passOver(key, entry)
    local last = call('ZRANGE', key .. '\0q', -1, -1, 'WITHSCORES')
    call('ZADD', key .. '\0q', 'XX', string.format('%.0f', math.max(now, tonumber(last[2]) or 0) + 1), entry)
    endTurn(key)
  end

  -- mayShare returns whether a client can share the lock together with the callees, of whom there are so
  -- many: its entry is behind them, or there is room for all entries and for a client that does not wait.
  local function mayShare(key, entry, kind, called, left)
    local rest = called == CALLED and entries(key, CALLED, LOOK - 1) or {}
    for i, one in ipairs(rest) do
      if one == entry then
        return called + i <= left
      elseif kindOf(one) ~= kind then
        return false
      end
    end
    return called + #rest < math.min(left, LOOK)
  end

  -- before returns the entry that is to have a lock before a client, and for how many more
  -- milliseconds; nil: the client can have it now, as far as its holders allow. entry is the client's; nil: it
  -- does not wait. Its ticket decides if the entry is not in this queue.
  local function before(key, entry, kind, ticket)
    local who, till = turnOf(key)
    if who == entry and who then
      return nil
    end
    if who and (till <= now or not isAlive(parse(who)) or not call('ZSCORE', key .. '\0q', who)) then
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
    if not mine and not hidden and list[1] and n == #list and kind == kindOf(list[1]) then
      mine = mayShare(key, entry, kind, n, left)
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
    local shown = who or list[n + 1] or hidden and entries(key, 0, 0)[1]
    if not shown then
      return nil
    end
    local _, _, lasts = parse(shown)
    return shown, math.max(math.ceil(math.min(who and (till - now) / 1000 or lasts or 1, CHECK)), 1)
  end

  -- position returns the position of an entry, from 1 on. Of the entries of a host, only the first one counts
  -- as one of the first: these ask when the lock may be free, and all of one host may be gone.
  local function position(key, entry, host)
    local rank, hosts, n = call('ZRANK', key .. '\0q', entry), {}, 0
    for _, size in ipairs(rank < ASKING and {} or {ASKING, LOOK}) do
      hosts, n = {}, 0
      for _, one in ipairs(entries(key, 0, size - 1)) do
        local other = hostOf(one)
        if one == entry then
          return n + 1
        elseif other == host or n == ASKING then
          return rank + 1
        end
        n = n + (hosts[other] and 0 or 1)
        hosts[other] = true
      end
      if n == ASKING then
        break
      end
    end
    return rank + 1
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
    return position(key, entry, host)
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

  -- leave removes an entry whose client waits no longer, and calls the next one if it can have the lock. If
  -- the lock is held, those that become one of the first are told when it ends: its holder may be gone.
  local function leave(key, entry)
    local rank, called, kind = call('ZRANK', key .. '\0q', entry), stillCalled(key, entry, room(key, kindOf(entry)))
    if not remove(key, entry) then
      return
    end
    local ttl = call('PTTL', key)
    if type(rank) == 'number' and rank < ASKING and type(ttl) == 'number' and ttl >= 0 then
      local first = call('ZRANGE', key .. '\0m', 0, 0, 'WITHSCORES') -- of those that share it
      ttl = first[2] and tonumber(first[2]) - now / 1000 or ttl
      tell(key, entries(key, rank, ASKING - 1), ttl + LATER * rank)
    end
    callNext(key, called, kind)
  end

  -- taken removes an entry whose client has this node's vote now. If others can share the lock, one more of
  -- them is called, and the turn passes to the first. So none depends on another one.
  local function taken(key, entry)
    local kind = kindOf(entry)
    if kind == EXCLUSIVE then
      remove(key, entry)
      return
    end
    local left, rank = room(key, kind), call('ZRANK', key .. '\0q', entry)
    local called = stillCalled(key, entry, left + 1)
    if remove(key, entry) then
      callNext(key, called, kind)
      local next = rank >= CALLED and left > rank and entries(key, rank, rank)[1]
      if next and kindOf(next) == kind then -- those before it may be gone
        notify(key, next, 'turn')
      end
    end
  end

  return {
    before = before, callNext = callNext, enter = enter, leave = leave, taken = taken,
    turnLeft = turnLeft, tokenOf = tokenOf, list = list,
  }
end
