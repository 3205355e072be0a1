package redlocktest

import (
	"maps"
	"slices"
	"strings"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// Name returns the node's name.
func (s *Sim) Name() string { return s.name }

// Makes reports whether the mistake was planted.
func (s *Sim) Makes(v simredis.Variant) bool { return s.state.Variant(v) }

// Executes reports whether the node would execute the script that c calls.
func (s *Sim) Executes(c redlock.Command) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refusal == nil && !s.state.Replica && len(c) > 1 && s.state.Scripts[c[1]] != ""
}

// Tokens calls see with the key of each lock and each token that holds it. Entries in wait queues
// are not included.
func (s *Sim) Tokens(see func(key, token string)) {
	s.lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	for _, key := range slices.Sorted(maps.Keys(s.state.Keys)) {
		lock, derived, _ := strings.Cut(key, "\x00")
		e, ok := s.state.Lookup(key, now)
		switch {
		case !ok || !strings.HasPrefix(key, redlock.DefaultPrefix):
		case derived == "m":
			for _, token := range slices.Sorted(maps.Keys(e.Set.Scores)) {
				if kind, ok := s.state.Lookup(lock, now); ok && simredis.IsKind(kind.Text) && e.Set.Scores[token] > float64(now/1000) {
					see(lock, token)
				}
			}
		case derived == "" && !simredis.IsKind(e.Text):
			see(key, e.Text)
		}
	}
}

// Waiting calls see with the key of each lock and each entry in its wait queue.
func (s *Sim) Waiting(see func(key, entry string)) {
	s.lock()
	defer s.mu.Unlock()
	now := s.clock.now()
	for _, key := range slices.Sorted(maps.Keys(s.state.Keys)) {
		lock, derived, _ := strings.Cut(key, "\x00")
		e, ok := s.state.Lookup(key, now)
		if !ok || derived != "q" || e.Set == nil {
			continue
		}
		for _, entry := range slices.Sorted(maps.Keys(e.Set.Scores)) {
			see(lock, entry)
		}
	}
}

// ScriptName returns the name of the script that c calls; "" if it calls none.
func ScriptName(c redlock.Command) string {
	if c[0] != "EVALSHA" {
		return ""
	}
	return simredis.ScriptsBySHA[c[1]].Name
}

// IsDown reports whether the node refuses connections.
func (s *Sim) IsDown() bool {
	s.lock()
	defer s.mu.Unlock()
	return s.closed || s.unreachable || s.crashed
}
