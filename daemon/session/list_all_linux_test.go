package session

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/daemon/daemontest"
)

// listAll reads all pages, and returns each line once, sorted and without times.
func (w *wire) listAll() (lines []string) {
	w.T.Helper()
	for from := ""; ; {
		w.Send("LIST all=yes%s", from)
		line := w.Line()
		for ; strings.HasPrefix(line, "- "); line = w.Line() {
			words := slices.DeleteFunc(strings.Fields(line[2:]), func(word string) bool {
				key, _, _ := strings.Cut(word, "=")
				return key == "since" || key == "ttl" || key == "pid" || key == "user" || key == "waiting_ms"
			})
			lines = append(lines, strings.Join(words, " "))
		}
		fields := daemontest.Matches(w.T, line, `OK n=\d+ walked=\d walks=2(?: next=(\S+))?`)
		if fields[0] == "" {
			slices.Sort(lines)
			return slices.Compact(lines)
		}
		from = " from=" + fields[0]
	}
}

// LIST all=yes shows the locks and waiters of both hosts that the client may inspect. Its own locks
// are no exception.
func TestListAll(t *testing.T) {
	d := startWithRules(t, `
rule "web" {
  users = ["4001"]
  locks = ["web/*"]
  allow = ["lock", "inspect"]
}
rule "batch" {
  users = ["4001", "4002"]
  locks = ["batch/*"]
  allow = ["lock"]
}
rule "everything" {
  users = ["4003"]
  locks = ["**"]
  allow = ["lock", "inspect"]
}`)
	other := d.another()
	if err := os.Chmod(other.Cfg.Socket.Path, 0o666); err != nil {
		t.Fatal(err)
	}
	web, batch, all := d.dialAs(userOf(4001)), d.dialAs(userOf(4002)), d.dialAs(userOf(4003))
	there := other.dialAs(userOf(4003))
	web.Say("LOCK web/a note=mine", "OK .*")
	batch.Say("LOCK batch/a", "OK .*")
	there.Say("LOCK web/b mode=shared", "OK .*")
	waits := d.dialAs(userOf(4003))
	waits.Send("LOCK web/b")
	daemontest.Eventually(t, "all nodes have the three locks, and the waiter", func() bool {
		lines := strings.Join(there.listAll(), "\n")
		return strings.Count(lines, "held=3") == 3 && strings.Contains(lines, "wanted=yes")
	})
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	a := fmt.Sprintf("lock=web/a state=held mode=exclusive host=%s held=3 nodes=3", host)
	b := fmt.Sprintf("lock=web/b state=held mode=shared host=%s held=3 nodes=3 wanted=yes waiting_hosts=%s", host, host)
	c := fmt.Sprintf("lock=batch/a state=held mode=exclusive host=%s held=3 nodes=3", host)
	for who, w := range map[string]struct {
		wire *wire
		want []string
	}{
		"web": {web, []string{a + " note=mine", b}}, "all": {all, []string{c, a + " note=mine", b}}, "from the other host": {there, []string{c, a, b}},
	} {
		if got := w.wire.listAll(); !slices.Equal(got, w.want) {
			t.Errorf("%s: got\n%s\nwant\n%s", who, strings.Join(got, "\n"), strings.Join(w.want, "\n"))
		}
	}
	batch.Say("LIST all=yes", `ERR DENIED : LIST all=yes: not allowed for 4002: no access rule of 3 allows "inspect"`)
	web.Say("LIST all=yes from=x", `ERR OPTION : "x" is not the cursor of an earlier page`)
	web.Say("LIST from=x", `ERR OPTION : from= needs all=yes`)
}
