-- Which of the commands that locks need the user of this connection may not run, or the
-- node does not know (rename-command): those of ballot.lua, but for what a look at the
-- node needs as well, and what only the quarantine of another one does. It runs none of
-- these. Of keys it says nothing, as an ACL may let us use the keys of some locks alone:
-- so one is denied that may be run on neither of these, a key beside those of locks, and
-- the node's own hash, which is needed in any case.
--
-- Some servers let a script use only the keys that its call declares: Dragonfly without the
-- flag allow-undeclared-keys. Most keys of ballot.lua follow from what it reads. So it also
-- looks for a key that is not declared.
--
-- ARGV[1]  a key beside those of locks
-- ARGV[2]  the node's own hash
--
-- Reply: the names of those that are denied; with a ? before them, of those that are not
-- known; and with a + before it, PUBLISH, without which locks work, and waiters ask at intervals. None where the node does not tell (redis.acl_check_cmd).
-- With a ! before it, the error of a server that wants declared keys.
local check, lacks = redis.acl_check_cmd, {}
local needed = { -- and what stands behind the key
  {'GET'}, {'SET', '1'}, {'DEL'}, {'EXISTS'}, {'PTTL'}, {'PEXPIRE', '1'}, {'PEXPIREAT', '1'}, {'HMGET', '1'}, {'HSET', '1', '1'},
  {'ZADD', '1', '1'}, {'ZREM', '1'}, {'ZSCORE', '1'}, {'ZRANGE', '0', '1'}, {'ZCOUNT', '0', '1'}, {'ZRANK', '1'},
}

for i = 1, check and #needed or 0 do
  local name = needed[i][1]
  local known, may = pcall(check, name, ARGV[1], unpack(needed[i], 2))
  if known and not may then
    known, may = pcall(check, name, ARGV[2], unpack(needed[i], 2))
  end
  if not (known and may) then
    lacks[#lacks + 1] = known and name or '?' .. name
  end
end

local notifying = {'PUBLISH', 'redlockd:host:', '1'} -- as queue.lua does
local known, may = true, true
if check then
  known, may = pcall(check, unpack(notifying))
end
if not (known and may) then
  lacks[#lacks + 1] = '+PUBLISH'
end

local looked = redis.pcall('EXISTS', ARGV[1])
if type(looked) == 'table' and looked.err and string.find(looked.err, 'undeclared key', 1, true) then
  lacks[#lacks + 1] = '!' .. looked.err
end
return lacks
