-- What this node does for the ballots that wait for it: many in one call, in
-- the order in which they were asked for.
--
-- KEYS[i]  the lock's key of the i-th operation
-- ARGV     of each operation in turn, its letter and its arguments:
--   a token ttl not-after   acquire: take the lock
--   e token ttl             extend: never shortens an expiry
--   r token                 release: give the lock back
--   w                       who: show who holds it
--   (ttl in milliseconds; not-after in microseconds of this node's TIME)
--
-- Reply: an array with one element for each operation:
--   a  1 where the key was set now or holds this very token already;
--      {value, pttl} where another value holds it;
--      the error LATE past not-after: nothing is set later
--   e  1 extended, 0 where the token does not hold the key
--   r  1 deleted, 0 where the token does not hold the key
--   w  {value, pttl}, or {} where the key is free
--   or the error that Redis gave for this operation alone (of e and r, a key of
--   another type is 0: no token holds it).
local call, keys, args = redis.pcall, KEYS, ARGV
local now
local replies = {}
local arg = 1

local function micros()
  if not now then
    local t = call('TIME')
    now = t[1] * 1000000 + t[2]
  end
  return now
end

-- value is the key's value, false or an error.
local function show(key, value)
  if type(value) == 'table' then
    return value
  end
  return {value, call('PTTL', key)}
end

for i = 1, #keys do
  local key, op, token = keys[i], args[arg], args[arg + 1]
  if op == 'a' then
    if micros() > tonumber(args[arg + 3]) then
      replies[i] = redis.error_reply('LATE the attempt was over when it reached this node')
    else
      local set = call('SET', key, token, 'NX', 'PX', args[arg + 2])
      if set then
        replies[i] = set.err and set or 1 -- an error is true in Lua, and no vote
      else
        local value = call('GET', key)
        replies[i] = value == token and 1 or show(key, value)
      end
    end
    arg = arg + 4
  elseif op == 'r' then
    replies[i] = call('GET', key) == token and call('DEL', key) or 0
    arg = arg + 2
  elseif op == 'e' then
    replies[i] = 0
    if call('GET', key) == token then
      local done = call('PEXPIRE', key, args[arg + 2], 'GT')
      replies[i] = type(done) == 'table' and done or 1 -- an error is no vote
    end
    arg = arg + 3
  else
    local value = call('GET', key)
    replies[i] = value and show(key, value) or {}
    arg = arg + 1
  end
end
return replies
