-- What this node does for the ballots of one daemon: many operations in one call, in their
-- order. Only the incarnation of the node that was admitted votes: the script compares the
-- epoch in the call that votes, and reads it together with the fencing counters.
--
-- KEYS[1]    the node's own hash: the field epoch; a counter for each 1,024th of all names;
--            and keeps, until when a lock may be reserved, in milliseconds of this node's
--            TIME
-- KEYS[i+1]  the lock's key of the i-th operation
-- ARGV[1]    the epoch that must vote; '' for none: only RELEASE and END_WAIT
-- ARGV[2]    not-after, in microseconds of this node's TIME
-- ARGV[3]    the opcodes, a letter each
-- ARGV[4]    18 characters for each operation with a counter (*), in turn: the field of the
--            name's counter (2) and a fencing token (16 digits)
-- ARGV[5…]   the arguments of each operation in turn. An opcode with [ttl] in upper case has
--            the ttl, in milliseconds, after its arguments. It holds for those after it, too
--
--   a ACQUIRE token [ttl] *             take the lock; the fencing token is a proposal
--   n ACQUIRE_ALSO token [ttl] *        another name of the next ACQUIRE or JOIN: all or none
--   s JOIN token kind [ttl] *           share the lock with others of that kind
--   h HAND_OVER old token [ttl] *       exchange the token old for token, or as ACQUIRE
--   e EXTEND token [ttl]                extend; never shortens an expiry
--   r RELEASE token                     release the lock
--   w WHO                               show who holds it, if these are not many
--   l LIST                              show all who hold it
--   f RAISE_COUNTER token *             raise the counter, if the token holds the lock
--   p REPAIR token ttl *                set the key if it is missing, and raise the counter
--   q REPAIR_SHARED token ttl kind *    the same of a shared lock
--   x FORCE token ttl                   delete the lock if this token holds it, and note for
--                                       ttl that it must not come back
--   i WAIT mark ttl                     the client that the acquire before this one refused
--                                       waits. It sets the wake-up key, and if others share
--                                       the lock in another way, the writer intent
--   k RESERVE mark ttl                  if it was refused, reserve the lock for this waiter,
--                                       unless it is reserved for another. Of several names,
--                                       reserve those up to the first that is held: its
--                                       holder may want the names after it
--   m INTEND_WRITE mark ttl             set the writer intent wherever readers share the lock
--   d END_WAIT mark                     delete the writer intent and the reservation of this
--                                       waiter
--   c READ_COUNTERS                     all fields of the node's hash
--
-- Reply: an array with one element for each operation:
--   ACQUIRE  the fencing token of this node, if the key was set now or has this token already;
--      {value, pttl} if another value holds it; {kind, pttl, mark, pttl} if it is reserved
--      for another waiter; the error LATE past not-after: nothing is set then
--   ACQUIRE_ALSO, JOIN, HAND_OVER  as ACQUIRE; negative if another client waits for the lock.
--      If several share it or wait, {kind, pttl, token, pttl}, and a fifth element if another
--      holder has the place: a place that is free, or 0 (the first pttl is then until one is
--      free). Of HAND_OVER in an array of its own if the old token did not hold the key
--   EXTEND  1 extended, 0 the token does not hold the key, -1 it was forced away
--   RELEASE, FORCE  1 deleted, 0 the token does not hold the key (FORCE notes it anyway)
--   WHO, LIST  {value, pttl}; {kind, pttl, token, pttl, token, pttl…}; of a free key
--      {kind, pttl, mark, pttl} if it is reserved, or {}. Of WHO {kind, pttl} if more than
--      FEW share it
--   RAISE_COUNTER  1 raised, 0 the token does not hold the key; the error FAR, and nothing
--      is done, if the counter would be FARTHEST ahead of this node's TIME
--   REPAIR, REPAIR_SHARED  1 the token holds the key now, 0 another does, or it was forced
--      away; LATE as ACQUIRE, FAR as RAISE_COUNTER
--   WAIT, RESERVE, INTEND_WRITE, END_WAIT  1
--   READ_COUNTERS  {field, value, …}
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
--   key\0b  the wake-up key: a client was refused and waits. A release or FORCE deletes it,
--           which CLIENT TRACKING reports to the client; EXTEND and HAND_OVER do not. If the
--           client was refused for a reservation, it ends with that: nobody may delete it
--   key\0a  a client waited when the lock was released, a moment ago
--   key\0w  the writer intent: the mark of a writer that waits for readers
--   key\0k  the reservation: the mark of the waiter that gets the lock next
--
-- Every group on every node runs this script: it makes no function, table or text that may
-- not be needed. What is rarely needed is in rare.lua, which precedes it in the same script.
local call, byte, sub = redis.pcall, string.byte, string.sub
local keys, args = KEYS, ARGV
local node, letters, records, ops = keys[1], args[3], args[4], #keys - 1

