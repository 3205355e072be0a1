package redlocktest

import "github.com/redlockd/redlockd/redlock/redlocktest/simredis"

// SetInfo makes INFO show this value for a field, whatever the true value is. "" restores the true
// value. It changes nothing else: a node with the false role "slave" still executes writes (see
// Demote). It panics if INFO has no such field.
func (s *Sim) SetInfo(key, value string) {
	s.lock()
	defer s.mu.Unlock()
	if !s.state.HasInfo(key) {
		panic("redlocktest: INFO of a simulated node has no field " + key)
	}
	s.state.InfoOverrides[key] = value
}

// SetDurable makes the node say whether it writes an append-only file and syncs it with each
// command. By default it says no. A durable node promises Crash(true). A Crash(false) breaks that
// promise, as a lost disk does.
func (s *Sim) SetDurable(durable bool) {
	s.lock()
	defer s.mu.Unlock()
	s.state.Durable = durable
}

// SetDefaultUser allows the user default all commands except one; "" means no exception. Redis
// loads its append-only file with the rights of this user.
func (s *Sim) SetDefaultUser(denied string) {
	s.lock()
	defer s.mu.Unlock()
	s.state.Denied = denied
}

// SetStrictKeys makes the node let scripts use only the keys that their call declares, as Dragonfly
// does by default.
func (s *Sim) SetStrictKeys(strict bool) {
	s.lock()
	defer s.mu.Unlock()
	s.state.StrictKeys = strict
}

// Snapshot returns the node's present data, as an RDB file would have it.
func (s *Sim) Snapshot() simredis.Snapshot {
	s.lock()
	defer s.mu.Unlock()
	return s.state.Snapshot()
}

// Restore crashes the node, unless it has crashed already, and restarts it with the keys of a
// snapshot. This simulates an older RDB file, or one from another node. Keys that have expired by
// the node's clock are not loaded.
func (s *Sim) Restore(snapshot simredis.Snapshot) {
	s.lock()
	defer s.mu.Unlock()
	s.crash(false)
	s.state.Load(snapshot)
	s.restart()
	s.state.DropExpired(s.clock.now())
}

// Resync does what REPLICAOF does, and REPLICAOF NO ONE once the node is synchronised. The node
// gets a copy of the present keys of from, or none if from is nil, and a new master_replid. Its
// run_id, connections, scripts and statistics stay. A crashed node does not change.
func (s *Sim) Resync(from *Sim) {
	s.Demote(from)
	s.Promote()
}

// Demote makes the node a replica with a copy of the present keys of from, or none if from is nil.
// It answers writes with READONLY until Promote or a restart. It does not get later writes to from.
// INFO of from does not show the replica; SetInfo("connected_slaves", "1") does that.
func (s *Sim) Demote(from *Sim) {
	var copied simredis.Snapshot
	var replID string
	if from != nil {
		copied, replID = from.forReplica()
	}
	s.lock() // after from's mutex was released, so that never two are held
	defer s.mu.Unlock()
	if s.crashed {
		return
	}
	s.state.Demote(copied, replID)
}

func (s *Sim) forReplica() (simredis.Snapshot, string) {
	s.lock()
	defer s.mu.Unlock()
	if s.state.Replica {
		return s.state.Snapshot(), s.state.MasterReplID
	}
	return s.state.Snapshot(), s.state.ReplID
}

// Promote makes a replica a master again. It keeps its keys and gets a new master_replid. A master
// does not change.
func (s *Sim) Promote() {
	s.lock()
	defer s.mu.Unlock()
	s.state.Promote()
}

// Plant makes the node's scripts make exactly these mistakes.
func (s *Sim) Plant(variants ...simredis.Variant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Plant(variants...)
}
