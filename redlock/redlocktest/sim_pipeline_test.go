package redlocktest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/redlock"
)

// sendSet sends a SET without waiting for its reply.
func sendSet(t *testing.T, conn redlock.Conn, key, value string) {
	t.Helper()
	if err := conn.Send(t.Context(), []redlock.Command{{"SET", key, value}}); err != nil {
		t.Fatal(err)
	}
}

// receive waits for the reply to one command.
func receive(ctx context.Context, conn redlock.Conn) (redlock.Reply, error) {
	var reply [1]redlock.Reply
	err := conn.Receive(ctx, reply[:])
	return reply[0], err
}

// TestSimGroupsKeepTheirOrder: the groups of a connection keep their order, whatever their delays,
// also if the node pauses within a group.
func TestSimGroupsKeepTheirOrder(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		var executed, want []string
		sim.OnCommand(func(c redlock.Command) { executed = append(executed, c[1]) })
		conn := dialSim(t, sim)
		random := rand.New(rand.NewPCG(1, 2))
		sim.SetDelay(func() (request, reply time.Duration) {
			return time.Duration(random.IntN(5)) * ms, time.Duration(random.IntN(5)) * ms
		})
		sim.Between(func(redlock.Command) time.Duration { return time.Duration(random.IntN(3)) * ms })
		const n = 50
		for i := range n {
			group := []redlock.Command{{"GET", fmt.Sprint(i)}, {"GET", fmt.Sprint(i, "b")}}
			sim.Do("SET", group[0][1], group[0][1])
			want = append(want, group[0][1], group[1][1])
			if err := conn.Send(t.Context(), group); err != nil {
				t.Fatal(err)
			}
		}
		replies := make([]redlock.Reply, 2)
		for i := range n {
			if err := conn.Receive(t.Context(), replies); err != nil || replies[0].Str != want[2*i] {
				t.Fatalf("reply %d: %q, %v", i, replies[0].Str, err)
			}
		}
		if got := strings.Join(executed, ","); got != strings.Join(want, ",") {
			t.Errorf("executed %s", got)
		}
	})
}

// TestSimGroupsOverlap: groups that are sent one after another without waiting overlap.
func TestSimGroupsOverlap(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		conn := dialSim(t, sim)
		sim.SetDelay(delayed(5*ms, 5*ms))
		begin := time.Now()
		for i := range 3 {
			sendSet(t, conn, fmt.Sprint(i), "v")
			time.Sleep(ms)
		}
		for i := range 3 {
			if _, err := receive(t.Context(), conn); err != nil {
				t.Fatal(err)
			}
			want(t, "received after", time.Since(begin), time.Duration(10+i)*ms)
		}
	})
}

// TestSimCutWithGroupsInTransit cuts a connection with three groups: one is executed, one has
// arrived at the node, one is in transit. None is answered. After CutLate, the remaining ones are
// executed later.
func TestSimCutWithGroupsInTransit(t *testing.T) {
	for name, late := range map[string]bool{"at once": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			simTest(t, func(t *testing.T, sim *Sim) {
				conn := dialSim(t, sim)
				sim.SetDelay(delayed(5*ms, 5*ms))
				for i := range 3 {
					sendSet(t, conn, fmt.Sprint(i), "v")
					time.Sleep(3 * ms)
				}
				if late {
					sim.CutLate(20 * ms)
				} else {
					sim.Cut()
				}
				for range 3 {
					_, err := receive(t.Context(), conn)
					wantBroken(t, err)
				}
				time.Sleep(ms)
				want(t, "keys", len(sim.Keys()), 2)
				time.Sleep(20 * ms)
				all := map[bool]int{false: 2, true: 3}[late]
				want(t, "keys later", len(sim.Keys()), all)
				counts := sim.Counts()
				want(t, "unanswered and lost", [2]int{counts.Unanswered, counts.Lost}, [2]int{all, 3 - all})
			})
		})
	}
}

// TestSimHangWithGroupsInTransit: when a hung node resumes, it executes the groups in order, also if
// the client no longer waits for the first one.
func TestSimHangWithGroupsInTransit(t *testing.T) {
	simTest(t, func(t *testing.T, sim *Sim) {
		conn := dialSim(t, sim)
		sim.Hang()
		for i := range 3 {
			sendSet(t, conn, "k", fmt.Sprint(i))
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*ms)
		defer cancel()
		for range 3 {
			if _, err := receive(ctx, conn); err != context.DeadlineExceeded {
				t.Errorf("got error %v, want %v", err, context.DeadlineExceeded)
			}
		}
		if err := conn.Send(t.Context(), []redlock.Command{{"PING"}}); err == nil {
			t.Error("Send succeeded after Receive timed out")
		}
		sim.Resume()
		want(t, "value", sim.Get("k"), "2")
	})
}
