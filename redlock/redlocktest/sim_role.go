package redlocktest

import "github.com/redlockd/redlockd/redlock/redlocktest/simredis"

// SetInfo makes INFO show this value for a field from now on, whatever the truth is. ""
// restores the true value. It changes only what INFO shows: a node with the false role
// "slave" executes writes (see Demote). It panics if INFO has no such field.
func (s *Sim) SetInfo(key, value string) {
	s.lock()
	defer s.mu.Unlock()
	if !s.state.HasInfo(key) {
		panic("redlocktest: INFO of a simulated node has no field " + key)
	}
	s.state.InfoLies[key] = value
}

// SetDurable makes the node say whether it writes an append-only file and syncs it with
// each command. At first it says that it does not. A durable node promises Crash(true). A
// Crash(false) breaks the promise, as a lost disk does.
func (s *Sim) SetDurable(durable bool) {
	s.lock()
	defer s.mu.Unlock()
	s.state.Durable = durable
}

// SetDefaultUser allows the user default all commands but one; "" means no exception.
// Redis loads its append-only file with the rights of this user.
func (s *Sim) SetDefaultUser(denied string) {
	s.lock()
	defer s.mu.Unlock()
	s.state.Denied = denied
}

// Snapshot returns the data of the node now, as an RDB file written now has it.
func (s *Sim) Snapshot() simredis.Snapshot {
	s.lock()
	defer s.mu.Unlock()
	return s.state.Snapshot()
}

// Restore crashes the node, if it has not crashed yet, and restarts it with the keys of a
// snapshot. Redis does so with an RDB file from earlier or from another node. Keys that
// have expired by the node's clock are not loaded.
func (s *Sim) Restore(snapshot simredis.Snapshot) {
	s.lock()
	defer s.mu.Unlock()
	s.crash(false)
	s.state.Load(snapshot)
	s.restart()
	s.state.DropExpired(s.clock.now())
}

// Resync does what REPLICAOF does and, once the node is synchronised, REPLICAOF NO ONE.
// The keys become a copy of the keys that from holds now; none if from is nil. The
// master_replid is a new one. The run_id, connections, scripts and statistics stay. A node
// that has crashed stays as it is.
func (s *Sim) Resync(from *Sim) {
	s.Demote(from)
	s.Promote()
}

// Demote makes the node a replica with a copy of the keys that from holds now; none if
// from is nil. It answers writes with READONLY until Promote or a restart. The replica
// does not get later writes to from. from does not show that it has a replica;
// SetInfo("connected_slaves", "1") does that.
func (s *Sim) Demote(from *Sim) {
	var copied simredis.Snapshot
	var replID string
	if from != nil {
		copied, replID = from.forReplica()
	}
	s.lock() // after from's mutex was released: two are never held at once
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

// Promote makes a replica a master again, with the keys it has and a new master_replid. It
// does nothing to a master.
func (s *Sim) Promote() {
	s.lock()
	defer s.mu.Unlock()
	s.state.Promote()
}

// Plant makes the node's scripts make these mistakes, and no others, from now on.
func (s *Sim) Plant(variants ...simredis.Variant) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.Variants = map[simredis.Variant]bool{}
	for _, v := range variants {
		s.state.Variants[v] = true
	}
}
