-- What this node does for the ballots of one daemon: many operations in one call, in their
-- order. Only the incarnation of the node that was admitted votes: the script compares the
-- epoch in the call that votes, and reads it together with the fencing counters.
--
-- KEYS[1]    the node's own hash: the field epoch; a counter for each 1,024th of all names;
--            and queues, until when clients may wait for a lock, in milliseconds of this
--            node's TIME
-- KEYS[i+1]  the lock's key of the i-th operation
-- ARGV[1]    the epoch that must vote; '' for none: only RELEASE, REENTER and END_WAIT
-- ARGV[2]    not-after, in microseconds of this node's TIME
-- ARGV[3]    the opcodes, a letter each
-- ARGV[4]    18 characters for each operation with a counter (*), in turn: the field of the
--            name's counter (2) and a fencing token (16 digits)
-- ARGV[5…]   the arguments of each operation in turn. A ttl is in milliseconds
--
--   a ACQUIRE token ttl *             take the lock; the fencing token is a proposal
--   n ACQUIRE_ALSO token *            another name of the next ACQUIRE or JOIN: all or none
--   s JOIN token kind ttl *           share the lock with others of that kind
--   h HAND_OVER old token ttl *       exchange the token old for token, or as ACQUIRE
--   e EXTEND token ttl                extend; never shortens an expiry
--   g DOWNGRADE token ttl             as EXTEND; if the token holds the lock alone, readers can
--                                     share it from now on
--   u EXCHANGE old token ttl          as EXTEND of an exclusive lock; if old holds the key and
--                                     neither was forced away, exchange it for token
--   v CONFIRM token ttl *             as EXTEND of an exclusive lock, and raise the counter;
--                                     a token that was forced away does not hold the key
--   r RELEASE token                   release the lock
--   w WHO after                       show who holds it: of many, FEW after this token
--   f RAISE_COUNTER token *           raise the counter, if the token holds the lock
--   p REPAIR token ttl *              set the key if it is missing, and raise the counter
--   q REPAIR_SHARED token ttl kind *  the same of a shared lock
--   z NOTE_FORCED token ttl           note for ttl that the token was forced away: it is not
--                                     confirmed, handed over or repaired any more
--   x FORCE token ttl                 delete the lock if this token holds it, and note for
--                                     ttl that it must not come back
--   i ENTER entry ticket              the client of the acquire before this one waits: if it was
--                                     refused, its entry is put into the wait queue of this key;
--                                     otherwise it is removed
--   k REENTER entry ticket            put an entry into the wait queue, before the RELEASE that
--                                     follows: a client with too few votes gives them up
--   d END_WAIT entry                  remove an entry, and call the next if it was its turn
--   c READ_COUNTERS                   all fields of the node's hash
--   y SCAN cursor pattern count       one page of the keys that match, as SCAN returns it. The
--                                     key is the node's own
--   o DESCRIBE                        show who holds it, as WHO, and who waits for it, in order
--
-- Reply: an array with one element for each operation:
--   ACQUIRE  the fencing token of this node, if the key was set now or has this token already;
--      {value, pttl} if another value holds it; {kind, ms, waiter, ms} if it is the turn of
--      another waiter, for ms milliseconds, or readers may not overtake it; the error LATE past
--      not-after: nothing is set then
--   ACQUIRE_ALSO, JOIN, HAND_OVER  as ACQUIRE; negative if another client waits for the lock. Of
--      several names, 0 if this one is free, and another one is not.
--      If several share it or wait, {kind, pttl, token, pttl}, and a fifth element if another
--      holder has the place: a place that is free, or 0 (the first pttl is then until one is
--      free). Of HAND_OVER in an array of its own if the old token did not hold the key. It
--      releases an old token that was forced away, and shows it
--   EXTEND, DOWNGRADE, EXCHANGE  1 extended (and shared or exchanged now), 0 the token does not
--      hold the key, -1 it was forced away
--   CONFIRM  as EXTEND; 2 extended, and another client waits for the lock; FAR as
--      RAISE_COUNTER
--   NOTE_FORCED  1 the token holds the key, 0 it does not
--   RELEASE, FORCE  1 deleted, 0 the token does not hold the key (FORCE notes it anyway)
--   WHO  {value, pttl}; {kind, pttl, token, pttl, token, pttl…}, in the order of places and tokens; of
--      a free key {kind, ms, waiter, ms} if it is the turn of a waiter, or {}. If FEW are shown, others may
--      follow. A holder with 0 has expired
--   RAISE_COUNTER  1 raised, 0 the token does not hold the key; the error FAR, and nothing
--      is done, if the counter would be FARTHEST ahead of this node's TIME
--   REPAIR, REPAIR_SHARED  1 the token holds the key now, 0 another does, or it was forced
--      away; LATE as ACQUIRE, FAR as RAISE_COUNTER
--   ENTER, REENTER  the position in the queue, from 1 on; 0: it is not in the queue
--   END_WAIT  1
--   READ_COUNTERS  {field, value, …}
--   SCAN  {cursor, {key, …}}
--   DESCRIBE  {as WHO, {waiter, ms, waiter, ms…}}: the first waiters, and for how many milliseconds
--      each has waited. If more than FEWER share the lock, it is {kind, pttl}
-- A value is shown up to the length SHOWN.
-- An element can also be the error that Redis gave for this operation alone. (Of EXTEND,
-- RELEASE and RAISE_COUNTER a key of another type is 0: no token holds it.) The errors EPOCH
-- (another incarnation) and COUNTERS (it lost these) mean no vote, for all but releases.
--
-- A lock may have these keys besides its own, for as long as they are needed:
--   key\0m  the holders that share it: their tokens, by the millisecond at which each
--           expires. The key itself then has the kind as its value, as long as the longest of
--           them, so foreign clients stay out: redlockd:shared, or redlockd:slots=K, where
--           each token begins with its place and a space
--   key\0s  the same tokens by their places; of readers, by the tokens themselves
--   key\0q, key\0t  the waiters: see queue.lua
--
-- Every group on every node runs this script. In a call with one operation, a function for
-- each operation costs more time than the operation's own code: so the operations of every
-- lock are sections of the loop below. All others are functions in queue.lua, share.lua, admin.lua and
-- rare.lua, which precede this file in the same script, and are made when a call needs the first of a file.
local call, byte, sub = redis.pcall, string.byte, string.sub
local keys, args = KEYS, ARGV
local node, letters, records, ops = keys[1], args[3], args[4], #keys - 1

