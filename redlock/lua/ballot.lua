-- What this node does for the ballots that wait for it: many operations in one
-- call, in the order in which they were asked for. Only the incarnation of the
-- node that was admitted votes: the epoch is compared in the very command that
-- votes, and read together with the fencing counters.
--
-- KEYS[1]    the node's own hash: the field epoch, and a counter for each 1,024th
--            of all names
-- KEYS[i+1]  the lock's key of the i-th operation
-- ARGV[1]    the epoch that votes are wanted of; '' for none: releases only
-- ARGV[2]    not-after, in microseconds of this node's TIME
-- ARGV[3]    the operations, a letter each
-- ARGV[4]    18 characters for each of a, f and p, in turn: the field of the
--            name's counter (2) and a fencing token (16 digits)
-- ARGV[5…]   of each operation in turn its arguments; upper case A and E have the
--            ttl, in milliseconds, after the token, which holds for the a and e
--            after them:
--   a token      acquire: take the lock; the fencing token is a proposal
--   e token      extend: never shortens an expiry
--   r token      release: give the lock back
--   w            who: show who holds it
--   f token      fence: raise the counter, if the lock is still ours
--   p token ttl  repair: set the key where it is missing, and raise the counter
--   x token ttl  force: delete the lock if this token holds it, and note for ttl
--                that it must not come back
--   c            counters: all fields of the node's hash
--
-- Reply: an array with one element for each operation:
--   a  the fencing token that this node gives, where the key was set now or holds
--      this very token already; {value, pttl} where another value holds it;
--      the error LATE past not-after: nothing is set later
--   e  1 extended, 0 where the token does not hold the key, -1 where it was
--      forced away
--   r  1 deleted, 0 where the token does not hold the key
--   w  {value, pttl}, or {} where the key is free
--   f  1 raised, 0 where the token does not hold the key
--   p  1 where the token holds the key now, 0 where another does, or it was forced
--      away; LATE as a
--   x  1 deleted, 0 where the token does not hold the key: noted all the same
--   c  {field, value, …}
--   or the error that Redis gave for this operation alone (of e, r and f, a key of
--   another type is 0: no token holds it). The errors EPOCH, another incarnation,
--   and COUNTERS, it lost these, of everything but releases: no vote.
--
-- It runs for every group on every node: what is rare is made where it is met,
-- and no function, table or text is made that may not be needed.
local call, byte, sub = redis.pcall, string.byte, string.sub
local keys, args = KEYS, ARGV
local node, letters, records, ops = keys[1], args[3], args[4], #keys - 1

-- The letters, as byte has them.
local A, A_TTL, C, E, E_TTL, F, P, R, W, X = 97, 65, 99, 101, 69, 102, 112, 114, 119, 120

-- The notes of what was forced away have keys that begin so, and the token's SHA1.
local FORCED = 'redlockd:forced:'

-- How far a proposal may be ahead of this node's TIME, in microseconds: the
-- clock of one host must not push all counters far into the future.
local AHEAD = 1000000
-- Beyond this, counters come too near to what a double can count (2^53).
local LIMIT = 9006099743113216 -- 2^53 - 2^40

local EPOCH = 'EPOCH another incarnation than the one that was admitted'

local replies, arg = {}, 5
local fields, counters = {'epoch'}, nil -- counters: by field; nil where none is needed

local why -- nothing that this node says is a vote
if args[1] == '' then
  why = EPOCH
