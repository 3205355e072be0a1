-- Writes what the node's hash says of the node's own incarnation and of those of other nodes, if
-- the hash still says what the caller saw. So if two daemons do it at once, only one succeeds. A
-- node that lost its memory since the quarantine began is not admitted. A daemon that was stopped
-- meanwhile does not undo what others have written since.
--
-- KEYS[1]  the node's own hash
-- ARGV[1]  the epoch that was seen; '' for none
-- ARGV[2]  the epoch to write
-- ARGV[3]  '': the counters stay as they are. Otherwise 18 characters for each counter: its
--          field (2) and its minimum (16 digits). Each counter is set to the largest of this
--          minimum, its present value, and this node's TIME plus ARGV[4]: no proposal can have
--          made it larger. A present value that is FARTHEST ahead of TIME does not come from
--          grants, and does not count.
-- ARGV[4]  in microseconds
-- ARGV[5]  the new value of the field words; '': it stays as it is
-- ARGV[6]  its value that was seen; '' for none. Without ARGV[5] it does not matter
-- ARGV[7]  not-after, in microseconds of this node's TIME: so a late packet writes nothing
--
-- Reply: 1 written, 0 if another epoch (or none) or other words are there, or past not-after; the error FAR if a
-- counter in ARGV[3] is FARTHEST ahead of TIME; or the error that Redis gave.
local call, sub = redis.pcall, string.sub
local FARTHEST = 31449600000000 -- as in rare.lua
local node, records = KEYS[1], ARGV[3]

local seen = call('HMGET', node, 'epoch', 'words')
if seen.err then
  return seen
end
local t = call('TIME')
local clock = t[1] * 1000000 + t[2]
if (seen[1] or '') ~= ARGV[1] or ARGV[5] ~= '' and (seen[2] or '') ~= ARGV[6] or clock > tonumber(ARGV[7]) then
  return 0
end

local fields, changed = {}, {'epoch', ARGV[2]}
for at = 1, #records, 18 do
  fields[#fields + 1] = sub(records, at, at + 1)
end
if #fields > 0 then
  local least = clock + tonumber(ARGV[4])
  local leastText = string.format('%.0f', least) -- of most counters: formatting takes longest
  local counters = call('HMGET', node, unpack(fields))
  for i = 1, #fields do
    local at = (i - 1) * 18
    local count = tonumber(counters[i])
    if not (count and count >= 0 and count <= clock + FARTHEST) then
      count = 0 -- another program wrote to it
    end
    local others = tonumber(sub(records, at + 3, at + 18))
    if others > clock + FARTHEST then
      return redis.error_reply('FAR the fencing counters of other nodes are more than a year ahead of this node\'s clock: set that clock')
    end
    local value = math.max(least, others, count)
    changed[#changed + 1] = fields[i]
    changed[#changed + 1] = value == least and leastText or string.format('%.0f', value)
  end
end
if ARGV[5] ~= '' then
  changed[#changed + 1] = 'words'
  changed[#changed + 1] = ARGV[5]
end
local done = call('HSET', node, unpack(changed))
return type(done) == 'table' and done or 1
