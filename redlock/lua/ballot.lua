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
local call, sub, format = redis.pcall, string.sub, string.format
local keys, args = KEYS, ARGV
local node, letters, records = keys[1], args[3], args[4]

-- How far a proposal may be ahead of this node's TIME, in microseconds: the
-- clock of one host must not push all counters far into the future.
local AHEAD = 1000000
-- Beyond this, counters come too near to what a double can count (2^53).
local LIMIT = 9006099743113216 -- 2^53 - 2^40
local ttls = {A = true, E = true, p = true, x = true}

local replies, arg = {}, 5

-- only releases: nothing that this node says is a vote.
local function releaseOnly(why)
  for i = 1, #keys - 1 do
    local op = sub(letters, i, i)
    if op == 'r' then
      replies[i] = call('GET', keys[i + 1]) == args[arg] and call('DEL', keys[i + 1]) or 0
    else
      replies[i] = why
    end
    if op ~= 'w' and op ~= 'c' then
      arg = arg + (ttls[op] and 2 or 1)
    end
  end
  return replies
end

local function stranger()
  return releaseOnly(redis.error_reply('EPOCH another incarnation than the one that was admitted'))
end

if args[1] == '' then
  return stranger()
end

local fields, counters, changed = {'epoch'}, {}, {}
for at = 1, #records, 18 do
  fields[#fields + 1] = sub(records, at, at + 1)
end
local known = call('HMGET', node, unpack(fields))
if known.err then
  return releaseOnly(known)
end
if known[1] ~= args[1] then
  return stranger()
end
for i = 2, #fields do
  local count = known[i] and tonumber(known[i])
  if not count then
    return releaseOnly(redis.error_reply('COUNTERS its fencing counters are gone'))
  end
  counters[fields[i]] = count
end

local now, late, ttl
if records ~= '' then
  local t = call('TIME')
  now = t[1] * 1000000 + t[2]
  late = now > tonumber(args[2]) and redis.error_reply('LATE the attempt was over when it reached this node')
end

-- value is the key's value, false or an error.
local function show(key, value)
  if type(value) == 'table' then
    return value
  end
  return {value, call('PTTL', key)}
end

-- note has the counter written: text is value in digits.
local function note(field, value, text)
  counters[field] = value
  changed[#changed + 1] = field
  changed[#changed + 1] = text or format('%.0f', value)
end

-- forced is the key of the note that a token was forced away.
local function forced(token)
  return 'redlockd:forced:' .. redis.sha1hex(token)
end

local function raise(field, text)
  if tonumber(text) > counters[field] then
    note(field, tonumber(text), text)
  end
  return 1
end

local record = 1
for i = 1, #keys - 1 do
  local key, op, token = keys[i + 1], sub(letters, i, i), args[arg]
  if op == 'a' or op == 'A' then
    if op == 'A' then
      arg = arg + 1
      ttl = args[arg]
    end
    local field, wish = sub(records, record, record + 1), sub(records, record + 2, record + 17)
    record = record + 18
    local count = counters[field] + 1
    local value
    if late then
      replies[i] = late
    elseif count > LIMIT then
      replies[i] = redis.error_reply('FULL its fencing counter ' .. field .. ' is at its end')
    else
      local set = call('SET', key, token, 'NX', 'PX', ttl)
      if set and set.err then
        replies[i] = set -- an error is true in Lua, and no vote
      else
        value = set and token or call('GET', key)
        if value == token then
          local proposal = tonumber(wish)
          if proposal > count and proposal <= now + AHEAD then
            note(field, proposal, wish)
          else
            note(field, count)
          end
          replies[i] = counters[field]
        else
          replies[i] = show(key, value)
        end
      end
    end
    arg = arg + 1
  elseif op == 'r' then
    replies[i] = call('GET', key) == token and call('DEL', key) or 0
    arg = arg + 1
  elseif op == 'e' or op == 'E' then
    if op == 'E' then
      arg = arg + 1
      ttl = args[arg]
    end
    if call('GET', key) == token then
      local done = call('PEXPIRE', key, ttl, 'GT')
      replies[i] = type(done) == 'table' and done or 1 -- an error is no vote
    else
      replies[i] = call('EXISTS', forced(token)) == 1 and -1 or 0
    end
    arg = arg + 1
  elseif op == 'f' or op == 'p' then
    local field, wish = sub(records, record, record + 1), sub(records, record + 2, record + 17)
    record = record + 18
    replies[i] = 0
    if op == 'p' then
      arg = arg + 1
      local set = late or call('EXISTS', forced(token)) == 0 and call('SET', key, token, 'NX', 'PX', args[arg])
      replies[i] = set and set.err and set or 0
    end
    if replies[i] == 0 and call('GET', key) == token then
      replies[i] = raise(field, wish)
    end
    arg = arg + 1
  elseif op == 'x' then
    arg = arg + 1
    local set = call('SET', forced(token), '1', 'PX', args[arg])
    replies[i] = set.err and set or call('GET', key) == token and call('DEL', key) or 0
    arg = arg + 1
  elseif op == 'c' then
    replies[i] = call('HGETALL', node)
  else
    local value = call('GET', key)
    replies[i] = value and show(key, value) or {}
  end
end

if #changed > 0 then
  local done = call('HSET', node, unpack(changed))
  if type(done) == 'table' then -- not counted, so not voted
    for i = 1, #keys - 1 do
      local op = sub(letters, i, i)
      if (op == 'a' or op == 'A' or op == 'f' or op == 'p') and type(replies[i]) == 'number' and replies[i] > 0 then
        replies[i] = done
      end
    end
  end
end
return replies