-- The opcodes of the operations below, as byte() returns them: the names in operation.go.
local ACQUIRE, ACQUIRE_ALSO, JOIN, HAND_OVER = 97, 110, 115, 104 -- a n s h
local EXTEND, RELEASE = 101, 114 -- e r
local ENTER, REENTER, END_WAIT = 105, 107, 100 -- i k d

-- The prefix of the note that a token was forced away: see rare.lua.
local FORCED = 'redlockd:forced:'
-- The prefix of all kinds.
local KIND = 'redlockd:'

local AHEAD = 1000000          -- how far a proposal may be ahead of TIME, in microseconds:
                               -- one host's clock must not push all counters into the future
local LIMIT = 9006099743113216 -- 2^53 - 2^40: larger counters come too near to 2^53, up to
                               -- which a double counts exactly
local SHOWN = 4096             -- how much is shown of a foreign value, which may be megabytes

-- Does this node vote?
local noVote           -- the error of a node that does not: it only releases
local fields           -- of the node's hash: epoch, queues, and one for each record
local counters         -- by field; nil: no operation has a counter
local clock, late      -- microseconds; the error past not-after
local queuing          -- whether clients may wait for a lock now
local state            -- what rare.lua needs of these, and will write; nil: no counters
local EPOCH = 'EPOCH another incarnation than the one that was admitted'

if args[1] == '' then
  noVote = EPOCH
elseif records == '' then
  local known = call('HMGET', node, 'epoch')
  if known.err then
    noVote = known.err
  elseif known[1] ~= args[1] then
    noVote = EPOCH
  end
