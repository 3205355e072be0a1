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
	"github.com/redlockd/redlockd/redlock/internal/script"
)

// Holder says who holds a lock, as far as its token tells. A token that
// another Redlock client wrote tells nothing: the zero Holder.
type Holder struct {
	Host  string
	PID   int
	UID   int
	User  string
	Since time.Time // when the lock was asked for, by the holder's own wall clock
}

// Known tells whether the token was one of ours.
func (h Holder) Known() bool { return h.Host != "" }

// String names a holder for people. One whose process its daemon cannot see, as of another
// container, has no number.
func (h Holder) String() string {
	if h.PID == 0 {
		return h.User + " on " + h.Host
	}
	return fmt.Sprintf("%s on %s (pid %d)", h.User, h.Host, h.PID)
}

// A token is unique for every attempt: 128 random bits, then what WHO shows of
// the owner, one printable string of at most 256 bytes.
//
//	Jc0bZrT6VfYh3oXw9u2LQg host=web3 pid=4121 uid=33 user=cron since=1795247588294
const (
	maxToken  = 256
	tokenID   = 22 // the random part, base64url without padding
	maxOfHost = 64
	maxOfUser = 64
)

// newToken returns a token that never was and never will be used again.
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

// appendTokenID appends what never was and never will be used again.
func appendTokenID(b []byte) []byte {
	var random [16]byte
	rand.Read(random[:]) // never fails (crypto/rand)
	return base64.RawURLEncoding.AppendEncode(b, random[:])
}

// printable keeps a token one printable string, whatever a host is called.
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

// holderOf reads the owner out of a token.
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
		h.Host = printable(value, maxOfHost) // others may write to the nodes, too
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
	TTL    time.Duration // where it lasts longest; may be Endless
	Held   int           // nodes that show it
	Nodes  int           // nodes that answered
	Shared bool          // with others
	Slots  int           // how many places there are, of a semaphore; 0: it is none
	Slot   int           // and which one it is
	// Waiting: no client holds the lock. Holder has a reservation on the nodes, for TTL at
	// most.
	Waiting bool

	token string
}

// ID is the holder's Lease.ID, a secret; "": another program made the token.
func (h *Holding) ID() string {
	if _, token := splitMember(h.token); h.Holder.Known() {
		return token[:tokenID]
	}
	return ""
}

// tally counts the tokens in the refusals, the one that most nodes show first.
func tally(answers []ballot.Answer) []Holding {
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
			h.Shared = h.Shared || one.Kind == script.KindShared // other nodes may not know of a downgrade
			h.TTL = max(h.TTL, one.TTL)
		}
	}
	return sorted(byToken, voted)
}

func sorted(byToken map[string]*Holding, voted int) []Holding {
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

// holding is the token that a node shows, without how many do.
func holding(s *ballot.Showing) *Holding {
	h := &Holding{token: s.Token, Shared: s.Kind == script.KindShared, Slots: script.SlotsOf(s.Kind), Waiting: script.IsWaiting(s.Kind)}
	token := s.Token
	if h.Slots > 0 {
		h.Slot, token = splitMember(s.Token)
	}
	h.Holder = holderOf(token)
	return h
}
