package redlocktest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock/internal/script"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

// TestSimReplicaAnswersLikeRedis: two servers and two simulated nodes do the same: one becomes a
// replica of the other, and a master again.
func TestSimReplicaAnswersLikeRedis(t *testing.T) {
	servers := StartRedis(t, 2, TCP(), Args("--repl-diskless-sync-delay", "0")).Servers
	sims := []*Sim{NewSim("a"), NewSim("b")}
	defer sims[0].Close()
	defer sims[1].Close()
	both := func(node int, command string) {
		t.Helper()
		words := strings.Fields(command)
		real, err := servers[node].Do(words...)
		want(t, "error", err, nil)
		if got := sims[node].Do(words...); !alike(got, real) {
			t.Errorf("%s\n  Sim %s\nRedis %s", command, show(got), show(real))
		}
	}
	sameInfo := func() {
		t.Helper()
		for node := range sims {
			real, err := servers[node].must("INFO")
			want(t, "error", err, nil)
			compareInfo(t, sims[node].Do("INFO").Str, real.Str)
		}
	}
	sameIDs := func(same bool) {
		t.Helper()
		a, b := real(t, servers[0], "master_replid"), real(t, servers[1], "master_replid")
		want(t, "Redis has one master_replid", a == b, same)
		want(t, "Sim has one master_replid", sims[0].infoLine("master_replid") == sims[1].infoLine("master_replid"), same)
	}

	both(0, "SET k v PX 100000")
	both(0, "HSET h f v")
	both(1, "SET x gone")
	realLife, life := real(t, servers[1], "run_id"), sims[1].RunID()

	makeReplica(t, servers[1], servers[0])
	sims[1].Demote(sims[0])
	sims[0].SetInfo("connected_slaves", "1")
	sameInfo()
	sameIDs(true)
	for _, command := range replicaCommands {
		both(1, command)
	}

	_, err := servers[1].must("REPLICAOF", "NO", "ONE")
	want(t, "error", err, nil)
	sims[1].Promote()
	sameIDs(false)
	want(t, "Redis keeps its run_id", real(t, servers[1], "run_id"), realLife)
	want(t, "Sim keeps its run_id", sims[1].RunID(), life)
	for _, command := range []string{"KEYS h", "EXISTS k h x", "HGET h f", "PTTL k", "SET k v NX", "HSET h f w", "DEL k"} {
		both(1, command)
	}
	want(t, "role", sims[1].infoLine("role"), real(t, servers[1], "role"))
	want(t, "the master's value", sims[0].Do("HGET", "h", "f").Str, "v")
}

var replicaCommands = []string{
	"GET k", "HGET h f", "EXISTS x", "PTTL k", "TIME x", "SET k", "SET k v", "SET k v NOSUCH", "SET k v NX", "DEL k", "DEL nosuch",
	"HSET h f", "HSET h f v", "HSET h f v g", "HSET k f v", "HDEL h nosuch", "LPUSH k v", "FLUSHALL x", "FLUSHALL",
	"SCRIPT FLUSH", "CONFIG RESETSTAT", "EXISTS k h",
}

// real returns a value of a server's INFO.
func real(t *testing.T, s *Server, key string) string {
	t.Helper()
	reply, err := s.must("INFO")
	want(t, "error", err, nil)
	return infoLine(reply.Str, key)
}

// makeReplica waits until replica is synchronised with master.
func makeReplica(t *testing.T, replica, master *Server) {
	t.Helper()
	host, port, _ := strings.Cut(master.Addr(), ":")
	if _, err := replica.must("REPLICAOF", host, port); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(20 * ms)
	defer tick.Stop()
	for giveUp := time.Now().Add(startTimeout); ; <-tick.C {
		up := real(t, replica, "master_link_status") == "up" && real(t, master, "connected_slaves") == "1"
		switch {
		case up && strings.Contains(real(t, master, "slave0"), "state=online"):
			return
		case time.Now().After(giveUp):
			t.Fatalf("the replica was not synchronised within %v", startTimeout)
		}
	}
}

