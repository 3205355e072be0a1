package redlocktest

import (
	"maps"
	"slices"
)

// Snapshot is what a node held at one moment. It does not change.
type Snapshot struct{ keys map[string]entry }

// Snapshot returns what the node holds now: what an RDB file written now has.
func (s *Sim) Snapshot() Snapshot {
	s.lock()
	defer s.mu.Unlock()
	return s.state.snapshot()
}

// Restore crashes the node, if it has not crashed yet, and restarts it with the
// keys of a snapshot, as Redis does with an RDB file of earlier or of elsewhere.
// Keys that have expired by the node's clock are not loaded.
func (s *Sim) Restore(snapshot Snapshot) {
	s.lock()
	defer s.mu.Unlock()
	s.crash(false)
	s.state.load(snapshot)
	s.restart()
	s.state.dropExpired(s.clock.now())
}

// Resync does what REPLICAOF and, once the node is synchronised, REPLICAOF NO
// ONE do: its keys become a copy of those that from holds now, none where from
// is nil, and its master_replid is a new one. The run_id, connections, scripts
// and the statistics stay. A node that has crashed cannot be told to, and stays
// as it is.
func (s *Sim) Resync(from *Sim) {
	s.Demote(from)
	s.Promote()
}

// Demote makes the node a replica with a copy of the keys that from holds now,
// none where from is nil. Writes are answered READONLY until Promote or a
// restart. The replica does not hear of later writes to from, and from does not
// show that it has a replica: SetInfo("connected_slaves", "1") does.
func (s *Sim) Demote(from *Sim) {
	var copied Snapshot
	var replID string
	if from != nil {
		copied, replID = from.forReplica()
	}
	s.lock() // after from's mutex was given up: two are never held at once
	defer s.mu.Unlock()
	if s.crashed {
		return
	}
	s.state.demote(copied, replID)
}

func (s *Sim) forReplica() (Snapshot, string) {
	s.lock()
	defer s.mu.Unlock()
	if s.state.replica {
		return s.state.snapshot(), s.state.masterReplID
	}
	return s.state.snapshot(), s.state.replID
}

// Promote makes a replica a master again, with the keys it has and a new
// master_replid. To a master it does nothing.
func (s *Sim) Promote() {
	s.lock()
	defer s.mu.Unlock()
	s.state.promote()
}

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
