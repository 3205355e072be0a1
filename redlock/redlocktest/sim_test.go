package redlocktest

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/redlock"
	"github.com/redlockd/redlockd/redlock/internal/script"
	"github.com/redlockd/redlockd/redlock/redlocktest/simredis"
)

const ms = time.Millisecond

// simTest runs body with a node in fake time.
func simTest(t *testing.T, body func(t *testing.T, sim *Sim)) {
	synctest.Test(t, func(t *testing.T) {
		sim := NewSim("a")
		defer sim.Close()
		body(t, sim)
	})
}

func dialSim(t *testing.T, sim *Sim) redlock.Conn {
	t.Helper()
	conn, err := sim.Node().Dial(t.Context())
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	t.Cleanup(conn.Close)
	return conn
}

// do sends one command and waits for the reply.
func do(t *testing.T, conn redlock.Conn, command ...string) (redlock.Reply, error) {
	t.Helper()
	var reply [1]redlock.Reply
	err := conn.Do(t.Context(), []redlock.Command{command}, reply[:])
	return reply[0], err
}

// start sends one command in the background. The channel gets the error of Do.
func start(t *testing.T, conn redlock.Conn, command ...string) <-chan error {
	done := make(chan error, 1)
	go func() {
		_, err := do(t, conn, command...)
		done <- err
	}()
	synctest.Wait()
	return done
}

func delayed(request, reply time.Duration) func() (time.Duration, time.Duration) {
	return func() (time.Duration, time.Duration) { return request, reply }
}

func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantBroken(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("Do on a connection that was cut: got error %v, want %v", err, syscall.ECONNRESET)
	}
}

func TestSimDelay(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		conn := dialSim(t, sim)
		sim.SetDelay(delayed(3*ms, 4*ms))
		begin := time.Now()
		done := start(t, conn, "SET", "k", "v")
		time.Sleep(3*ms - 1)
		want(t, "before arrival", sim.Get("k"), "")
		time.Sleep(2 * time.Nanosecond)
		want(t, "after arrival", sim.Get("k"), "v")
		if err := <-done; err != nil {
			t.Error(err)
		}
		want(t, "time taken", time.Since(begin), 7*ms)
	})
}

func TestSimDelayOfLogin(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		sim.SetDelay(delayed(3*ms, 4*ms))
		begin := time.Now()
		dialSim(t, sim)
		want(t, "time taken", time.Since(begin), 7*ms)
		want(t, "dials", sim.Counts().Dials, 1)
	})
}

func TestSimExpiresByItsClock(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		sim.Do("SET", "k", "v", "PX", "40")
		time.Sleep(41*ms - 1)
		want(t, "within the last millisecond", sim.PTTL("k"), 0)
		time.Sleep(time.Nanosecond)
		want(t, "after it", sim.PTTL("k"), -2)

		sim.Do("SET", "k", "v", "PX", "60000")
		sim.StepClock(-time.Hour)
		want(t, "clock set back", sim.PTTL("k"), 3_660_000)
		sim.StepClock(time.Hour + time.Minute + ms)
		want(t, "clock set forward", sim.PTTL("k"), -2)
	})
}

func TestSimClockRate(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		begin := sim.Now()
		time.Sleep(time.Second)
		sim.SetClockRate(1.5)
		time.Sleep(2 * time.Second)
		sim.SetClockRate(0)
		time.Sleep(time.Hour)
		want(t, "time by the node's clock", sim.Now().Sub(begin), 4*time.Second)
	})
}

func TestSimDown(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		sim.Do("SET", "kept", "v")
		conn := dialSim(t, sim)
		sim.SetDelay(delayed(5*ms, 0))
		done := start(t, conn, "SET", "lost", "v")
		sim.Down()
		wantBroken(t, <-done)
		if _, err := sim.Node().Dial(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("dial of a node that is down: got error %v, want %v", err, syscall.ECONNREFUSED)
		}
		sim.Up()
		_, err := do(t, conn, "PING")
		wantBroken(t, err)
		dialSim(t, sim)
		time.Sleep(time.Second)
		want(t, "keys", fmt.Sprint(sim.Keys()), "[kept]")
		counts := sim.Counts()
		want(t, "lost, refused and made", [3]int{counts.Lost, counts.RefusedDials, counts.Dials}, [3]int{1, 1, 2})
	})
}

func TestSimCrash(t *testing.T) {
	for _, keep := range []bool{false, true} {
		t.Run(fmt.Sprintf("keepData=%v", keep), func(t *testing.T) {
			simTest(t, func(t *testing.T, sim *Sim) { checkCrash(t, sim, keep) })
		})
	}
}

func checkCrash(t *testing.T, sim *Sim, keep bool) {
	for range 3 {
		dialSim(t, sim)
	}
	sim.Do("SET", "k", "v")
	sha := sim.Do("SCRIPT", "LOAD", script.Scripts()[0].Source).Str
	life := sim.RunID()
	sim.Crash(keep)
	if conn, err := sim.Node().Dial(t.Context()); err == nil {
		conn.Close()
		t.Error("dial of a crashed node succeeded")
	}
	sim.Restart()
	if sim.RunID() == life {
		t.Errorf("run_id after a restart: still %s", life)
	}
	want(t, "the key survived", sim.Get("k") == "v", keep)
	reply, err := do(t, dialSim(t, sim), "CLIENT", "ID")
	want(t, "the first id", reply.Int, 1)
	want(t, "error", err, nil)
	want(t, "the script", sim.Do("EVALSHA", sha, "1", "k").Err, error(simredis.ErrNoScript))
}

