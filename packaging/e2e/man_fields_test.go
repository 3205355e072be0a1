//go:build linux

package e2e

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// The daemon's answers have the fields that redlockd-protocol(7) lists.
func TestManualHasFields(t *testing.T) {
	t.Parallel()
	cluster := redlocktest.StartRedis(t, 3)
	cluster.Admit(t)
	h := newHost(t, cluster)
	d, killed := h.serve(), h.nc()
	killed.lines("LOCK gone ttl=30s")
	d.kill()
	killed.kill()
	h.serve()
	cluster.TurnOfCron(t, "redlock:kept")
	page := readFile(t, manuals(t)["redlockd-protocol.7"])
	n, other := h.nc(), h.nc()
	const grant = "LOCK, TRY, EXTEND, CHECK and RESUME"
	hold := " hold=pid pid=" + strconv.Itoa(os.Getpid())
	for i := range 11 { // more than a line of LIST all=yes can list
		n.lines("LOCK many mode=shared owner=" + strconv.Itoa(i))
	}
	n.lines("LOCK least min=1m")
	n.lines("LOCK wanted")
	waiter := h.nc()
	waiter.send("LOCK wanted")
	waitFor(t, "it waits", func() bool { return other.waiters() == 1 })
	shown := map[string]map[string]bool{}
	for _, q := range []struct {
		by              *terminal
		request, titled string
	}{
		{n, "LOCK job id=1 note=why reentrant=yes", grant}, {n, "LOCK job id=1 note=why reentrant=yes", grant}, {n, "LOCK job reentrant=yes", grant},
		{n, "EXTEND job", grant}, {n, "CHECK job", grant}, {n, "LOCK gpu slots=3", grant}, {n, "LOCK a,b ttl=20s", grant}, {n, "LOCK r mode=shared" + hold, grant},
		{other, "TRY job", "HELD"}, {other, "TRY gpu", "HELD"}, {other, "TRY r", "HELD"}, {other, "WHO job", "WHO"}, {other, "WHO gpu", "WHO"}, {other, "WHO kept", "WHO"}, {other, "WHO least", "WHO"}, {other, "WHO wanted", "WHO"}, {other, "WHO gone", "WHO"}, {other, "TRY kept", "HELD"}, {other, "LIST", "LIST"}, {other, "LIST all=yes", "LIST"},
		{other, "STATUS", "STATUS"}, {other, "HELLO", "HELLO"}, {other, "ADMIT a", "ADMIT"}, {other, "NODES", "NODES"},
		{n, "UNLOCK job", "UNLOCK"}, {n, "UNLOCK job", "UNLOCK"}, {n, "UNLOCK least", "UNLOCK"}, {other, "FORCE a", "FORCE"}, {other, "LIST", "LIST"}, // LOST comes last
	} {
		if shown[q.titled] == nil {
			shown[q.titled] = fieldsShown(t, page, q.titled)
		}
		for _, line := range q.by.lines(q.request) {
			line, _, _ = strings.Cut(line, " : ")
			for word := range strings.FieldsSeq(line) {
				key, _, isField := strings.Cut(word, "=")
				if known := shown[q.titled]; isField && !known[key] {
					t.Errorf("the answer to %s has %s=, which the page does not list (under %s)", q.request, key, q.titled)
				} else if isField {
					known[key+" was answered"] = true
				}
			}
		}
	}
	for _, titled := range []string{grant, "HELD", "LIST", "WHO", "HELLO", "FORCE"} {
		for key := range shown[titled] {
			if !strings.Contains(key, " ") && !shown[titled][key+" was answered"] {
				t.Errorf("%s: the page shows %s=, which was never answered", titled, key)
			}
		}
	}
}

// fieldsShown returns the fields in a section of the page.
func fieldsShown(t *testing.T, page, titled string) map[string]bool {
	t.Helper()
	_, section, found := strings.Cut(page, "\n.Ss "+titled+"\n")
	if !found {
		t.Fatalf("the page has no section %s", titled)
	}
	section, _, _ = strings.Cut(section, "\n.S")
	shown := map[string]bool{}
	for line := range strings.Lines(section) {
		if items, isItem := strings.CutPrefix(line, ".It Li "); isItem {
			for key := range strings.SplitSeq(strings.TrimSpace(items), " , ") {
				shown[key] = true
			}
		}
	}
	return shown
}
