package main

import (
	"strings"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// What cannot be extended is not printed as if it had been.
func TestExtendRefused(t *testing.T) {
	t.Parallel()
	f := startFake(t, answers{ipc.VerbCheck: grants(time.Minute), ipc.VerbExtend: says("ERR NOQUORUM : 3 of 5 nodes are down")})
	code, stdout, stderr := redlock(t, f.socket, "extend", "--print", "job")
	check(t, code, exitUnavailable, stderr, "3 of 5 nodes are down")
	if stdout != "" {
		t.Errorf("it prints %q", stdout)
	}
}

// What is printed is what the extension came to, not what was before it.
func TestExtendPrints(t *testing.T) {
	t.Parallel()
	f := startFake(t, answers{ipc.VerbCheck: grants(time.Minute), ipc.VerbExtend: grants(time.Hour)})
	code, stdout, stderr := redlock(t, f.socket, "extend", "-t", "1h", "--print", "job")
	check(t, code, 0, stderr, "")
	if !strings.Contains(stdout, "REDLOCK_TTL='35") { // milliseconds, of an hour
		t.Errorf("it prints %q", stdout)
	}
}

// What is not held, or was lost, is told with the words of the command line.
func TestNotHeld(t *testing.T) {
	t.Parallel()
	for _, answer := range []string{"ERR NOTHELD : this process does not hold it", "ERR LOST : reason=beat", "ERR DENIED : process 1 is another user's"} {
		f := startFake(t, answers{ipc.VerbCheck: says(answer)})
		for _, verb := range []string{"unlock", "extend", "beat", "check"} {
			_, code, _ := strings.Cut(answer, " ")
			want := "redlock: " + verb + ` "a%2Cb": ` + strings.Replace(code, " :", ":", 1) + "\n"
			if verb == "check" && strings.HasPrefix(answer, "ERR NOTHELD") {
				want = "" // that is an answer
			}
			if _, _, stderr := redlock(t, f.socket, verb, "a%2Cb"); stderr != want {
				t.Errorf("redlock %s: %s: stderr is %q, want %q", verb, answer, stderr, want)
			}
		}
	}
}
