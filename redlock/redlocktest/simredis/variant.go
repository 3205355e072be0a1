package simredis

import (
	"fmt"
	"strings"

	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Variant is a deliberate mistake in a simulated node's scripts. A test plants it to show that the
// search finds it.
type Variant string

const (
	ReleaseBlindly Variant = "DEL without comparing the token"
	ExtendSets     Variant = "an extension sets a missing key"
	ExtendShortens Variant = "an extension may shorten the expiry"
	IgnoreEpoch    Variant = "the epoch is not compared before a vote"
	FenceBlindly   Variant = "a fencing token is written back although another token holds the lock"
	ForceBlindly   Variant = "FORCE deletes a lock that another token holds by now"
	ConfirmForced  Variant = "a token is confirmed although FORCE has noted it"
	ExchangeForced Variant = "a token is exchanged although FORCE has noted it"
	CompareNothing Variant = "an epoch is written without comparing the old one"
	HandOverFence  Variant = "a hand-over keeps the fencing token"
	CountHolders   Variant = "a semaphore counts its holders, and ignores their slots"
	MixKinds       Variant = "clients of different kinds share a lock"
	TokensFarAhead Variant = "fencing tokens are centuries ahead"
	HideKind       Variant = "readers leave the lock's key free for other clients"

	// Mistakes in queue.lua, which make clients wait in vain.
	ReleaseCallsNobody Variant = "a release does not call the next waiter"
	TurnNeverPasses    Variant = "a turn does not end"
	PlaceLost          Variant = "a waiter that was passed over stays at the end of the queue"
	EntryStays         Variant = "a grant leaves the entry in the queue"
	EndWaitIgnored     Variant = "an entry stays when its client waits no longer"
	TicketsIgnored     Variant = "each node orders waiters by their arrival"
	DeadHostCalled     Variant = "hosts that are gone are called"
	ReenterIgnored     Variant = "a client that gives up its votes loses its place"
	NextNotTold        Variant = "the next waiter is not told when a turn ends"
	OnlyNextTold       Variant = "one more waiter than those called is told when to ask"
	CalledTwice        Variant = "a waiter is called again during its turn"
	TurnMoves          Variant = "a waiter that enters again takes over the turn of another, and is not called"
	OneHostTold        Variant = "the entries of one host only are told when to ask"
	TakersCallNobody   Variant = "a reader that takes the lock calls no other"
	TurnNotChecked     Variant = "others leave a turn alone until it ends"
	FirstReadersOnly   Variant = "a reader may take the lock only with the first ones"
	RanksAsPositions   Variant = "all entries of a host count as waiters that ask"
)

// edit replaces text of a script that is there exactly so many times.
type edit struct {
	times    int
	old, new string
}

// edits has the mistakes as changes of the Lua source. HideKind changes the foreign clients of the
// simulation instead.
var edits = map[Variant][]edit{
	HideKind: nil,
	ReleaseBlindly: {{1, `call('GET', key), 0
    if value == token then`, `call('GET', key), 0
    if value then`}},
	ExtendSets: {{1, `tonumber(score) <= now then
      return lib.isForced(token) and -1 or 0`, `tonumber(score) <= now then
      call('SET', key, token, 'NX', 'PX', ttl)
      return call('GET', key) == token and 1 or 0`}},
	ExtendShortens: {
		{1, `call('PEXPIRE', key, args[arg + 1], 'GT')`, `call('PEXPIRE', key, args[arg + 1])`},
		{1, `call('PEXPIRE', key, args[arg + 2], 'GT')`, `call('PEXPIRE', key, args[arg + 2])`},
		{1, `call('PEXPIRE', key, ttl, 'GT')`, `call('PEXPIRE', key, ttl)`},
		{1, `call('PEXPIREAT', each, till, 'GT')`, `call('PEXPIREAT', each, till)`},
		{1, `local done = call('ZADD', key .. '\0m', 'GT', till, token)`, `local done = call('ZADD', key .. '\0m', till, token)`},
	},
	IgnoreEpoch: {
		{2, `elseif known[1] ~= args[1] then`, `elseif false then`},
		{1, `if not (count and count >= 0 and count <= LIMIT) then`, `count = count or 0
      if false then`},
	},
	FenceBlindly: {{1, `return tooFar(record, tonumber(fenceOf(record))) or raiseIfHeld(key, args[arg], record)`,
		`local text = fenceOf(record)
    local refused = tooFar(record, tonumber(text))
    if not refused then
      raise(record, tonumber(text), text)
    end
    return refused or 1`}},
	ForceBlindly: {{1, `local value = call('GET', key)
    if value ~= token then
      return value and shared().leave(key, token, value) or 0
    end
    return lib.delete(key) or 1`, `return call('DEL', key)`}},
	ConfirmForced: {{1, `elseif forced == 1 then`, `elseif false then`}},
	ExchangeForced: {{1, `local forced = call('EXISTS', FORCED .. redis.sha1hex(old), FORCED .. redis.sha1hex(token))`,
		`local forced = 0`}},
	CompareNothing: {{1, `if (seen[1] or '') ~= ARGV[1] or ARGV[5] ~= '' and (seen[2] or '') ~= ARGV[6] or clock`, `if clock`}},
	HandOverFence: {{1, `elseif held then
        granted = waits > 0 and -1 or 1`, `elseif held then
        replies[i] = counters[fields[record + 2]]`}},
	ReleaseCallsNobody: {{1, `        rare.callNext(key)
`, ``}},
	TurnNeverPasses: {{1, `if who and (till <= now or not isAlive(parse(who)) or not call('ZSCORE', key .. '\0q', who)) then`, `if who and not call('ZSCORE', key .. '\0q', who) then`}},
	PlaceLost:       {{1, `done = call('ZADD', queue, ticket, entry)`, `done = call('ZADD', queue, 'NX', ticket, entry)`}},
	EntryStays: {
		{1, `if kind == EXCLUSIVE then
      remove(key, entry)
`, `if kind == EXCLUSIVE then
`},
		{1, `if remove(key, entry) then
      callNext`, `if rank then
      callNext`},
	},
	EndWaitIgnored: {{1, `waiters().leave(key, args[arg])
    return 1`, `return 1`}},
	TicketsIgnored: {{1, `done = call('ZADD', queue, ticket, entry)`, `done = call('ZADD', queue, 'NX', string.format('%.0f', now), entry)`}},
	DeadHostCalled: {{1, `alive[host] = call('EXISTS', HOST .. host) == 1`, `alive[host] = true`}},
	ReenterIgnored: {{1, `local function reenter(key, arg) return waiters().enter(key, args[arg], args[arg + 1]) end`, `local function reenter() return 0 end`}},
	NextNotTold:    {{1, `tellFollowing(key, n, math.min((till - now) / 1000, CHECK))`, ``}},
	OnlyNextTold:   {{1, `tellFollowing(key, n, math.min((till - now) / 1000, CHECK))`, `tell(key, entries(key, n, n), (till - now) / 1000)`}},
	CalledTwice:    {{1, `if i > called and (given or i > 1) then`, `if true then`}},
	TurnMoves:      {{1, `if given and first and till > now and not`, `if false and not`}},
	OneHostTold:    {{1, `if several < ASKING and #list == ASKING then`, `if false then`}},
	TakersCallNobody: {{1, `callNext(key, called, kind)
      local next`, `local next`}},
	TurnNotChecked:   {{1, `local CHECK = 1000`, `local CHECK = 3600000`}},
	FirstReadersOnly: {{1, `return called + i <= left`, `return false`}},
	RanksAsPositions: {{1, `rank < ASKING and {} or {ASKING, LOOK}`, `{}`}},
	CountHolders: {{1, `if there.err or not there[1] or there[1] == token then`, `if call('ZCOUNT', key .. '\0m', '-inf', '+inf') < slots then
      return nil
    end
    if there.err or not there[1] or there[1] == token then`}},
	MixKinds: {{1, `if value and value ~= kind then`, `if false then`}},
	TokensFarAhead: {
		{1, `replies[i] = granted * count`, `replies[i] = granted * (LIMIT - 8)`},
		{1, `setCounter(field, count, text)
    return count`, `return LIMIT - 8`},
		{1, `if count > counters[fieldOf(record)] and count > clock + FARTHEST then`, `if false then`},
	},
}

// plantedScripts has the sources that run instead of the scripts, by the SHA of these.
type plantedScripts map[string]string

// soundScripts has no mistake yet.
func soundScripts() plantedScripts {
	sound := plantedScripts{}
	for _, known := range script.Scripts() {
		sound[known.SHA] = known.Source
	}
	return sound
}

func (p plantedScripts) plant(v Variant) error {
	all, known := edits[v]
	if !known {
		return fmt.Errorf("the mistake %q has no edit of the scripts", v)
	}
	for _, e := range all {
		times := 0
		for sha, source := range p {
			times += strings.Count(source, e.old)
			p[sha] = strings.ReplaceAll(source, e.old, e.new)
		}
		if times != e.times {
			return fmt.Errorf("the mistake %q: the scripts have this text %d times, want %d:\n%s", v, times, e.times, e.old)
		}
	}
	return nil
}
