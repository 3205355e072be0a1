package redlocktest

import (
	"maps"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/redlock"
)

// Name returns the node's name.
func (s *Sim) Name() string { return s.name }

// Makes reports whether the mistake was planted.
func (s *Sim) Makes(v Variant) bool { return s.state.variant(v) }

// Executes reports whether the node executes the script that c calls.
func (s *Sim) Executes(c redlock.Command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusal == nil && !s.state.replica && len(c) > 1 && s.state.scripts[c[1]]
}

// Tokens calls see with each lock's key and the tokens that hold it. Marks of waiters and
// reservations hold nothing.
func (s *Sim) Tokens(see func(key, token string)) {
	s.lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	for _, key := range slices.Sorted(maps.Keys(s.state.keys)) {
		lock, derived, _ := strings.Cut(key, "\x00")
		e, ok := s.state.lookup(key, now)
		switch {
		case !ok || !strings.HasPrefix(key, redlock.DefaultPrefix):
		case derived == "m":
			for _, token := range slices.Sorted(maps.Keys(e.set)) {
				if kind, ok := s.state.lookup(lock, now); ok && IsKind(kind.text) && e.set[token] > now/1000 {
					see(lock, token)
				}
			}
		case derived == "" && !IsKind(e.text):
			see(key, e.text)
		}
	}
}

// ScriptName returns the name of the script that c calls; "" if it calls none.
func ScriptName(c redlock.Command) string {
	if c[0] != "EVALSHA" {
		return ""
	}
	return scriptsBySHA[c[1]].name
}
