package redlock

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
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
func newToken(h Holder) string {
	var random [16]byte
	rand.Read(random[:]) // never fails (crypto/rand)
	b := make([]byte, 0, 128)
	b = base64.RawURLEncoding.AppendEncode(b, random[:])
	b = append(append(b, " host="...), printable(h.Host, maxOfHost)...)
	b = strconv.AppendInt(append(b, " pid="...), int64(h.PID), 10)
	b = strconv.AppendInt(append(b, " uid="...), int64(h.UID), 10)
	b = append(append(b, " user="...), printable(h.User, maxOfUser)...)
	b = strconv.AppendInt(append(b, " since="...), h.Since.UnixMilli(), 10)
	return string(b)
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
