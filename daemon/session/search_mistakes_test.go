package session

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// searchMistakes are mistakes that TestSearchDaemons finds when they are planted in the source.
var searchMistakes = []struct {
	name       string
	file       string // from the top of the module
	old, wrong string
}{
	{"the wait in the queue has no end", "daemon/session/lock.go", "case <-timer.C:\n\t\t\treturn a.notReadyError()", "case <-timer.C:\n\t\t\tcontinue"},
	{"a refused request stays in the queue", "daemon/session/lock.go", "q.Leave(&a.Waiter, nodesError(err)) })\n", "_ = nodesError(err) })\n"},
	{"a lost lease is not reported", "daemon/locktable/life.go", "Held:      {to: Lost, rule: tellLoss, do: lost},", "Held:      {to: Lost, do: lost},"},
	{"a lost lease stays in the queue", "daemon/locktable/life.go", "DeadlinePassed: {Lost: {to: Gone, do: LeaveQueue, rule: countKnown}},", "DeadlinePassed: {Lost: {to: Gone, rule: countKnown}},"},
	{"a client that is gone keeps its lock", "daemon/locktable/life.go", "Held: {to: Releasing, do: BeginRelease},\n\t\tLost: {rule: forget},", "Lost: {rule: forget},"},
	{"a grant is not recorded", "daemon/state/journal.go", "func (j *Journal) Granted(l *Lease) { j.appendLease(recordGranted, l) }", "func (j *Journal) Granted(l *Lease) {}"},
}

// TestSearchFindsMistakes plants each mistake, and searches until it is found.
func TestSearchFindsMistakes(t *testing.T) {
	top, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range searchMistakes {
		t.Run(m.name, func(t *testing.T) {
			path := filepath.Join(top, m.file)
			source, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if n := strings.Count(string(source), m.old); n != 1 {
				t.Fatalf("%s has the lines to change %d times, want once: %q", m.file, n, m.old)
			}
			if os.Getenv("REDLOCKD_LONG") == "" {
				return // only whether the mistake can still be planted
			}
			changed, overlay := filepath.Join(t.TempDir(), filepath.Base(m.file)), filepath.Join(t.TempDir(), "overlay.json")
			replace, _ := json.Marshal(map[string]map[string]string{"Replace": {path: changed}}) // always valid
			for to, text := range map[string]string{changed: strings.Replace(string(source), m.old, m.wrong, 1), overlay: string(replace)} {
				if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			search := exec.Command("go", "test", "-vet=off", "-overlay", overlay, "-run", "^TestSearchDaemons$", ".", "-args", "-daemonseeds", "30")
			if out, err := search.CombinedOutput(); err == nil {
				t.Error("not found in 30 seeds")
			} else if first := firstFault(string(out)); first == "" {
				t.Errorf("%v: %s", err, out)
			} else {
				t.Log(first)
			}
		})
	}
}

// firstFault returns the first line of a search that reports a fault, and the seed.
func firstFault(out string) string {
	var fault, seed string
	for line := range strings.Lines(out) {
		switch text := strings.TrimSpace(line); {
		case strings.Contains(text, "_test.go:"):
			if _, after, found := strings.Cut(text, ": seed "); found {
				seed = after
			} else if fault == "" {
				fault = text
			}
		case strings.HasPrefix(text, "panic:") && fault == "":
			fault = text
		}
	}
	if fault == "" {
		return ""
	}
	return fmt.Sprintf("seed %s: %s", seed, fault)
}
