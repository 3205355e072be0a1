package redlocktest

import "github.com/redlockd/redlockd/redlock/redlocktest/simredis"

// SetInfo makes INFO show this value for a field from now on, whatever the truth
// is; "" goes back to it. It changes nothing but what INFO shows: a node whose
// role is said to be "slave" executes writes (see Demote). It panics where INFO
// has no such field.
func (s *Sim) SetInfo(key, value string) {
	s.lock()
	defer s.mu.Unlock()
	if !s.state.HasInfo(key) {
		panic("redlocktest: INFO of a simulated node has no field " + key)
	}
	s.state.InfoLies[key] = value
}

// SetDurable makes the node say that it writes an append-only file and syncs it
// with each command, or that it does not, which is so at first. That promises
// Crash(true); a Crash(false) breaks the promise, as a lost disk does.
func (s *Sim) SetDurable(durable bool) {
	s.lock()
	defer s.mu.Unlock()
	s.state.Durable = durable
}

// SetDefaultUser has the user default, with whose rights Redis loads its append-only file, be
// allowed all but one command, "" being none.
func (s *Sim) SetDefaultUser(denied string) {
	s.lock()
	defer s.mu.Unlock()
	s.state.Denied = denied
}

// Snapshot returns what the node holds now: what an RDB file written now has.
func (s *Sim) Snapshot() simredis.Snapshot {
	s.lock()
	defer s.mu.Unlock()
	return s.state.Snapshot()
}

// Restore crashes the node, if it has not crashed yet, and restarts it with the
// keys of a snapshot, as Redis does with an RDB file of earlier or of elsewhere.
// Keys that have expired by the node's clock are not loaded.
func (s *Sim) Restore(snapshot simredis.Snapshot) {
	s.lock()
	defer s.mu.Unlock()
	s.crash(false)
	s.state.Load(snapshot)
	s.restart()
	s.state.DropExpired(s.clock.now())
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
	var copied simredis.Snapshot
	var replID string
	if from != nil {
		copied, replID = from.forReplica()
	}
	s.lock() // after from's mutex was given up: two are never held at once
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

// Promote makes a replica a master again, with the keys it has and a new
// master_replid. To a master it does nothing.
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
