package redlocktest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

func TestSimCutLate(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		conn := dialSim(t, sim)
		sim.SetDelay(delayed(5*ms, 0))
		done := start(t, conn, "SET", "k", "late")
		sim.CutLate(time.Second)
		wantBroken(t, <-done)
		conn.Close()
		sim.SetDelay(nil)
		if _, err := do(t, dialSim(t, sim), "DEL", "k"); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Second - 1)
		want(t, "before", sim.Get("k"), "")
		time.Sleep(2 * time.Nanosecond)
		want(t, "after", sim.Get("k"), "late")
		want(t, "unanswered", sim.Counts().Unanswered, 1)
	})
}

// TestSimCutLateThenKilled: after CLIENT KILL ID, no group of the old connection arrives late.
func TestSimCutLateThenKilled(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		busy, idle := dialSim(t, sim), dialSim(t, sim)
		sim.SetDelay(delayed(5*ms, 0))
		start(t, busy, "SET", "k", "late")
		sim.CutLate(time.Second)
		_, err := do(t, idle, "PING")
		wantBroken(t, err)
		sim.SetDelay(nil)
		conn := dialSim(t, sim)
		for id, killed := range map[string]int64{"1": 1, "2": 1, "7": 0} {
			reply, _ := do(t, conn, "CLIENT", "KILL", "ID", id)
			want(t, "killed with id "+id, reply.Int, killed)
		}
		time.Sleep(2 * time.Second)
		want(t, "key", sim.Get("k"), "")
		want(t, "lost and killed", [2]int{sim.Counts().Lost, sim.Counts().Killed}, [2]int{1, 2})
	})
}

func TestSimCutLateIsNoticed(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		dialSim(t, sim)
		sim.CutLate(time.Second)
		time.Sleep(time.Second + 1)
		want(t, "killed", sim.Do("CLIENT", "KILL", "ID", "1").Int, 0)
	})
}

func TestSimCloseDeliversGroupsInTransit(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		conn := dialSim(t, sim)
		sim.SetDelay(delayed(5*ms, 5*ms))
		done := start(t, conn, "SET", "k", "v")
		conn.Close()
		if err := <-done; err == nil {
			t.Error("Do on a connection that was closed meanwhile succeeded")
		}
		want(t, "connection known", sim.Do("CLIENT", "KILL", "ID", "9").Int, 0)
		time.Sleep(6 * ms)
		want(t, "executed", sim.Get("k"), "v")
		want(t, "unanswered", sim.Counts().Unanswered, 1)
		want(t, "connection forgotten", sim.Do("CLIENT", "KILL", "ID", "1").Int, 0)
	})
}

// TestSimHangKeepsSentGroups: a lane reuses the memory of its commands after it gives up a group.
func TestSimHangKeepsSentGroups(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		conn := dialSim(t, sim)
		sim.Hang()
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		group := []redlock.Command{{"SET", "first", "v"}, {"SET", "second", "v"}}
		begin := time.Now()
		if err := conn.Do(ctx, group, make([]redlock.Reply, 2)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Do at a hung node: got error %v", err)
		}
		want(t, "time taken", time.Since(begin), 50*ms)
		group[0][1], group[1] = "spoilt", nil
		conn.Close()
		sim.Resume()
		want(t, "keys", fmt.Sprint(sim.Keys()), "[first second]")
		want(t, "connection forgotten", sim.Do("CLIENT", "KILL", "ID", "1").Int, 0)
	})
}

func TestSimHangDoesNotNoticeClose(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		for range 2 {
			conn := dialSim(t, sim)
			sim.Hang()
			conn.Close()
			sim.Resume()
		}
		conn := dialSim(t, sim)
		sim.Hang()
		conn.Close()
		want(t, "connection known while the node hangs", sim.Do("CLIENT", "KILL", "ID", "3").Int, 1)
		want(t, "earlier connection forgotten", sim.Do("CLIENT", "KILL", "ID", "2").Int, 0)
	})
}

// TestSimHungLogin: when a hung node resumes, a log-in that it had accepted uses up an id.
func TestSimHungLogin(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		sim.Hang()
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		if _, err := sim.Node().Dial(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("dial of a hung node: got error %v", err)
		}
		sim.Resume()
		reply, _ := do(t, dialSim(t, sim), "CLIENT", "ID")
		want(t, "id of the next connection", reply.Int, 2)
	})
}

func TestSimConnPanicsOnConcurrentDo(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		conn := dialSim(t, sim)
		sim.SetDelay(delayed(5*ms, 0))
		done := start(t, conn, "PING")
		defer func() {
			if recover() == nil {
				t.Error("a second Do on a busy connection: no panic")
			}
			<-done
		}()
		do(t, conn, "PING")
	})
}
