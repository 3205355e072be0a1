package redlocktest

import (
	"maps"
	"slices"
)

// Snapshot is what a node held at one moment. It does not change.
type Snapshot struct{ keys map[string]entry }

func (s *state) snapshot() Snapshot { return Snapshot{cloneKeys(s.keys)} }

// load replaces all keys. It copies the snapshot again, which others may load.
func (s *state) load(snapshot Snapshot) {
	s.flush()
	maps.Copy(s.keys, cloneKeys(snapshot.keys))
}

func cloneKeys(keys map[string]entry) map[string]entry {
	keys = maps.Clone(keys)
	for key, e := range keys {
		e.list, e.set, e.hash = slices.Clone(e.list), maps.Clone(e.set), e.hash.clone()
		keys[key] = e
	}
	return keys
}

func (s *state) dropExpired(now int64) {
	for key := range s.keys {
		s.lookup(key, now)
	}
}

// demote: replID is the master's, "" where that is none of the simulation's.
func (s *state) demote(copied Snapshot, replID string) {
	if replID == "" {
		replID = s.newReplID()
	}
	s.load(copied)
	s.replica, s.masterReplID = true, replID
}

func (s *state) promote() {
	if s.replica {
		s.replica, s.replID = false, s.newReplID()
	}
}

// mayWrite fails where the node is a replica. Whatever a script changes has to
// ask first: Redis refuses the commands in a script, not the script.
func (s *state) mayWrite() error {
	if s.replica {
		return errReadOnly
	}
	return nil
}
