package admission

import (
	"cmp"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// NodeKey is the hash in which each node keeps its own data: its epoch, the words of the other
// nodes' epochs, and the fencing counters.
const NodeKey = "redlockd:node"

// DefaultPrefix is the usual prefix of the locks' keys.
const DefaultPrefix = "redlock:"

// Epoch describes a node's incarnation. The node's hash holds it as one string:
//
//	admitted:RUN_ID:WORD:MAX_TTL:STAGE:NAME
//	pending:RUN_ID:WORD:MAX_TTL:lost:NAME
//	pending:RUN_ID:WORD:MAX_TTL:kept=STAGE:NAME
//
// A restart changes the run_id. FLUSHALL removes the epoch. A resynchronisation from another
// master or a restored snapshot brings an epoch with another run_id. So each of them shows up in
// the comparison with which every voting script begins.
type Epoch struct {
	Pending     bool          // the node is quarantined and has no vote
	RunID       string        // of the Redis process
	Word        string        // different in each quarantine, see newWord
	MaxTTL      time.Duration // the longest lease that any host may take here
	HasCounters bool          // in a pending epoch: the fencing counters were not lost
	Stage       string        // unless counters were lost: node lists and prefix, see Stage
	Name        string        // the node's name
}

const (
	epochAdmitted = "admitted"
	epochPending  = "pending"
	hasCounters   = "kept"
	countersLost  = "lost"
)

func (e *Epoch) String() string {
	kind, detail := epochAdmitted, e.Stage
	if e.Pending {
		kind, detail = epochPending, countersLost
		if e.HasCounters {
			detail = hasCounters + e.Stage
		}
	}
	return strings.Join([]string{kind, e.RunID, e.Word, strconv.FormatInt(e.MaxTTL.Milliseconds(), 10), detail, e.Name}, ":")
}

// ParseEpoch parses a text that String returned.
func ParseEpoch(text string) (Epoch, error) {
	words := strings.SplitN(text, ":", 6)
	if len(words) < 6 || words[0] != epochAdmitted && words[0] != epochPending {
		return Epoch{}, errUnknownEpoch(text)
	}
	ms, err := strconv.ParseInt(words[3], 10, 64)
	if err != nil || ms <= 0 || ms > int64(LongestMaxTTL/time.Millisecond) {
		return Epoch{}, errUnknownEpoch(text)
	}
	e := Epoch{
		Pending: words[0] == epochPending,
		RunID:   words[1],
		Word:    words[2],
		MaxTTL:  time.Duration(ms) * time.Millisecond,
		Name:    words[5],
	}
	stage, kept := strings.CutPrefix(words[4], hasCounters)
	if e.HasCounters = e.Pending && kept; e.HasCounters || !e.Pending {
		e.Stage = stage
	}
	return e, nil
}

// LongestMaxTTL bounds max_ttl, also the one that a node reports. Otherwise a quarantine could
// last for years.
const LongestMaxTTL = 30 * 24 * time.Hour

func errUnknownEpoch(text string) error {
	return fmt.Errorf("its hash %s has an epoch that this version of redlockd cannot read (%.80q): use the same version everywhere; "+
		"or, when nobody holds a lock: HDEL %s epoch", NodeKey, text, NodeKey)
}

// newWord returns the word of a new quarantine. Words are ordered: a word begins with the
// node's time in milliseconds, or with one millisecond more than the last known word of
// the node, if another clock wrote a later time there.
func newWord(ms int64, last string) string {
	var word [9]byte
	ms = max(ms, timeOf(last)+1)
	binary.BigEndian.PutUint64(word[:], uint64(ms)<<16)
	rand.Read(word[6:]) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(word[:])
}

// timeOf returns the node's time at the beginning of a word; 0: it has none.
func timeOf(word string) (ms int64) {
	bytes, err := base64.RawURLEncoding.DecodeString(word)
	if err != nil || len(bytes) < 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(bytes) >> 16)
}

// longestWord bounds the words that are remembered, because another client may have written them.
const longestWord = 32

// MaxNodeSeconds bounds a node's clock: the year 2200.
const MaxNodeSeconds = 230 * 365 * 24 * 60 * 60

// isWord reports whether newWord can have made text.
func isWord(text string) bool {
	ms := timeOf(text)
	return len(text) <= longestWord && ms > 0 && ms < MaxNodeSeconds*1000
}

// isLater reports whether the epoch with word a began after the one with word b.
func isLater(a, b string) bool {
	return a != b && cmp.Or(cmp.Compare(timeOf(a), timeOf(b)), cmp.Compare(a, b)) > 0
}

// LaterWord returns a word that is later than the one in the given epoch. For tests.
func LaterWord(epoch string) string {
	e, _ := ParseEpoch(epoch)
	return newWord(0, e.Word)
}

// listDigest returns a digest of the node names, their number, and the prefix unless it is the
// usual one. With two lists on two hosts, two disjoint quorums could hold one lock. With two
// prefixes, one quorum could grant it twice.
func listDigest(names []string, prefix string) string {
	sorted := slices.Sorted(slices.Values(names))
	digest := strconv.Itoa(len(names)) + "-" + shortSum(strings.Join(sorted, "\n"))
	if prefix != DefaultPrefix {
		digest += prefixMark + shortSum(prefix)
	}
	return digest
}

// prefixMark separates the digest of the list from the digest of an unusual prefix.
const prefixMark = "-prefix-"

// listOf returns the part of a digest that stands for the node list.
func listOf(digest string) string {
	list, _, _ := strings.Cut(digest, prefixMark)
	return list
}

func shortSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}
