package session

import (
	"regexp"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

// since= of a lease counts from its grant, and not from its request, in every answer that shows it.
func TestSinceIsOfTheGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startSims(t, 3, nil)
		a, w, look := d.dial(), d.dial(), d.dial()
		a.Say("LOCK a", granted5)
		w.Send("LOCK a")
		look.Until("LIST", `state=waiting .*since=\d{4,}\n`)
		released := time.Now()
		a.Say("UNLOCK a", `OK lock=a`)
		w.Want(granted5)
		for _, request := range []string{"LIST", "WHO a", "TRY a"} {
			since := sinceOf(look, request)
			if most := time.Since(released).Milliseconds() + 1; int64(since) > most {
				t.Errorf("%s: since=%d, but the lock was granted at most %d ms ago", request, since, most)
			}
		}
	})
}

// sinceOf returns since= of a request's answer, which shows one holder.
func sinceOf(w *wire, request string) int {
	w.T.Helper()
	w.Send("%s", request)
	line := w.Line()
	since := regexp.MustCompile(` since=(\d+)`).FindStringSubmatch(line)
	if since == nil {
		w.T.Fatalf("%s: %s", request, line)
	}
	if line[0] == '-' {
		w.Want(`OK n=1`)
	}
	ms, _ := strconv.Atoi(since[1])
	return ms
}
