package redlock

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

// epoch is what a node's hash says of the node's incarnation, one string:
//
//	admitted:RUN_ID:WORD:MAX_TTL:DIGEST:NAME
//	pending:RUN_ID:WORD:MAX_TTL:kept|lost:NAME
//
// An incarnation is a life of a Redis process with its memory intact. A restart
// changes the run_id; FLUSHALL takes the epoch away; a resynchronisation from
// another master or a snapshot brings an epoch of another run_id. So each shows
// up in the comparison that every voting script begins with.
type epoch struct {
	pending bool          // in quarantine: no votes
	runID   string        // of the Redis process
	word    string        // random: no two quarantines are the same
	maxTTL  time.Duration // the longest lease that anyone may have here
	kept    bool          // of a pending one: its fencing counters were not lost
	digest  string        // of an admitted one: of the node list and the prefix, see listDigest
	name    string        // what the node is called
}

const (
	epochAdmitted = "admitted"
	epochPending  = "pending"
	countersKept  = "kept"
	countersLost  = "lost"
)

func (e *epoch) String() string {
	kind, detail := epochAdmitted, e.digest
	if e.pending {
		kind, detail = epochPending, countersLost
		if e.kept {
			detail = countersKept
		}
	}
	return strings.Join([]string{kind, e.runID, e.word, strconv.FormatInt(e.maxTTL.Milliseconds(), 10), detail, e.name}, ":")
}

// parseEpoch reads what String wrote.
func parseEpoch(text string) (epoch, error) {
	words := strings.SplitN(text, ":", 6)
	if len(words) < 6 || words[0] != epochAdmitted && words[0] != epochPending {
		return epoch{}, errEpoch(text)
	}
	ms, err := strconv.ParseInt(words[3], 10, 64)
	if err != nil || ms <= 0 || ms > int64(longestMaxTTL/time.Millisecond) {
		return epoch{}, errEpoch(text)
	}
	e := epoch{
		pending: words[0] == epochPending,
		runID:   words[1],
		word:    words[2],
		maxTTL:  time.Duration(ms) * time.Millisecond,
		name:    words[5],
	}
	if e.pending {
		e.kept = words[4] == countersKept
	} else {
		e.digest = words[4]
	}
	return e, nil
}

// longestMaxTTL bounds what a node can say: a quarantine of years helps nobody.
const longestMaxTTL = 30 * 24 * time.Hour

func errEpoch(text string) error {
	return fmt.Errorf("its hash %s has an epoch that this version of redlockd does not understand (%.80q): use the same version everywhere; "+
		"or, when nobody holds a lock any more: HDEL %s epoch", nodeKey, text, nodeKey)
}

// newWord makes a quarantine unlike any other. It begins with the node's own time, in
// milliseconds, so that of two words it can be told which is the later one; and with more
// than the last one that is known of the node, which may have been by another clock.
func newWord(ms int64, last string) string {
	var word [9]byte
	ms = max(ms, timeOf(last)+1)
	binary.BigEndian.PutUint64(word[:], uint64(ms)<<16)
	rand.Read(word[6:]) // never fails (crypto/rand)
	return base64.RawURLEncoding.EncodeToString(word[:])
}

// timeOf is the node's time that a word begins with; what earlier versions wrote begins
// with anything.
func timeOf(word string) (ms int64) {
	bytes, err := base64.RawURLEncoding.DecodeString(word)
	if err != nil || len(bytes) < 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(bytes) >> 16)
}

// longestWord bounds what is remembered of what somebody else may have written.
const longestWord = 32

// isWord tells what newWord can have made.
func isWord(text string) bool {
	ms := timeOf(text)
	return len(text) <= longestWord && ms > 0 && ms < maxNodeSeconds*1000
}

// isLater tells whether an epoch began after another, by their words.
func isLater(a, b string) bool {
	return a != b && cmp.Or(cmp.Compare(timeOf(a), timeOf(b)), cmp.Compare(a, b)) > 0
}

// listDigest stands for the node list, the names and how many they are, and for the prefix
// of the keys where it is not the usual one. With two lists on two hosts two disjoint
// quorums would hold one lock, and with two prefixes one quorum would give it twice.
func listDigest(nodes []Node, prefix string) string {
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Name
	}
	slices.Sort(names)
	digest := strconv.Itoa(len(nodes)) + "-" + shortSum(strings.Join(names, "\n"))
	if prefix != DefaultPrefix {
		digest += prefixMark + shortSum(prefix)
	}
	return digest
}

// prefixMark is before what stands for another prefix, in a digest.
const prefixMark = "-prefix-"

// listOf is the part of a digest that stands for the node list.
func listOf(digest string) string {
	list, _, _ := strings.Cut(digest, prefixMark)
	return list
}

func shortSum(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}