else
  for at = 1, #records, 18 do
    fields[#fields + 1] = sub(records, at, at + 1)
  end
  local known = call('HMGET', node, unpack(fields))
  if known.err then
    why = known.err
  elseif known[1] ~= args[1] then
    why = EPOCH
  elseif records ~= '' then
    counters = {}
    for i = 2, #fields do
      local count = tonumber(known[i])
      if not (count and count >= 0 and count <= LIMIT) then -- not a number is neither
        why = 'COUNTERS its fencing counters are gone'
        break
      end
      counters[fields[i]] = count
    end
  end
end

if why then -- only releases
  for i = 1, ops do
    local op = byte(letters, i)
    if op == R then
      replies[i] = call('GET', keys[i + 1]) == args[arg] and call('DEL', keys[i + 1]) or 0
    else
      replies[i] = redis.error_reply(why)
    end
    if op == A_TTL or op == E_TTL or op == P or op == X then
      arg = arg + 2
    elseif op ~= W and op ~= C then
      arg = arg + 1
    end
  end
  return replies
end

local now, late
if counters then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
  late = now > tonumber(args[2]) and redis.error_reply('LATE the attempt was over when it reached this node')
end

local ttl
local record = 0 -- the last one that was read
local changed    -- fields and values to be written; nil: none
for i = 1, ops do
  local key, op, token = keys[i + 1], byte(letters, i), args[arg]
  if op == R then
    replies[i] = call('GET', key) == token and call('DEL', key) or 0
    arg = arg + 1
  elseif op == A or op == A_TTL then
    if op == A_TTL then
      arg = arg + 1
      ttl = args[arg]
    end
    arg = arg + 1
    record = record + 1
    local field = fields[record + 1]
    local count = counters[field] + 1
    if late then
      replies[i] = late
    elseif count > LIMIT then
      replies[i] = redis.error_reply('FULL its fencing counter ' .. field .. ' is at its end')
    else
      local set = call('SET', key, token, 'NX', 'PX', ttl)
      local value = set and token or call('GET', key)
      if set and set.err then
        replies[i] = set -- an error is true in Lua, and no vote
      elseif value == token then
        local text = sub(records, 18 * record - 15, 18 * record)
        local proposal = tonumber(text)
        if proposal > count and proposal <= now + AHEAD then
          count = proposal
        else
          text = string.format('%.0f', count)
        end
        counters[field] = count
        changed = changed or {}
        changed[#changed + 1] = field
        changed[#changed + 1] = text
        replies[i] = count
      else
        replies[i] = type(value) == 'table' and value or {value, call('PTTL', key)}
      end
    end
  elseif op == E or op == E_TTL then
    if op == E_TTL then
      arg = arg + 1
      ttl = args[arg]
    end
    arg = arg + 1
    if call('GET', key) == token then
      local done = call('PEXPIRE', key, ttl, 'GT')
      replies[i] = type(done) == 'table' and done or 1 -- an error is no vote
    else
      replies[i] = call('EXISTS', FORCED .. redis.sha1hex(token)) == 1 and -1 or 0
    end
  elseif op == F or op == P then
    record = record + 1
    local field, text = fields[record + 1], sub(records, 18 * record - 15, 18 * record)
    replies[i] = 0
    if op == P then
      arg = arg + 1
      local set = late or call('EXISTS', FORCED .. redis.sha1hex(token)) == 0
        and call('SET', key, token, 'NX', 'PX', args[arg])
      replies[i] = set and set.err and set or 0
    end
    arg = arg + 1
    if replies[i] == 0 and call('GET', key) == token then
      if tonumber(text) > counters[field] then
        counters[field] = tonumber(text)
        changed = changed or {}
        changed[#changed + 1] = field
        changed[#changed + 1] = text
      end
      replies[i] = 1
    end
  elseif op == X then
    arg = arg + 1
    local set = call('SET', FORCED .. redis.sha1hex(token), '1', 'PX', args[arg])
    replies[i] = set.err and set or call('GET', key) == token and call('DEL', key) or 0
    arg = arg + 1
  elseif op == C then
    replies[i] = call('HGETALL', node)
  else
    local value = call('GET', key)
    if not value then
      replies[i] = {}
    else
      replies[i] = type(value) == 'table' and value or {value, call('PTTL', key)}
    end
  end
end

if changed then
  local done = call('HSET', node, unpack(changed))
  if type(done) == 'table' then -- not counted, so not voted
    for i = 1, ops do
      local op = byte(letters, i)
      if (op == A or op == A_TTL or op == F or op == P) and type(replies[i]) == 'number' and replies[i] > 0 then
        replies[i] = done
      end
    end
  end
end
return replies
