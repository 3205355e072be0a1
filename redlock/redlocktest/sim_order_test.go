package redlocktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// TestSimOrderAtOneInstant: groups that arrive at one instant are executed in the order in which
// they were sent, each completely, also while functions of the test run.
func TestSimOrderAtOneInstant(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		const n = 50
		var executed, sent []string
		sim.OnCommand(func(c redlock.Command) {
			letOthersRun()
			executed = append(executed, c[1])
		})
		conns := make([]redlock.Conn, n)
		for i := range conns {
			conns[i] = dialSim(t, sim)
		}
		sim.SetDelay(delayed(5*ms, 5*ms))
		for i, conn := range conns {
			first, second := fmt.Sprint(i), fmt.Sprint(i, " again")
			startTwo(t, conn, redlock.Command{"GET", first}, redlock.Command{"GET", second})
			sent = append(sent, first, second)
		}
		time.Sleep(5*ms + 1)
		synctest.Wait()
		want(t, "order", strings.Join(executed, ","), strings.Join(sent, ","))
		time.Sleep(5 * ms)
	})
}

func letOthersRun() {
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {})
	}
	wg.Wait()
}

func startTwo(t *testing.T, conn redlock.Conn, group ...redlock.Command) {
	go func() {
		if err := conn.Do(t.Context(), group, make([]redlock.Reply, len(group))); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
}

// TestSimReplyAtTheDeadline: a reply that is due exactly at the deadline is in time.
func TestSimReplyAtTheDeadline(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		for i := range 50 {
			conn := dialSim(t, sim)
			sim.SetDelay(delayed(5*ms, 5*ms))
			ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
			if err := conn.Do(ctx, []redlock.Command{{"PING"}}, make([]redlock.Reply, 1)); err != nil {
				t.Errorf("try %d: %v", i, err)
			}
			cancel()
			sim.SetDelay(nil)
		}
	})
}

// TestSimRequestAtTheDeadline: a group that is sent at the deadline is too late.
func TestSimRequestAtTheDeadline(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		conn := dialSim(t, sim)
		for range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
			time.Sleep(10 * ms)
			if err := conn.Do(ctx, []redlock.Command{{"PING"}}, make([]redlock.Reply, 1)); err != context.DeadlineExceeded {
				t.Errorf("got error %v, want %v", err, context.DeadlineExceeded)
			}
			cancel()
		}
		want(t, "groups", sim.Counts().Groups, 0)
	})
}

// TestSimArrivalComesBeforeCrash: a group that arrives at the instant of a crash is executed.
func TestSimArrivalComesBeforeCrash(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		for i := range 50 {
			sim.SetDelay(nil)
			conn := dialSim(t, sim)
			sim.SetDelay(delayed(5*ms, 5*ms))
			done := start(t, conn, "SET", fmt.Sprint(i), "v")
			time.Sleep(5 * ms)
			sim.Crash(true)
			wantBroken(t, <-done)
			sim.Restart()
		}
		want(t, "keys", len(sim.Keys()), 50)
	})
}

// TestSimCutLateExecutesAfterNewConnection: the groups of an old connection are executed after those
// that a new connection has sent meanwhile, in their own order.
func TestSimCutLateExecutesAfterNewConnection(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		var executed []string
		sim.OnCommand(func(c redlock.Command) { executed = append(executed, strings.Join(c, " ")) })
		old := []redlock.Conn{dialSim(t, sim), dialSim(t, sim)}
		sim.SetDelay(delayed(5*ms, 0))
		for i, conn := range old {
			start(t, conn, "SET", "k", fmt.Sprint("old ", i))
		}
		sim.CutLate(50 * ms)
		conn := dialSim(t, sim)
		for i := range 3 {
			do(t, conn, "SET", "k", fmt.Sprint("new ", i))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		got := fmt.Sprintf("%q", executed)
		want(t, "order", got, `["SET k new 0" "SET k new 1" "SET k new 2" "SET k old 0" "SET k old 1"]`)
	})
}

// TestSimReplays runs the same clients with the same faults twice, and gets the same events at the
// same instants. It fails if the order of a map or a select matters.
func TestSimReplays(t *testing.T) {
	for seed := range uint64(3) {
		first, second := simJournal(t, seed), simJournal(t, seed)
		i := 0
		for i < min(len(first), len(second)) && first[i] == second[i] {
			i++
		}
		if i < len(first) || i < len(second) {
			t.Errorf("seed %d: of %d and %d events, number %d differs:\n %s\n %s", seed, len(first), len(second), i,
				strings.Join(first[i:min(i+1, len(first))], ""), strings.Join(second[i:min(i+1, len(second))], ""))
		}
		if len(first) < 400 {
			t.Errorf("seed %d: %d events, want a long run", seed, len(first))
		}
	}
}

// simJournal runs clients and faults that never act at the same instant. It returns what the node
// did, and then what each client received.
func simJournal(t *testing.T, seed uint64) []string {
	var journals [5][]string
	simTest(t, func(t *testing.T, sim *Sim) {
		begin := time.Now()
		note := func(client int, what ...any) {
			journals[client] = append(journals[client], fmt.Sprintf("%d: %v %q", client, time.Since(begin), what))
		}
		sim.OnReply(func(c redlock.Command, r redlock.Reply) { note(0, c, r) })
		sim.SetDelay(delayed(2*step, 2*step))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		var wg sync.WaitGroup
		for client := 1; client < len(journals); client++ {
			wg.Go(func() { replayClient(ctx, sim, rand.New(rand.NewPCG(seed, uint64(client))), client, note) })
		}
		for random := rand.New(rand.NewPCG(seed, 0)); ctx.Err() == nil; {
			sleepSteps(random.IntN(20), len(journals))
			fault(sim, random)
		}
		wg.Wait()
		sim.Close()
	})
	return slices.Concat(journals[:]...)
}

const step = 250 * time.Microsecond

// sleepSteps sleeps n whole steps, and then until an instant that only this client uses.
func sleepSteps(n, client int) {
	now := time.Now()
	next := now.Truncate(step).Add(time.Duration(1+n)*step + time.Duration(client))
	time.Sleep(next.Sub(now))
}

// replayClient often has a deadline exactly when a reply is due.
func replayClient(ctx context.Context, sim *Sim, random *rand.Rand, client int, note func(int, ...any)) {
	for ctx.Err() == nil {
		sleepSteps(random.IntN(4), client)
		attempt, cancel := context.WithTimeout(ctx, time.Duration(8+random.IntN(5))*step)
		if conn, err := sim.Node().Dial(attempt); err == nil {
			sleepSteps(0, client)
			replies := make([]redlock.Reply, 3)
			group := []redlock.Command{{"SET", fmt.Sprint(random.IntN(9)), fmt.Sprint(client), "PX", "3"}, {"KEYS", "*"}, {"INFO"}}
			err := conn.Do(attempt, group, replies)
			note(client, err, replies)
			conn.Close()
		}
		cancel()
	}
}
