package redlock

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/redlockd/redlockd/redlock/internal/ballot"
	"github.com/redlockd/redlockd/redlock/internal/quorum"
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Holder is the holder of a lock, as its token describes it. The token of another Redlock client
// describes no holder: it results in the zero Holder.
type Holder struct {
	Host  string
	PID   int // 0: the daemon does not see the process, which may be in another container
	UID   int
	User  string
	Since time.Time // when the lock was requested, by the holder's own wall clock
}

// Known reports whether a token of this package describes the holder.
func (h Holder) Known() bool { return h.Host != "" }

// String returns the holder as messages show it. It leaves out a PID of 0.
func (h Holder) String() string {
	if h.PID == 0 {
		return h.User + " on " + h.Host
	}
	return fmt.Sprintf("%s on %s (pid %d)", h.User, h.Host, h.PID)
}

// A token is unique for every attempt. It has 128 random bits, followed by what WHO shows of the
// holder, and is one printable string of at most 256 bytes.
//
//	Jc0bZrT6VfYh3oXw9u2LQg host=web3 pid=4121 uid=33 user=cron since=1795247588294
const (
	maxToken  = 256
	tokenID   = 22 // the random part, base64url without padding
	maxOfHost = 64
	maxOfUser = 64
)

// newToken returns a token that no other attempt uses. Otherwise the release that cleans up after one
// attempt would release the lock of another.
func newToken(h Holder) string { return tokenOf(appendTokenID(make([]byte, 0, 128)), h) }

// tokenOf returns the token with the random part b.
func tokenOf(b []byte, h Holder) string {
	b = append(append(b, " host="...), printable(h.Host, maxOfHost)...)
	b = strconv.AppendInt(append(b, " pid="...), int64(h.PID), 10)
	b = strconv.AppendInt(append(b, " uid="...), int64(h.UID), 10)
	b = append(append(b, " user="...), printable(h.User, maxOfUser)...)
	b = strconv.AppendInt(append(b, " since="...), h.Since.UnixMilli(), 10)
	return string(b)
}

// appendTokenID appends a new random part of a token.
func appendTokenID(b []byte) []byte {
	var random [16]byte
	rand.Read(random[:]) // never fails (crypto/rand)
	return base64.RawURLEncoding.AppendEncode(b, random[:])
}

// printable replaces what must not be in a token, and cuts the text at the limit. So a token
// stays one printable string with any host name.
func printable(s string, limit int) string {
	clean := strings.Map(func(r rune) rune {
		if r == ' ' || r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '_'
		}
		return r
	}, s)
	if clean == "" {
		return "?"
	}
	return strings.ToValidUTF8(clean[:min(len(clean), limit)], "")
}

// holderOf returns the holder that a token describes.
func holderOf(token string) Holder {
	if len(token) > maxToken || len(token) < tokenID || !strings.HasPrefix(token[tokenID:], " host=") {
		return Holder{}
	}
	var h Holder
	for word := range strings.FieldsSeq(token[tokenID:]) {
		key, value, _ := strings.Cut(word, "=")
		h.set(key, value)
	}
	return h
}

func (h *Holder) set(key, value string) {
	switch key {
	case "host":
		h.Host = printable(value, maxOfHost) // another program may have written the token
	case "user":
		h.User = printable(value, maxOfUser)
	case "pid":
		h.PID, _ = strconv.Atoi(value)
	case "uid":
		h.UID, _ = strconv.Atoi(value)
	case "since":
		if ms, err := strconv.ParseInt(value, 10, 64); err == nil {
			h.Since = time.UnixMilli(ms)
		}
	}
}

// Holding is a token that nodes show for a lock.
type Holding struct {
	Holder Holder
	TTL    time.Duration // the longest on any node; may be Endless
	Held   int           // number of nodes that show it
	Nodes  int           // number of nodes that answered
	Shared bool          // other clients may share the lock
	Slots  int           // number of slots of a semaphore; 0: the lock is not one
	Slot   int           // the slot, from 1 on; 0: the lock is not a semaphore
	// Waiting: no client holds the lock. It is Holder's turn to take it, for at most TTL.
	Waiting bool

	token string
	nodes quorum.Set // that show it
}

// ID returns the holder's Lease.ID, which is secret; "": another program made the token.
func (h *Holding) ID() string {
	if _, token := splitMember(h.token); h.Holder.Known() {
		return token[:tokenID]
	}
	return ""
}

// countTokens returns the tokens that the nodes show. The token that most nodes show is the first.
func countTokens(answers []ballot.Answer) []Holding {
	byToken := map[string]*Holding{}
	voted := 0
	for i := range answers {
		if answers[i].Verdict != ballot.Failed {
			voted++
		}
		for _, one := range ballot.Shown(answers[i].Shown) {
			h := byToken[one.Token]
			if h == nil {
				h = holding(&one)
				byToken[one.Token] = h
			}
			h.Held++
			h.nodes |= quorum.Of(i)
			h.Shared = h.Shared || one.Kind == script.KindShared // some nodes may have missed a downgrade
			h.TTL = max(h.TTL, one.TTL)
		}
	}
	return sortedHoldings(byToken, voted)
}

func sortedHoldings(byToken map[string]*Holding, voted int) []Holding {
	all := make([]Holding, 0, len(byToken))
	for _, h := range byToken {
		h.Nodes = voted
		all = append(all, *h)
	}
	slices.SortFunc(all, func(a, b Holding) int {
		return cmp.Or(b.Held-a.Held, cmp.Compare(b.TTL, a.TTL), cmp.Compare(a.token, b.token))
	})
	return all
}

// holding returns the Holding of a token that one node shows. Held and Nodes are not set.
func holding(s *ballot.Showing) *Holding {
	h := &Holding{token: s.Token, Shared: s.Kind == script.KindShared, Slots: script.SlotsOf(s.Kind), Waiting: script.IsWaiting(s.Kind)}
	token := s.Token
	if h.Slots > 0 {
		h.Slot, token = splitMember(s.Token)
	}
	h.Holder = holderOf(token)
	return h
}
