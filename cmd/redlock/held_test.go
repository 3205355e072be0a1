package main

import (
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/cmd/redlock/internal/cmdtest"
	"github.com/redlockd/redlockd/cmd/redlock/internal/exit"
	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock/boottime"
)

// If a lock cannot be extended, --print prints nothing.
func TestExtendRefused(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbCheck: cmdtest.GrantFor(time.Minute), ipc.VerbExtend: cmdtest.Reply("ERR NOQUORUM : 3 of 5 nodes are down")})
	code, stdout, stderr := cmdtest.Run(t, f.Socket, "extend", "--print", "job")
	cmdtest.CheckExit(t, code, exit.Unavailable, stderr, "3 of 5 nodes are down")
	if stdout != "" {
		t.Errorf("it prints %q", stdout)
	}
}

// -t 0 is an error; it does not mean that -t is missing. Otherwise the lease time would not change,
// and redlock extend would appear to succeed.
func TestExtendByNothing(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbCheck: cmdtest.GrantFor(time.Minute), ipc.VerbExtend: cmdtest.GrantFor(time.Hour)})
	code, _, stderr := cmdtest.Run(t, f.Socket, "extend", "-t", "0", "job")
	cmdtest.CheckExit(t, code, exit.Usage, stderr, "-t 0")
}

// With -s, redlock extend asks the daemon to share the lock. It refuses -t with -s, because that is
// another request.
func TestExtendShared(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbCheck: cmdtest.GrantFor(time.Minute), ipc.VerbExtend: cmdtest.GrantFor(time.Hour)})
	code, _, stderr := cmdtest.Run(t, f.Socket, "extend", "-s", "job")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	if r := f.ExpectRequest(ipc.VerbExtend); !r.Has(ipc.OptMode) || r.Mode != ipc.Shared || r.Has(ipc.OptTTL) {
		t.Errorf("the request is %+v", r)
	}
	code, _, stderr = cmdtest.Run(t, f.Socket, "extend", "-s", "-t", "1m", "job")
	cmdtest.CheckExit(t, code, exit.Usage, stderr, "-s with -t")
}

// --print prints the lease after the extension, not before it.
func TestExtendPrints(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbCheck: cmdtest.GrantFor(time.Minute), ipc.VerbExtend: cmdtest.GrantFor(time.Hour)})
	code, stdout, stderr := cmdtest.Run(t, f.Socket, "extend", "-t", "1h", "--print", "job")
	cmdtest.CheckExit(t, code, 0, stderr, "")
	if !strings.Contains(stdout, "REDLOCK_TTL='35") { // milliseconds; the ttl is an hour
		t.Errorf("it prints %q", stdout)
	}
}

// If the lock is not held, --print prints nothing, and the exit code is as without it.
func TestNothingToPrint(t *testing.T) {
	t.Parallel()
	for answer, want := range map[string]struct {
		code   int
		stderr string
	}{
		"ERR NOTHELD : this process does not hold it": {exit.Conflict, ""},
		"ERR LOST : reason=beat":                      {exit.Lost, "LOST: reason=beat"},
		"ERR INTERNAL : a defect":                     {exit.Internal, "please report it"},
	} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbCheck: cmdtest.Reply(answer)})
		code, stdout, stderr := cmdtest.Run(t, f.Socket, "check", "--print", "job")
		cmdtest.CheckExit(t, code, want.code, stderr, want.stderr)
		if stdout != "" {
			t.Errorf("%s: it prints %q", answer, stdout)
		}
	}
}

// --print prints times in milliseconds, and the deadline on the clock of package boottime. It
// prints the first slot like any other slot.
func TestPrints(t *testing.T) {
	t.Parallel()
	deadline := boottime.Exact() + time.Hour
	for _, slot := range []string{"1", ""} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbCheck: func() []string {
			if slot == "" {
				return []string{cmdtest.GrantLine(deadline, time.Hour)}
			}
			return []string{cmdtest.GrantLine(deadline, time.Hour) + " slot=" + slot}
		}})
		code, stdout, stderr := cmdtest.Run(t, f.Socket, "check", "--print", "job")
		cmdtest.CheckExit(t, code, 0, stderr, "")
		printed := map[string]string{}
		for line := range strings.Lines(stdout) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			printed[name] = strings.Trim(value, "'")
		}
		ttl, err := strconv.Atoi(printed["REDLOCK_TTL"])
		if most := int(time.Hour.Milliseconds()); err != nil || ttl > most || ttl < most-int(cmdtest.Timeout.Milliseconds()) {
			t.Errorf("REDLOCK_TTL is %d, want the milliseconds of an hour, less what has passed", ttl)
		}
		delete(printed, "REDLOCK_TTL")
		want := map[string]string{"REDLOCK_NAME": "job", "REDLOCK_FENCE": "77", "REDLOCK_LEASE": "secret",
			"REDLOCK_DEADLINE": strconv.FormatInt(deadline.Milliseconds(), 10), "REDLOCK_SLOT": slot}
		if !maps.Equal(printed, want) {
			t.Errorf("it prints %v, want %v", printed, want)
		}
	}
}

// If a lock is not held or was lost, the error names it as the command line does.
func TestNotHeld(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"ERR NOTHELD lock=a%2Cb : a,b: not held by process 7 for this user", "ERR LOST : reason=beat", "ERR DENIED : process 1 is another user's"} {
		f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbCheck: cmdtest.Reply(answer)})
		for _, verb := range []string{"unlock", "extend", "beat", "check"} {
			_, code, _ := strings.Cut(answer, " ")
			want := "redlock: " + verb + ` "a%2Cb": ` + strings.Replace(code, " :", ":", 1) + "\n"
			switch notHeld := strings.HasPrefix(answer, "ERR NOTHELD"); {
			case notHeld && verb == "check":
				want = "" // redlock check prints no error
			case notHeld:
				want = "redlock: " + verb + ` "a%2Cb": not held by process 7 for this user; redlock who a%2Cb shows the holder, and --pid names another process` + "\n"
			}
			if _, _, stderr := cmdtest.Run(t, f.Socket, verb, "a%2Cb"); stderr != want {
				t.Errorf("redlock %s: %s: stderr is %q, want %q", verb, answer, stderr, want)
			}
		}
	}
}

// An empty NAME, such as an unset variable, is not a missing NAME. Otherwise redlock would release
// the lock of the outer redlock run.
func TestEmptyNameUnderRun(t *testing.T) {
	t.Parallel()
	f := cmdtest.StartFake(t, cmdtest.Replies{ipc.VerbCheck: cmdtest.GrantFor(time.Minute), ipc.VerbUnlock: cmdtest.Reply("OK")})
	for _, verb := range []string{"unlock", "extend", "beat", "check"} {
		cmd := cmdtest.Command(t, "env", "REDLOCK_NAME=job", "REDLOCK_LEASE=secret", cmdtest.TestBinary, verb, "")
		p := cmdtest.StartCommand(t, cmd, cmdtest.RoleRedlock, f.Socket)
		code := p.Wait()
		cmdtest.CheckExit(t, code, exit.Usage, p.Stderr(), `a NAME is empty in ""`)
	}
	if len(f.Requests)+len(f.Looks) > 0 {
		t.Error("the daemon was asked")
	}
}
