package main

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/bench"
	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
)

// The test is not parallel, like other tests that load the machine: parallel tests depend on timing
// and tolerate little load.
func TestBench(t *testing.T) {
	_, socket := cmdtest.StartDaemon(t)
	code, stdout, stderr := cmdtest.Run(t, socket, "bench", "--duration", "2s", "--workers", "4", "--json")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	var got bench.JSON
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err)
	}
	if got.Nodes != 5 || got.Quorum != 3 || got.Workers != 4 || got.Version == "" {
		t.Errorf("measured was %+v, want 5 nodes and 4 workers", got)
	}
	var names []string
	for _, r := range got.Rows {
		names = append(names, r.Row)
		if r.Done == 0 || r.PerSecond <= 0 || r.P50 <= 0 || r.P50 > r.P90 || r.P90 > r.P99 || r.P99 > r.Max || r.Max > cmdtest.Timeout.Microseconds() {
			t.Errorf("%+v cannot be", r)
		}
	}
	if !slices.Equal(names, []string{"ping", "lock", "unlock", "throughput", "hand-over"}) {
		t.Errorf("measured are %q", names)
	}
	cmdtest.ExpectNothingHeld(t, socket)
}

// A signal ends redlock bench during a measurement.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	_, socket := cmdtest.StartDaemon(t)
	p := cmdtest.Start(t, cmdtest.RoleRedlock, socket, "bench", "--duration", "3h")
	for stdout := ""; !strings.Contains(stdout, "connections 2"); {
		_, stdout, _ = cmdtest.Run(t, socket, "status")
	}
	p.Signal(syscall.SIGINT)
	p.ExpectExit(exit.Signal + int(syscall.SIGINT))
}

func TestBenchRefused(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answers cmdtest.Replies
		args    []string
		code    int
		text    string
	}{
		{cmdtest.NothingHeld, []string{"--workers", "0"}, exit.Usage, "1 to 1000"},
		{cmdtest.NothingHeld, []string{"--workers", "1001"}, exit.Usage, "1 to 1000"},
		{cmdtest.NothingHeld, []string{"--duration", "99ms"}, exit.Usage, "at least 100ms"},
		{shown, nil, exit.Unavailable, "no quorum for another 12s"},
		{cmdtest.Replies{ipc.VerbStatus: cmdtest.NothingHeld[ipc.VerbStatus], ipc.VerbLock: cmdtest.Reply("ERR NOQUORUM : a: down")}, nil, exit.Unavailable, "a: down"},
		{cmdtest.Replies{ipc.VerbStatus: cmdtest.NothingHeld[ipc.VerbStatus], ipc.VerbLock: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply("OK lock=job"), ipc.VerbPing: cmdtest.Reply("ERR LIMIT : requests_per_second")},
			nil, exit.Denied, "requests_per_second"},
	} {
		f := cmdtest.StartFake(t, test.answers)
		code, stdout, stderr := cmdtest.Run(t, f.Socket, append([]string{"bench"}, test.args...)...)
		cmdtest.CheckExit(t, code, test.code, stderr, test.text)
		if stdout != "" {
			t.Errorf("%v: stdout is %q, want nothing", test.args, stdout)
		}
	}
}

// Each redlock bench has its own lock names, so two do not collide. The names have a prefix, so
// that access rules can allow them.
func TestBenchNames(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"redlock-bench/", "mine/"} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbStatus: cmdtest.NothingHeld[ipc.VerbStatus], ipc.VerbLock: cmdtest.Reply("ERR DENIED : rule web")})
		code, _, stderr := cmdtest.Run(t, f.Socket, "bench", "--prefix", prefix)
		cmdtest.CheckExit(t, code, exit.Denied, stderr, "rule web")
		name := f.ExpectRequest(ipc.VerbLock).Names[0]
		if own := regexp.MustCompile("^" + prefix + "[A-Z2-7]{8}/free$"); !own.MatchString(name) {
			t.Errorf("it locks %q, want %v", name, own)
		}
	}
}
