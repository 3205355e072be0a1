-- What this node does for the ballots that wait for it: many operations in one
-- call, in the order in which they were asked for. Only the incarnation of the
-- node that was admitted votes: the epoch is compared in the very command that
-- votes, and read together with the fencing counters.
--
-- KEYS[1]    the node's own hash: the field epoch, a counter for each 1,024th of all
--            names; and keeps, until when locks may be kept for somebody, in
--            milliseconds of this node's TIME
-- KEYS[i+1]  the lock's key of the i-th operation
-- ARGV[1]    the epoch that votes are wanted of; '' for none: releases (r and d) only
-- ARGV[2]    not-after, in microseconds of this node's TIME
-- ARGV[3]    the operations, a letter each
-- ARGV[4]    18 characters for each of a, n, s, h, f, p and q, in turn: the field of
--            the name's counter (2) and a fencing token (16 digits)
-- ARGV[5…]   of each operation in turn its arguments; upper case A, N, S, H and E
--            have the ttl, in milliseconds, after their arguments, which holds for
--            those after them:
--   a token      acquire: take the lock; the fencing token is a proposal
--   n token      another name of the acquire (a or s) that comes next: all or none
--   s token kind join: take the lock together with others of that kind
--   h old token  hand over: from old to token, or as an acquire
--   e token      extend: never shortens an expiry
--   r token      release: give the lock back
--   w            who: show who holds it, where they are not many
--   l            list: show all who hold it
--   f token      fence: raise the counter, if the lock is still ours
--   p token ttl  repair: set the key where it is missing, and raise the counter
--   q token ttl kind  the same of one that joined
--   x token ttl  force: delete the lock if this token holds it, and note for ttl
--                that it must not come back
--   i mark ttl   intend: who was refused by the acquire before this one waits for
--                the lock to be free. Known by the mark, where it waits for those
--                who share the lock in another way: they become no more
--   k mark ttl   keep: where he was refused, the lock is kept for him from now on, if
--                it is for nobody: nobody else is granted it. Of several names, those
--                up to the first that is not to be had: who holds that one may want
--                those behind it
--   m mark ttl   mark: who knows himself by the mark waits for those who share the
--                lock, wherever they do: they become no more
--   d mark       done: whose mark this is waits no more, nor is the lock kept for him
--   c            counters: all fields of the node's hash
--
-- Reply: an array with one element for each operation:
--   a  the fencing token that this node gives, where the key was set now or holds
--      this very token already; {value, pttl} where another value holds it;
--      {kind, pttl, mark, pttl} where it is kept for another;
--      the error LATE past not-after: nothing is set later
--   n, s, h  as a; negative where somebody is waiting for the lock. Where several
--      share it or wait, {kind, pttl, token, pttl}; and a fifth element where
--      another has the place that was asked for: one that is free, or 0 (the first
--      pttl is then until one is free). Of h, in
--      an array of its own where the old token did not hold the key any more
--   e  1 extended, 0 where the token does not hold the key, -1 where it was
--      forced away
--   r  1 deleted, 0 where the token does not hold the key
--   w, l  {value, pttl}, {kind, pttl, token, pttl, token, pttl…}; where the key is free
--      {kind, pttl, mark, pttl} if it is kept for somebody, or {}. Of w, {kind, pttl}
--      where more than FEW share it
--   f  1 raised, 0 where the token does not hold the key; the error FAR: the
--      counter would be FARTHEST ahead of this node's TIME, nothing is done
--   p, q  1 where the token holds the key now, 0 where another does, or it was
--      forced away; LATE as a, FAR as f
--   x  1 deleted, 0 where the token does not hold the key: noted all the same
--   i, k, m, d  1
--   c  {field, value, …}
--   a value is shown up to the length SHOWN.
--   Or the error that Redis gave for this operation alone (of e, r and f, a key of
--   another type is 0: no token holds it). The errors EPOCH, another incarnation,
--   and COUNTERS, it lost these, of everything but releases: no vote.
--
-- Beside a lock's key there may be, for no longer than they are needed:
--   key\0m  who shares it: their tokens, by the millisecond at which each expires.
--           The key itself has the kind as its value then, as long as the longest
--           of them, so that other clients stay out: redlockd:shared, or
--           redlockd:slots=K, where each token begins with its place and a space
--   key\0b  the bell: somebody was refused and waits. It is deleted when the lock is
--           given back or forced away, which is what CLIENT TRACKING tells him; not
--           when it is extended or handed over. Of who was refused for another's mark
--           it ends with that: nobody may come who would delete it
--   key\0a  somebody waited when the lock was given back, a moment ago
--   key\0w  the mark of one who waits for those who share
--   key\0k  the mark of one whom the lock is kept for
--
-- It runs for every group on every node: what is rare is made where it is met,
-- and no function, table or text is made that may not be needed. What is rarest is
-- in rare.lua, which stands before this in the same script.
local call, byte, sub = redis.pcall, string.byte, string.sub
local keys, args = KEYS, ARGV
local node, letters, records, ops = keys[1], args[3], args[4], #keys - 1