func TestSimResync(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		other := NewSim("b")
		defer other.Close()
		script := script.Scripts()[0]
		sim.Do("SCRIPT", "LOAD", script.Source)
		sim.Do("SET", "mine", "v")
		other.Do("SET", "k", "v", "PX", "40")
		other.Do("HSET", "h", "f", "v")
		conn := dialSim(t, sim)
		life, replID := sim.RunID(), sim.infoLine("master_replid")

		sim.Resync(other)
		want(t, "keys", fmt.Sprint(sim.Keys()), "[h k]")
		want(t, "role", sim.infoLine("role"), "master")
		want(t, "run_id", sim.infoLine("run_id"), life)
		if now := sim.infoLine("master_replid"); now == replID || now == other.infoLine("master_replid") {
			t.Errorf("master_replid: %s, was %s and the other's is %s: want a new one", now, replID, other.infoLine("master_replid"))
		}
		reply, err := do(t, conn, scriptCall(script.SHA, "", "0")...)
		want(t, "the connection's error", err, nil)
		want(t, "the script's error", reply.Err, nil)

		other.Do("HSET", "h", "f", "w")
		want(t, "a copy", sim.Do("HGET", "h", "f").Str, "v")
		time.Sleep(41 * ms)
		want(t, "keys later", fmt.Sprint(sim.Keys()), "[h]")
		sim.Resync(sim)
		want(t, "keys after a resync with itself", fmt.Sprint(sim.Keys()), "[h]")
		sim.Resync(nil)
		want(t, "keys after a resync with no master", fmt.Sprint(sim.Keys()), "[]")
	})
}

// TestSimReplicaDoesNotVote: a replica refuses the writes of a script, each in its own reply.
func TestSimReplicaDoesNotVote(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		script := luaScript(t, "ballot")
		sim.Do("SCRIPT", "LOAD", script.Source)
		sim.Do("HSET", NodeKey, "epoch", anEpoch, "aa", "0")
		sim.Do("SET", "ours", "mine", "PX", minute)
		sim.Demote(sim)
		reply := sim.Do(scriptCall(script.SHA, anEpoch, "9007199254740991",
			opAcquire("k", "mine", minute), opExtend("ours", "mine", minute), opRepair("k", "mine", minute, 1), opRelease("ours", "mine"))...)
		refused := simredis.Refuse(simredis.ErrReadOnly)
		want(t, "reply", show(reply), show(list(refused, refused, refused, refused)))
		sim.Restart()
		want(t, "after a restart", sim.Do("SET", "k", "v").Str, "OK")
	})
}

func TestSimCrashedIgnoresResync(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		sim.Do("SET", "k", "v")
		sim.Crash(true)
		sim.Resync(nil)
		sim.Restart()
		want(t, "keys", fmt.Sprint(sim.Keys()), "[k]")
	})
}

// TestSimReplicaDeletesNothing: if a replica's clock is set back, it still has the keys that its
// master has not deleted.
func TestSimReplicaDeletesNothing(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		sim.Do("SET", "k", "v", "PX", "40")
		sim.Demote(sim)
		sim.StepClock(time.Minute)
		want(t, "expired", sim.Get("k"), "")
		sim.StepClock(-time.Minute)
		want(t, "clock set back", sim.Get("k"), "v")
	})
}

func TestSimRestore(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		sim.Do("SET", "short", "v", "PX", "40")
		sim.Do("SET", "long", "v", "PX", "60000")
		sim.Do("HSET", "h", "f", "old")
		snapshot := sim.Snapshot()
		conn, life, replID := dialSim(t, sim), sim.RunID(), sim.infoLine("master_replid")
		sim.Do("HSET", "h", "f", "new")
		sim.Do("SET", "later", "v")
		sim.Do("DEL", "long")
		time.Sleep(41 * ms)

		for range 2 { // a snapshot can be loaded again
			sim.Restore(snapshot)
			want(t, "keys", fmt.Sprint(sim.Keys()), "[h long]")
			want(t, "field", sim.Do("HGET", "h", "f").Str, "old")
			sim.Do("HSET", "h", "f", "new")
		}
		want(t, "PTTL", sim.PTTL("long"), 60_000-41)
		_, err := do(t, conn, "PING")
		wantBroken(t, err)
		want(t, "old run_id and master_replid", sim.RunID() == life || sim.infoLine("master_replid") == replID, false)
		sim.Restore(snapshot)
		sim.StepClock(-time.Minute)
		want(t, "a key that had expired when it was loaded", sim.Get("short"), "")
	})
}

func TestSimRestoreAfterCrash(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		snapshot := sim.Snapshot()
		sim.Do("SET", "k", "v")
		sim.Crash(true)
		sim.Restore(snapshot)
		want(t, "error", dialSim(t, sim) == nil, false)
		want(t, "keys", fmt.Sprint(sim.Keys()), "[]")
	})
}