-- The opcodes, as byte() returns them: the same names as in operation.go. In upper case an
-- opcode has a ttl, which holds for those after it, too.
local ACQUIRE, ACQUIRE_ALSO, JOIN, HAND_OVER = 97, 110, 115, 104 -- a n s h
local EXTEND, RELEASE, WHO, LIST = 101, 114, 119, 108 -- e r w l
local RAISE_COUNTER, REPAIR, REPAIR_SHARED, FORCE = 102, 112, 113, 120 -- f p q x
local WAIT, RESERVE, INTEND_WRITE, END_WAIT, READ_COUNTERS = 105, 107, 109, 100, 99 -- i k m d c
local UPPER = 32 -- by how much upper case is smaller

-- The note about a token that was forced away has this prefix and the token's SHA1 as key.
local FORCED = 'redlockd:forced:'
-- The prefix of all kinds, the kind of readers, and what is shown for waiters.
local KIND, SHARED, WRITER, KEPT = 'redlockd:', 'redlockd:shared', 'redlockd:writer', 'redlockd:kept'

-- How far a proposal may be ahead of this node's TIME, in microseconds: the clock of one
-- host must not push all counters far into the future.
local AHEAD = 1000000
-- How much is shown of a foreign value, which may be megabytes.
local SHOWN = 4096
-- Beyond this, counters come too near to what a double can count (2^53).
local LIMIT = 9006099743113216 -- 2^53 - 2^40

local EPOCH = 'EPOCH another incarnation than the one that was admitted'

local replies, arg, record, refused = {}, 5, 0, nil -- record: of ARGV[4], the last one that was read
local fields, counters = {'epoch'}, nil -- counters: by field; nil where none is needed
local clock, late, ttl -- clock: microseconds, where there are counters
local keeps, keeping   -- until when a lock may be reserved; whether one may be now
local changed          -- fields and values to be written; nil: none

local rare -- the functions of rare.lua, once they are needed

-- release deletes a key that the token alone holds. If another value is there, it returns
-- that, too. (It captures nothing: see rare.lua.)
local function release(key, token)
  local call = redis.pcall
  local value = call('GET', key)
  if value ~= token then
    return 0, value
  end
  local done = call('DEL', key, key .. '\0b')
  if done == 2 then
    call('SET', key .. '\0a', '1', 'PX', 250) -- ASKED of rare.lua
  end
  return type(done) == 'table' and done or 1
end

local why -- the error of a node that has no vote
if args[1] == '' then
  why = EPOCH
