package main

import (
	"strings"
	"testing"

	"github.com/redlockd/redlockd/ipc"
)

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