else
  fields = {'epoch', 'queues'}
  for at = 1, #records, 18 do
    fields[#fields + 1] = sub(records, at, at + 1)
  end
  local known = call('HMGET', node, unpack(fields))
  if known.err then
    noVote = known.err
  elseif known[1] ~= args[1] then
    noVote = EPOCH
  else
    counters = {}
    for i = 3, #fields do
      local count = tonumber(known[i])
      if not (count and count >= 0 and count <= LIMIT) then -- not a number is neither
        noVote = 'COUNTERS its fencing counters are gone'
        break
      end
      counters[fields[i]] = count
    end
    local t = call('TIME')
    clock = t[1] * 1000000 + t[2]
    if clock > tonumber(args[2]) then
      late = redis.error_reply('LATE the attempt was over when it reached this node')
    end
    local queuesUntil = tonumber(known[2]) or 0
    queuing = 1000 * queuesUntil > clock
    state = {counters = counters, clock = clock, late = late, queuesUntil = queuesUntil}
  end
end

local replies = {}
local arg, record = 5, 0 -- the next argument; the last record that was used

local refused    -- why the last acquire of any kind was refused: a table; otherwise it was granted
local others = 0 -- the names before the next acquire, by ACQUIRE_ALSO
local granted    -- the sign of a fencing token that is to be given: -1 if a client waits

local rare -- the functions of rare.lua, once they are needed

for i = 1, ops do
  local op, key, token = byte(letters, i), keys[i + 1], args[arg]

  if noVote and op ~= RELEASE and op ~= REENTER and op ~= END_WAIT then
    rare = rare or rareOperations(state)
    replies[i] = redis.error_reply(noVote)
    arg = arg + rare.arguments[sub(letters, i, i)]

  elseif op == ACQUIRE then -- token ttl *
    local ttl = args[arg + 1]
    arg, record = arg + 2, record + 1
    refused = nil
    if others > 0 then
      rare = rare or rareOperations(state)
      refused = rare.acquireAll(replies, i - others, i, token, '-', ttl, record, arg)
      others = 0
    else
      local set
      local blocked = late or counters[fields[record + 2]] >= LIMIT or queuing and call('EXISTS', key .. '\0t') == 1
      if not blocked then
        set = call('SET', key, token, 'NX', 'PX', ttl)
      end
      if set then
        if set.err then -- an error is true in Lua, and no vote
          refused = set
        end
      else
        local value = not blocked and call('GET', key)
        if type(value) == 'string' and value ~= token and sub(value, 1, 9) ~= KIND then
          refused = {sub(value, 1, SHOWN), call('PTTL', key)}
        elseif value ~= token then
          rare = rare or rareOperations(state)
          refused = rare.acquire(i, token, ttl, record, arg)
        end
      end
      if refused then
        replies[i] = refused
      else
        granted = 1
      end
    end

  elseif op == ACQUIRE_ALSO then -- token *
    arg, record, others = arg + 1, record + 1, others + 1

  elseif op == JOIN then -- token kind ttl *
    local ttl = args[arg + 2]
    local kind = args[arg + 1]
    arg, record = arg + 3, record + 1
    rare = rare or rareOperations(state)
    refused = rare.acquireAll(replies, i - others, i, token, kind, ttl, record, arg)
    others = 0

  elseif op == HAND_OVER then -- old token ttl *
    local new, ttl = args[arg + 1], args[arg + 2]
    arg, record = arg + 3, record + 1
    refused = nil
    local held = call('GET', key) == token
    if not held or late or counters[fields[record + 2]] >= LIMIT or call('EXISTS', FORCED .. redis.sha1hex(token)) ~= 0 then
      rare = rare or rareOperations(state)
      refused = rare.handOverBlocker(i, held and token, new, record)
    end
    if not refused then
      local set = call('SET', key, new, 'PX', ttl)
      local waits = set.err and set or call('EXISTS', key .. '\0t')
      if type(waits) == 'table' then
        refused = waits
      elseif held then
        granted = waits > 0 and -1 or 1
      else
        replies[i] = {rare.fence(record) * (waits > 0 and -1 or 1)}
      end
    end
    if refused then
      replies[i] = refused
    end

  elseif op == EXTEND then -- token ttl
    local value, reply = call('GET', key), nil
    if value == token then
      reply = call('PEXPIRE', key, args[arg + 1], 'GT')
      if reply == 0 then -- it lasts longer already
        reply = 1
      end
    else
      rare = rare or rareOperations(state)
      reply = rare.extend(key, token, args[arg + 1], value)
    end
    replies[i] = reply
    arg = arg + 2

  elseif op == RELEASE then -- token
    local value, reply = call('GET', key), 0
    if value == token then
      reply = call('DEL', key, key .. '\0t')
      if type(reply) == 'number' and reply > 1 then
        rare = rare or rareOperations(state)
        rare.callNext(key)
        reply = 1
      end
    elseif value then
      rare = rare or rareOperations(state)
      reply = rare.leave(key, token, value)
    end
    replies[i] = reply
    arg = arg + 1

  elseif op == ENTER then -- entry ticket
    local position = 0
    if type(refused) == 'table' and not refused.err then
      rare = rare or rareOperations(state)
      position = rare.enter(key, token, args[arg + 1])
      queuing = true
    elseif type(refused) ~= 'table' and queuing and call('EXISTS', key .. '\0t') == 1 then
      rare = rare or rareOperations(state)
      rare.taken(key, token)
    end
    replies[i] = position
    arg = arg + 2

  else
    rare = rare or rareOperations(state)
    local letter = sub(letters, i, i)
    record = record + (rare.counted[letter] or 0)
    replies[i] = rare.operation(letter)(key, arg, record)
    arg = arg + rare.arguments[letter]
    queuing = queuing or op == REENTER
  end

  if granted then -- give it a fencing token: as fence of rare.lua, which is not loaded for it
    local field, text = fields[record + 2], sub(records, 18 * record - 15, 18 * record)
    local count, proposal = counters[field] + 1, tonumber(text)
    if proposal > count and proposal <= clock + AHEAD then
      count = proposal
    else
      text = string.format('%.0f', count)
    end
    counters[field] = count
    local changed = state.changed
    if changed then
      local last = #changed
      changed[last + 1], changed[last + 2] = field, text
    else
      state.changed = {field, text}
    end
    replies[i] = granted * count
    granted = nil
  end
end

if state and state.changed then
  local done = call('HSET', node, unpack(state.changed))
  if type(done) == 'table' then -- not counted, so not voted
    rare = rare or rareOperations(state)
    rare.withdrawVotes(replies, done)
  end
end
return replies