else
  for at = 1, #records, 18 do
    fields[#fields + 1] = sub(records, at, at + 1)
  end
  fields[#fields + 1] = 'keeps'
  local known = call('HMGET', node, unpack(fields))
  if known.err then
    why = known.err
  elseif known[1] ~= args[1] then
    why = EPOCH
  elseif records ~= '' then
    counters = {}
    for i = 2, #fields - 1 do
      local count = tonumber(known[i])
      if not (count and count >= 0 and count <= LIMIT) then -- not a number is neither
        why = 'COUNTERS its fencing counters are gone'
        break
      end
      counters[fields[i]] = count
    end
    keeps = tonumber(known[#fields]) or 0
  end
end

if why then -- only releases
  local words = ops > 0 and letters ~= string.rep('r', ops)
    and {[ACQUIRE] = 1, [ACQUIRE_ALSO] = 1, [JOIN] = 2, [HAND_OVER] = 2, [EXTEND] = 1, [RELEASE] = 1, [RAISE_COUNTER] = 1, [REPAIR] = 2, [REPAIR_SHARED] = 3, [FORCE] = 2, [WAIT] = 2, [RESERVE] = 2, [INTEND_WRITE] = 2}
  for i = 1, ops do
    local op = byte(letters, i)
    if op == RELEASE then
      local key, token = keys[i + 1], args[arg]
      local done, value = release(key, token)
      if value then
        rare = rare or rareOperations({})
        done = rare.leave(key, token, value)
      end
      replies[i] = done
      arg = arg + 1
    elseif op == END_WAIT then
      rare = rare or rareOperations({})
      replies[i] = rare.done(keys[i + 1], args[arg])
      arg = arg + 1
    else
      replies[i] = redis.error_reply(why)
      arg = arg + (words[op] or words[op + UPPER] and words[op + UPPER] + 1 or 0)
    end
  end
  return replies
end

if counters then
  local t = call('TIME')
  clock = t[1] * 1000000 + t[2]
  late = clock > tonumber(args[2]) and redis.error_reply('LATE the attempt was over when it reached this node')
  keeping = 1000 * keeps > clock
end

local others = 0 -- names of the next acquire, by ACQUIRE_ALSO
local wanted     -- the kind that the last acquire wanted to share; nil: exclusive
local chain      -- all names of the acquire that were reserved so far are free
local granted    -- the sign of the fencing token: -1 if a client waits

local function loadRare()
  changed = changed or {}
  return rareOperations({fields = fields, counters = counters, late = late, clock = clock, keeps = keeping and keeps or 0, changed = changed})
end

for i = 1, ops do
  local key, op, token = keys[i + 1], byte(letters, i), args[arg]
  if op == RELEASE then
    local done, value = release(key, token)
    if value then
      rare = rare or loadRare()
      done = rare.leave(key, token, value)
    end
    replies[i] = done
    arg = arg + 1
  elseif op == ACQUIRE or op == ACQUIRE - UPPER then
    if op ~= ACQUIRE then
      arg = arg + 1
      ttl = args[arg]
    end
    arg = arg + 1
    record = record + 1
    refused = nil -- an embedded node's Lua keeps it in "refused = set.err and set"
    wanted, chain = nil, true
    if others > 0 then
      rare = rare or loadRare()
      refused = rare.all(i - others, i, token, ttl, record, keeping, args[arg])
      for j = i - others, i do
        replies[j] = refused
      end
      others = 0
    else
      local field = fields[record + 1]
      local count = counters[field] + 1
      if late then
        refused = late
      elseif count > LIMIT then
        rare = rare or loadRare()
        refused = rare.refusal(record)
      elseif keeping and call('EXISTS', key .. '\0k') == 1 then
        rare = rare or loadRare()
        refused = rare.take(i, token, ttl, args[arg])
        granted = not refused and 1
      else
        local set = call('SET', key, token, 'NX', 'PX', ttl)
        if set then
          refused = set.err and set -- an error is true in Lua, and no vote
        else
          local value = call('GET', key)
          if value == token then
            refused = nil
          elseif type(value) == 'string' and sub(value, 1, 9) ~= KIND then
            refused = {sub(value, 1, SHOWN), call('PTTL', key)}
          else
            rare = rare or loadRare()
            refused = rare.blocker(key, token)
            if not refused then -- nobody shares it any more
              set = call('SET', key, token, 'PX', ttl)
              refused = set.err and set
            end
          end
        end
        granted = not refused and 1
      end
      replies[i] = refused
    end
  elseif op == HAND_OVER or op == HAND_OVER - UPPER then
    local new = args[arg + 1]
    if op ~= HAND_OVER then
      arg = arg + 1
      ttl = args[arg + 1]
    end
    arg = arg + 2
    record = record + 1
    refused = nil
    wanted, chain = nil, true
    local held = call('GET', key) == token
    if held and not late and counters[fields[record + 1]] < LIMIT then
      local set = call('SET', key, new, 'PX', ttl)
      local wakeup = not set.err and call('EXISTS', key .. '\0b')
      refused = set.err and set or type(wakeup) == 'table' and wakeup
      granted = not refused and (wakeup > 0 and -1 or 1)
      replies[i] = refused
    else
      rare = rare or loadRare()
      refused = rare.refusal(record)
      if not refused and not held then
        refused = rare.blocker(key, new) or keeping and rare.kept(key, new, rare.markAfter(i, args[arg]))
      end
      if not refused then
        local set = call('SET', key, new, 'PX', ttl)
        refused = set.err and set
      end
      if refused then
        replies[i] = refused
      else
        local wakeup = call('EXISTS', key .. '\0b')
        local reply = type(wakeup) == 'table' and wakeup or rare.fence(record) * (wakeup > 0 and -1 or 1)
        replies[i] = held and reply or {reply}
      end
    end
  elseif op == EXTEND or op == EXTEND - UPPER then
    if op ~= EXTEND then
      arg = arg + 1
      ttl = args[arg]
    end
    arg = arg + 1
    local value = call('GET', key)
    if value == token then
      local done = call('PEXPIRE', key, ttl, 'GT')
      replies[i] = type(done) == 'table' and done or 1 -- an error is no vote
    else
      rare = rare or loadRare()
      replies[i] = rare.extend(key, token, ttl, value)
      if replies[i] == 0 and call('EXISTS', FORCED .. redis.sha1hex(token)) == 1 then
        replies[i] = -1
      end
    end
  elseif op == ACQUIRE_ALSO or op == ACQUIRE_ALSO - UPPER then
    if op ~= ACQUIRE_ALSO then
      arg = arg + 1
      ttl = args[arg]
    end
    arg = arg + 1
    record = record + 1
    others = others + 1
  elseif op == JOIN or op == JOIN - UPPER then
    local kind = args[arg + 1]
    if op ~= JOIN then
      arg = arg + 1
      ttl = args[arg + 1]
    end
    arg = arg + 2
    record = record + 1
    wanted, chain = kind, true
    rare = rare or loadRare()
    refused = rare.share(i - others, i, token, ttl, record, kind, keeping, args[arg])
    for j = i - others, i do
      replies[j] = refused
    end
    others = 0
  elseif op == RAISE_COUNTER or op == REPAIR or op == REPAIR_SHARED then
    record = record + 1
    rare = rare or loadRare()
    local text = sub(records, 18 * record - 15, 18 * record)
    replies[i] = op ~= RAISE_COUNTER and late or rare.far(record, tonumber(text))
    if op ~= RAISE_COUNTER then
      if not replies[i] and call('EXISTS', FORCED .. redis.sha1hex(token)) == 0 then
        local set
        if op == REPAIR then
          set = call('SET', key, token, 'NX', 'PX', args[arg + 1])
        else
          set = rare.join(key, token, args[arg + 2], args[arg + 1])
        end
        replies[i] = set and set.err and set
      end
    end
    replies[i] = replies[i] or 0
    arg = arg + (op == RAISE_COUNTER and 1 or op == REPAIR and 2 or 3)
    if replies[i] == 0 and rare.holds(key, token) then
      rare.raise(record, tonumber(text), text)
      replies[i] = 1
    end
  elseif op == FORCE then
    local set = call('SET', FORCED .. redis.sha1hex(token), '1', 'PX', args[arg + 1])
    local done, value = set.err and set, nil
    if not done then
      done, value = release(key, token)
    end
    if value then
      rare = rare or loadRare()
      done = rare.leave(key, token, value)
    end
    replies[i] = done
    arg = arg + 2
  elseif op == WAIT then
    if type(refused) == 'table' then
      local by = refused[1]
      if not refused.err then
        local last = args[arg + 1]
        if (by == KEPT or by == WRITER) and refused[2] >= 0 then
          last = math.max(math.min(last, refused[2]), 1)
        end
        call('SET', key .. '\0b', '1', 'NX', 'PX', last)
      end
      if type(by) == 'string' and sub(by, 1, 9) == KIND and by ~= wanted and by ~= WRITER and by ~= KEPT then
        rare = rare or loadRare()
        rare.intend(key, token, args[arg + 1], wanted)
      end
    else
      local waited = false
      if call('GET', key .. '\0w') == token then
        waited = true
        call('DEL', key .. '\0w')
      end
      if keeping and call('GET', key .. '\0k') == token then
        waited = true
        call('DEL', key .. '\0k')
      end
      if waited and wanted then -- others may join
        call('DEL', key .. '\0b')
      end
    end
    replies[i] = 1
    arg = arg + 2
  elseif op == RESERVE then
    if chain and type(refused) == 'table' and not refused.err and refused[1] ~= WRITER then
      rare = rare or loadRare()
      local value = call('GET', key)
      chain = false -- as with refused, an embedded node's Lua keeps it in "chain = a and b"
      if rare.keep(key, token, args[arg + 1]) and (not value or value == wanted) then
        chain = true
      end
      keeping = true
    end
    replies[i] = 1
    arg = arg + 2
  elseif op == INTEND_WRITE then
    if call('GET', key) == SHARED then
      rare = rare or loadRare()
      rare.mark(key .. '\0w', token, args[arg + 1])
    end
    replies[i] = 1
    arg = arg + 2
  elseif op == END_WAIT then
    rare = rare or loadRare()
    replies[i] = rare.done(key, token)
    arg = arg + 1
  elseif op == READ_COUNTERS then
    replies[i] = call('HGETALL', node)
  else
    local value = call('GET', key)
    if type(value) == 'table' then
      replies[i] = value
    else
      rare = rare or loadRare()
      replies[i] = rare.who(key, value, op == LIST)
    end
  end
  if granted then -- for its fencing token
    local field, text = fields[record + 1], sub(records, 18 * record - 15, 18 * record)
    local count, proposal = counters[field] + 1, tonumber(text)
    if proposal > count and proposal <= clock + AHEAD then
      count = proposal
    else
      text = string.format('%.0f', count)
    end
    counters[field] = count
    changed = changed or {}
    changed[#changed + 1] = field
    changed[#changed + 1] = text
    replies[i] = granted * count
    granted = nil
  end
end

if changed and changed[1] then
  local done = call('HSET', node, unpack(changed))
  if type(done) == 'table' then -- not counted, so not voted
    for i = 1, ops do
      local op = byte(letters, i)
      op = op < ACQUIRE and op + UPPER or op
      local reply = replies[i]
      local voted = type(reply) == 'number' and reply ~= 0 or type(reply) == 'table' and type(reply[1]) == 'number'
      if voted and (op == ACQUIRE or op == ACQUIRE_ALSO or op == JOIN or op == HAND_OVER or op == RAISE_COUNTER or op == REPAIR or op == REPAIR_SHARED) then
        replies[i] = done
      end
    end
  end
end
return replies
