-- Rewrites what the node's hash says of its incarnation, and of those of other nodes, if
-- it still says what the caller saw: so of two daemons that do it at once only one does,
-- nobody admits a node that lost its memory since the quarantine began, and nobody who
-- was stopped meanwhile takes back what others have said since.
--
-- KEYS[1]  the node's own hash
-- ARGV[1]  the epoch that was seen; '' for none
-- ARGV[2]  the epoch to write
-- ARGV[3]  '' : the counters stay as they are. Otherwise 18 characters for each
--          counter: its field (2) and the least that it is to be (16 digits).
--          Each becomes the largest of that, of what it is, and of this node's
--          TIME plus ARGV[4]: what a proposal could have made of it. Where it is
--          FARTHEST ahead of TIME, it is not what grants made of it: so it counts
--          for nothing.
-- ARGV[4]  in microseconds
-- ARGV[5]  what is to stand in the field words; '': what does
-- ARGV[6]  and what was seen there; '' for nothing. Where nothing is to be written there it
--          does not matter
--
-- Reply: 1 written, 0 where another epoch (or none), or other words are there; the error
-- FAR where a counter in ARGV[3] is FARTHEST ahead of TIME; or the error that Redis gave.
local call, sub = redis.pcall, string.sub
local FARTHEST = 31449600000000 -- as in rare.lua
local node, records = KEYS[1], ARGV[3]

local seen = call('HMGET', node, 'epoch', 'words')
if seen.err then
  return seen
end
if (seen[1] or '') ~= ARGV[1] or ARGV[5] ~= '' and (seen[2] or '') ~= ARGV[6] then
  return 0
end

local fields, changed = {}, {'epoch', ARGV[2]}
for at = 1, #records, 18 do
  fields[#fields + 1] = sub(records, at, at + 1)
end
if #fields > 0 then
  local t = call('TIME')
  local clock = t[1] * 1000000 + t[2]
  local least = clock + tonumber(ARGV[4])
  local counters = call('HMGET', node, unpack(fields))
  for i = 1, #fields do
    local at = (i - 1) * 18
    local count = tonumber(counters[i])
    if not (count and count >= 0 and count <= clock + FARTHEST) then
      count = 0 -- somebody wrote to it
    end
    local others = tonumber(sub(records, at + 3, at + 18))
    if others > clock + FARTHEST then
      return redis.error_reply('FAR the fencing counters of other nodes are more than a year ahead of this node\'s clock: set that clock')
    end
    local value = math.max(least, others, count)
    changed[#changed + 1] = fields[i]
    changed[#changed + 1] = string.format('%.0f', value)
  end
end
if ARGV[5] ~= '' then
  changed[#changed + 1] = 'words'
  changed[#changed + 1] = ARGV[5]
end
local done = call('HSET', node, unpack(changed))
return type(done) == 'table' and done or 1
