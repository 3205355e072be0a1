//go:build linux

package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redlockd/redlockd/redlock/redlocktest"
)

// A daemon without a free descriptor serves the connected clients. It logs the lack, but not
// endlessly. When connections end, it accepts again.
func TestNoDescriptorLeft(t *testing.T) {
	cluster := redlocktest.StartRedis(t, 3)
	cluster.Admit(t)
	h := newHost(t, cluster)
	d := start(t, h.dir, "sh", "-c", `ulimit -n 60 && exec "$0" -config "$1"`, filepath.Join(binaries, "redlockd"), h.config)
	awaitLog(d, "serving: ")
	first := h.guest(t)
	first.ask("PING", "OK")
	var many []*guest
	for range 100 {
		many = append(many, h.guest(t))
	}
	awaitLog(d, "no connection can be accepted for now")
	for range 20 {
		first.ask("LOCK job wait=0", "OK lock=job")
		first.ask("UNLOCK job", "OK lock=job")
	}
	for _, g := range many {
		g.conn.Close()
	}
	waitFor(t, "a connection is accepted", func() bool { // until then the answer is LIMIT
		after := h.guest(t)
		after.write("LOCK job wait=0\n")
		answer, _ := after.line()
		return strings.HasPrefix(answer, "OK lock=job")
	})
	awaitLog(d, "connections are accepted again")
	if n := strings.Count(d.stderr.text(), "no connection can be accepted"); n != 1 {
		t.Errorf("it was logged %d times, want once", n)
	}
}

// sizeOf returns a size of the daemon's memory from /proc, in bytes.
func (h *host) sizeOf(d *process, what string) int {
	h.t.Helper()
	status := readFile(h.t, fmt.Sprintf("/proc/%d/status", d.cmd.Process.Pid))
	_, rest, _ := strings.Cut(status, what)
	var kilobytes int
	if _, err := fmt.Sscan(rest, &kilobytes); err != nil {
		h.t.Fatal(err)
	}
	return kilobytes << 10
}

// If a client sends requests faster than the config allows, its error names the limit. It can still
// release its lock. Other clients get no such error.
func TestRequestsPerSecond(t *testing.T) {
	const requests, rate = 2000, 100
	a := newArena(t, "limits { requests_per_second = 100 }")
	bad := a.as(t, badUser)
	bad.ask("LOCK bad", "OK lock=bad")
	go bad.write(strings.Repeat("PING\n", requests) + "UNLOCK bad\n")
	refused := 0
	for range requests {
		line, _ := bad.line()
		switch {
		case strings.HasPrefix(line, "ERR LIMIT : a limit of the config is reached: requests_per_second = 100"):
			refused++
		case line != "OK":
			t.Fatalf("got %s", line)
		}
	}
	if refused < requests/2 || refused > requests-rate+1 {
		t.Errorf("%d of %d are refused", refused, requests)
	}
	bad.comes("OK lock=bad")
	a.good.ask("PING", "OK")
}

// If a user has as many waiters as the config allows, its error names the limit. When one of its
// waiters ends, it can wait again. Other users get no such error.
func TestWaitersPerUser(t *testing.T) {
	const limit = 20
	a := newArena(t, "limits { waiters_per_user = 20 }")
	bad := a.as(t, badUser)
	a.good.ask("LOCK held", "OK lock=held")
	for i := range limit {
		bad.write(fmt.Sprintf("@w%d LOCK held owner=o%[1]d\n", i))
	}
	const refused = " ERR LIMIT lock=held : a limit of the config is reached: waiters_per_user = 20"
	bad.ask("@one LOCK held owner=one", "@one"+refused)
	other := a.as(t, badUser)
	other.ask("LOCK held", refused[1:]) // the limit is the user's, not the connection's
	other.ask("LOCK free", "ERR LIMIT lock=free")
	another := a.as(t, goodUser)
	another.write("@w LOCK held\n") // waits, as does the next one
	another.ask("LOCK free", "OK lock=free")

	bad.write("CANCEL w7\n")
	canceled := []string{bad.comes(""), bad.comes("")}
	slices.Sort(canceled) // the answers may come in either order
	if !strings.HasPrefix(canceled[0], "@w7 ERR CANCELLED lock=held") || canceled[1] != "OK" {
		t.Errorf("got %q, want CANCELLED and OK", canceled)
	}
	bad.write("@again LOCK held owner=again\n")
	bad.ask("@two LOCK held owner=two", "@two"+refused)
	a.good.ask("UNLOCK held", "OK lock=held")
	bad.comes("@w0 OK lock=held")
}

// A second request with a tag that is in flight is refused, and the first one is not affected.
func TestTagsInFlight(t *testing.T) {
	a := newArena(t)
	bad := a.as(t, badUser)
	a.good.ask("LOCK held", "OK lock=held")
	bad.write("@t LOCK held\n")
	const inFlight = "@t ERR SYNTAX : the tag t is still in use"
	for range 3 {
		for _, request := range []string{"LOCK other", "PING", "UNLOCK held", "CANCEL t"} {
			bad.ask("@t "+request, inFlight)
		}
	}
	bad.ask("@T TRY other", "@T OK lock=other") // another tag
	bad.ask("PING", "OK")
	a.good.ask("UNLOCK held", "OK lock=held")
	bad.comes("@t OK lock=held")
	bad.ask("@t CHECK held", "@t OK lock=held") // the tag is free again
	a.good.ask("TRY held", "ERR HELD lock=held")
}

// The longest allowed line and note are accepted. With one byte more, the error names the bound,
// and the connection goes on.
func TestLongestLines(t *testing.T) {
	a := newArena(t)
	bad := a.as(t, badUser)
	const line, note = 4096, 200
	for _, n := range []int{line, line + 1, 10 * line} {
		request := "LOCK noted note=" // the bound includes the LF
		request += strings.Repeat("n", n-len(request)-1)
		if n <= line {
			bad.ask(request, "ERR OPTION : note")
			continue
		}
		if answer := bad.ask(request, "ERR TOOLONG"); !strings.Contains(answer, "4096") {
			t.Errorf("got %s, want the bound of 4096 bytes", answer)
		}
		bad.ask("CHECK noted", "ERR NOTHELD lock=noted")
	}
	if answer := bad.ask("LOCK noted note="+strings.Repeat("n", note+1), "ERR OPTION"); !strings.Contains(answer, "200") {
		t.Errorf("got %s, want the bound of 200 bytes", answer)
	}
	padded := "LOCK noted note=" + strings.Repeat("n", note)
	bad.ask(padded+strings.Repeat(" ", line-len(padded)-1), "OK lock=noted") // the longest allowed line with the longest note
	a.good.write("LIST\n")
	if held := a.good.comes("- lock=noted"); !strings.Contains(held+" ", " note="+strings.Repeat("n", note)+" ") {
		t.Errorf("LIST says %s, want all of the note", held)
	}
}
