package session

import (
	"fmt"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest/effort"
	"github.com/redlockd/redlockd/redlock/redlocktest/planted"
)

// searchMistakes are mistakes that TestSearchDaemons finds.
var searchMistakes = []planted.Mistake{
	planted.New("the wait in the queue has no end", planted.Replace("lock.go", "case <-timer.C:\n\t\t\treturn a.notReadyError()", "case <-timer.C:\n\t\t\tif WRONG {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\treturn a.notReadyError()")),
	planted.New("a refused request stays in the queue", planted.Replace("lock.go", "q.Leave(&a.Waiter, nodesError(err)) })\n", "if WRONG {\n\t\treturn\n\t}\n\tq.Leave(&a.Waiter, nodesError(err)) })\n")),
	planted.New("a lost lease is not reported", planted.Replace("../locktable/life.go", "Held:      {to: Lost, rule: tellLoss, do: lost},", "Held:      {to: Lost, rule: plantedPick(WRONG, 0, tellLoss), do: lost},")),
	planted.New("a lost lease stays in the queue", planted.Replace("../locktable/life.go", "DeadlinePassed: {Lost: {to: Gone, do: LeaveQueue, rule: countKnown}},", "DeadlinePassed: {Lost: {to: Gone, do: plantedPick(WRONG, 0, LeaveQueue), rule: countKnown}},")),
	planted.New("a client that is gone keeps its lock", planted.Replace("../locktable/life.go", "Held: {to: Releasing, do: BeginRelease},\n\t\tLost: {rule: forget},", "Held: plantedPick(WRONG, step{}, step{to: Releasing, do: BeginRelease}),\n\t\tLost: {rule: forget},")),
	planted.New("a grant is not recorded", planted.Replace("../state/journal.go", "j.appendLease(recordLease, &leaseRecord{*l, by})", "if !WRONG || by != l.Number {\n\t\t\tj.appendLease(recordLease, &leaseRecord{*l, by})\n\t\t}")),
}

// TestSearchFindsMistakes searches until each mistake is found. Without -long, it only checks that they
// can be planted.
func TestSearchFindsMistakes(t *testing.T) {
	planted.Check(t, searchMistakes)
	if !effort.IsLong() {
		return
	}
	binary := planted.Build(t, searchMistakes)
	for _, m := range searchMistakes {
		t.Run(m.Name, func(t *testing.T) {
			if out, err := planted.Command(t, binary, m.Name, "-test.run=^TestSearchDaemons$", "-daemonseeds", "30").CombinedOutput(); err == nil {
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