-- The letters, as byte has them, and what upper case is less.
local A, C, D, E, F, H, I, K, L, M, N, P, Q, R, S, X = 97, 99, 100, 101, 102, 104, 105, 107, 108, 109, 110, 112, 113, 114, 115, 120
local UPPER = 32

-- The notes of what was forced away have keys that begin so, and the token's SHA1.
local FORCED = 'redlockd:forced:'
-- What the value of a key begins with that several share, and is where readers do.
local KIND, SHARED, WRITER, KEPT = 'redlockd:', 'redlockd:shared', 'redlockd:writer', 'redlockd:kept'

-- How far a proposal may be ahead of this node's TIME, in microseconds: the
-- clock of one host must not push all counters far into the future.
local AHEAD = 1000000
-- How much is shown of a value that is none of ours, which may be megabytes.
local SHOWN = 4096
-- Beyond this, counters come too near to what a double can count (2^53).
local LIMIT = 9006099743113216 -- 2^53 - 2^40

local EPOCH = 'EPOCH another incarnation than the one that was admitted'

local replies, arg, record, refused = {}, 5, 0, nil -- record: the last one that was read
local fields, counters = {'epoch'}, nil -- counters: by field; nil where none is needed
local clock, late, ttl -- clock: microseconds, where there are counters
local keeps, keeping   -- until when a lock may be kept for somebody; whether one may be now
local changed          -- fields and values to be written; nil: none

local rare -- what make made, of rare.lua

-- release gives a key back that the token holds alone. Where another value is there,
-- it returns that too. (It captures nothing: see rare.lua.)
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

local why -- nothing that this node says is a vote
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
    and {[A] = 1, [N] = 1, [S] = 2, [H] = 2, [E] = 1, [R] = 1, [F] = 1, [P] = 2, [Q] = 3, [X] = 2, [I] = 2, [K] = 2, [M] = 2}
  for i = 1, ops do
    local op = byte(letters, i)
    if op == R then
      local key, token = keys[i + 1], args[arg]
      local done, value = release(key, token)
      if value then
        rare = rare or make({})
        done = rare.leave(key, token, value)
      end
      replies[i] = done
      arg = arg + 1
    elseif op == D then
      rare = rare or make({})
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

local others = 0 -- names of the acquire that comes next
local wanted     -- the kind that the last acquire wanted to share; nil: alone
local chain      -- the names of the acquire that were kept so far are to be had
local granted    -- what to multiply the fencing token with: -1 where somebody waits

local function seldom()
  changed = changed or {}
  return make({fields = fields, counters = counters, late = late, clock = clock, keeps = keeping and keeps or 0, changed = changed})
end