func TestSimDrops(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		sim.DropRequests(1)
		_, err := do(t, dialSim(t, sim), "SET", "request", "v")
		wantBroken(t, err)
		sim.DropReplies(1)
		_, err = do(t, dialSim(t, sim), "SET", "reply", "v")
		wantBroken(t, err)
		_, err = do(t, dialSim(t, sim), "SET", "good", "v")
		want(t, "error of the third", err, nil)
		want(t, "keys", fmt.Sprint(sim.Keys()), "[good reply]")
		counts := sim.Counts()
		want(t, "groups, lost, unanswered", [3]int{counts.Groups, counts.Lost, counts.Unanswered}, [3]int{2, 1, 1})
	})
}

// TestSimOnCommand: what OnCommand's function does to the node affects the command itself.
func TestSimOnCommand(t *testing.T) {
	faults := map[string]struct {
		fault func(*Sim)
		keys  string // after Do has returned
		then  func(*Sim)
		after string // after then
	}{
		"hang":    {(*Sim).Hang, "[a]", (*Sim).Resume, "[a b c]"},
		"down":    {(*Sim).Down, "[a]", (*Sim).Up, "[a]"},
		"cut":     {(*Sim).Cut, "[a]", func(*Sim) {}, "[a]"},
		"late":    {func(s *Sim) { s.CutLate(ms) }, "[a]", func(*Sim) { time.Sleep(2 * ms) }, "[a b c]"},
		"crash":   {func(s *Sim) { s.Crash(true) }, "[a]", (*Sim).Restart, "[a]"},
		"flush":   {(*Sim).Flush, "[b c]", func(*Sim) {}, "[b c]"},
		"refused": {func(s *Sim) { s.Refuse("LOADING wait") }, "[a]", func(*Sim) {}, "[a]"},
	}
	for name, c := range faults {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(t *testing.T, sim *Sim) {
				sim.OnCommand(func(command redlock.Command) {
					if command[1] == "b" {
						c.fault(sim)
					}
				})
				conn := dialSim(t, sim)
				ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
				defer cancel()
				group := []redlock.Command{{"SET", "a", "v"}, {"SET", "b", "v"}, {"SET", "c", "v"}}
				err := conn.Do(ctx, group, make([]redlock.Reply, 3))
				want(t, "Do succeeded", err == nil, name == "flush" || name == "refused")
				want(t, "keys", fmt.Sprint(sim.Keys()), c.keys)
				c.then(sim)
				want(t, "keys later", fmt.Sprint(sim.Keys()), c.after)
			})
		})
	}
}

func TestSimRefuse(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		conn := dialSim(t, sim)
		sim.Refuse("LOADING Redis is loading the dataset in memory")
		reply, err := do(t, conn, "SET", "k", "v")
		want(t, "error of Do", err, nil)
		want(t, "answer", reply.Err, error(redlock.ServerError("LOADING Redis is loading the dataset in memory")))
		sim.Refuse("")
		reply, _ = do(t, conn, "GET", "k")
		want(t, "nothing was executed", reply.Nil, true)
	})
}

func TestSimCountsByName(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		conn := dialSim(t, sim)
		for _, script := range script.Scripts() {
			do(t, conn, "SCRIPT", "LOAD", script.Source)
			do(t, conn, "EVALSHA", script.SHA, "0")
			want(t, script.Name, sim.Counts().Commands[script.Name], 1)
		}
		do(t, conn, "get", "k")
		do(t, conn, "nosuch")
		counts := sim.Counts().Commands
		want(t, "GET", counts["GET"], 1)
		want(t, "NOSUCH", counts["NOSUCH"], 1)
		want(t, "SCRIPT LOAD", counts["SCRIPT LOAD"], len(script.Scripts()))
	})
}

func TestSimCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sim := NewSim("a")
		conn := dialSim(t, sim)
		sim.SetDelay(delayed(5*ms, 5*ms))
		done := start(t, conn, "SET", "k", "v")
		sim.Close()
		wantBroken(t, <-done)
		time.Sleep(time.Second)
		want(t, "executed after Close", sim.Get("k"), "")
		if _, err := sim.Node().Dial(t.Context()); err == nil {
			t.Error("dial of a closed node succeeded")
		}
	})
}

func BenchmarkSimGroup(b *testing.B) {
	sim := NewSim("a")
	defer sim.Close()
	conn, err := sim.Node().Dial(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	ballot := luaScript(b, "ballot")
	sim.Do("SCRIPT", "LOAD", ballot.Source)
	sim.Do("HSET", NodeKey, "epoch", anEpoch, "aa", "0")
	group := []redlock.Command{scriptCall(ballot.SHA, anEpoch, "9007199254740991", opAcquire("k", "mine", minute)), {"DEL", "k"}}
	replies := make([]redlock.Reply, len(group))
	b.ReportAllocs()
	for b.Loop() {
		if err := conn.Do(b.Context(), group, replies); err != nil || replies[0].Array[0].Int != 1 {
			b.Fatal(err, replies)
		}
	}
}