for i = 1, ops do
  local key, op, token = keys[i + 1], byte(letters, i), args[arg]
  if op == R then
    local done, value = release(key, token)
    if value then
      rare = rare or seldom()
      done = rare.leave(key, token, value)
    end
    replies[i] = done
    arg = arg + 1
  elseif op == A or op == A - UPPER then
    if op ~= A then
      arg = arg + 1
      ttl = args[arg]
    end
    arg = arg + 1
    record = record + 1
    refused = nil -- an embedded node's Lua keeps it in "refused = set.err and set"
    wanted, chain = nil, true
    if others > 0 then
      rare = rare or seldom()
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
        rare = rare or seldom()
        refused = rare.refusal(record)
      elseif keeping and call('EXISTS', key .. '\0k') == 1 then
        rare = rare or seldom()
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
            rare = rare or seldom()
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
  elseif op == H or op == H - UPPER then
    local new = args[arg + 1]
    if op ~= H then
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
      local bell = not set.err and call('EXISTS', key .. '\0b')
      refused = set.err and set or type(bell) == 'table' and bell
      granted = not refused and (bell > 0 and -1 or 1)
      replies[i] = refused
    else
      rare = rare or seldom()
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
        local bell = call('EXISTS', key .. '\0b')
        local reply = type(bell) == 'table' and bell or rare.fence(record) * (bell > 0 and -1 or 1)
        replies[i] = held and reply or {reply}
      end
    end
  elseif op == E or op == E - UPPER then
    if op ~= E then
      arg = arg + 1
      ttl = args[arg]
    end
    arg = arg + 1
    local value = call('GET', key)
    if value == token then
      local done = call('PEXPIRE', key, ttl, 'GT')
      replies[i] = type(done) == 'table' and done or 1 -- an error is no vote
    else
      rare = rare or seldom()
      replies[i] = rare.extend(key, token, ttl, value)
      if replies[i] == 0 and call('EXISTS', FORCED .. redis.sha1hex(token)) == 1 then
        replies[i] = -1
      end
    end
  elseif op == N or op == N - UPPER then
    if op ~= N then
      arg = arg + 1
      ttl = args[arg]
    end
    arg = arg + 1
    record = record + 1
    others = others + 1
  elseif op == S or op == S - UPPER then
    local kind = args[arg + 1]
    if op ~= S then
      arg = arg + 1
      ttl = args[arg + 1]
    end
    arg = arg + 2
    record = record + 1
    wanted, chain = kind, true
    rare = rare or seldom()
    refused = rare.share(i - others, i, token, ttl, record, kind, keeping, args[arg])
    for j = i - others, i do
      replies[j] = refused
    end
    others = 0
  elseif op == F or op == P or op == Q then
    record = record + 1
    rare = rare or seldom()
    local text = sub(records, 18 * record - 15, 18 * record)
    replies[i] = op ~= F and late or rare.far(record, tonumber(text))
    if op ~= F then
      if not replies[i] and call('EXISTS', FORCED .. redis.sha1hex(token)) == 0 then
        local set
        if op == P then
          set = call('SET', key, token, 'NX', 'PX', args[arg + 1])
        else
          set = rare.join(key, token, args[arg + 2], args[arg + 1])
        end
        replies[i] = set and set.err and set
      end
    end
    replies[i] = replies[i] or 0
    arg = arg + (op == F and 1 or op == P and 2 or 3)
    if replies[i] == 0 and rare.holds(key, token) then
      rare.raise(record, tonumber(text), text)
      replies[i] = 1
    end
  elseif op == X then
    local set = call('SET', FORCED .. redis.sha1hex(token), '1', 'PX', args[arg + 1])
    local done, value = set.err and set, nil
    if not done then
      done, value = release(key, token)
    end
    if value then
      rare = rare or seldom()
      done = rare.leave(key, token, value)
    end
    replies[i] = done
    arg = arg + 2
  elseif op == I then
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
        rare = rare or seldom()
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
  elseif op == K then
    if chain and type(refused) == 'table' and not refused.err and refused[1] ~= WRITER then
      rare = rare or seldom()
      local value = call('GET', key)
      chain = false -- as with refused, an embedded node's Lua keeps it in "chain = a and b"
      if rare.keep(key, token, args[arg + 1]) and (not value or value == wanted) then
        chain = true
      end
      keeping = true
    end
    replies[i] = 1
    arg = arg + 2
  elseif op == M then
    if call('GET', key) == SHARED then
      rare = rare or seldom()
      rare.mark(key .. '\0w', token, args[arg + 1])
    end
    replies[i] = 1
    arg = arg + 2
  elseif op == D then
    rare = rare or seldom()
    replies[i] = rare.done(key, token)
    arg = arg + 1
  elseif op == C then
    replies[i] = call('HGETALL', node)
  else
    local value = call('GET', key)
    if type(value) == 'table' then
      replies[i] = value
    else
      rare = rare or seldom()
      replies[i] = rare.who(key, value, op == L)
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
      op = op < A and op + UPPER or op
      local reply = replies[i]
      local voted = type(reply) == 'number' and reply ~= 0 or type(reply) == 'table' and type(reply[1]) == 'number'
      if voted and (op == A or op == N or op == S or op == H or op == F or op == P or op == Q) then
        replies[i] = done
      end
    end
  end
end
return replies
