package client

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// ListAll requests page after page, and returns each lock once. If the daemon limits the rate of
// requests, ListAll waits.
func TestListAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		defer c.Close()
		result := async(func() (string, error) {
			var all strings.Builder
			for page, err := range c.ListAll(t.Context()) {
				if err != nil {
					return all.String(), err
				}
				for _, l := range page.Locks {
					fmt.Fprintf(&all, "%s many=%v wanted=%v %v %v", l.Name, l.Many, l.Wanted, l.WaitingHosts, l.Waiting)
					for _, h := range l.Holders {
						fmt.Fprintf(&all, " %s %v", h.Host, h.Waits)
					}
					all.WriteString("\n")
				}
				fmt.Fprintf(&all, "node %d of %d\n", page.Walked, page.Walks)
			}
			return all.String(), nil
		})
		expect := func(request string, answer ...string) {
			tag, got := d.tagged()
			if got != request {
				t.Errorf("the daemon read %q, want %q", got, request)
			}
			for _, line := range answer {
				d.say("@" + tag + " " + line)
			}
		}
		expect("LIST all=yes", "- lock=a state=held mode=shared host=web1 held=3 nodes=5 wanted=yes waiting_hosts=web3,web4 waiting_ms=3100,20",
			"- lock=a state=held mode=shared host=web2 held=3 nodes=5 wanted=yes waiting_hosts=web3,web4 waiting_ms=3100,20",
			"- lock=b state=turn mode=exclusive host=web2 held=3 nodes=5", "OK n=3 walked=0 walks=2 next=c1")
		before := time.Now()
		expect("LIST all=yes from=c1", "ERR LIMIT : requests_per_second = 1")
		expect("LIST all=yes from=c1", "- lock=b state=held mode=exclusive host=web2 held=3 nodes=5",
			"- lock=c state=held mode=shared many=yes nodes=5 wanted=yes", "OK n=2 walked=2 walks=2")
		if waited := time.Since(before); waited != time.Second {
			t.Errorf("after LIMIT the client waited for %v, want a second", waited)
		}
		want := "a many=false wanted=true [web3 web4] [3.1s 20ms] web1 false web2 false\nb many=false wanted=false [] [] web2 true\nnode 0 of 2\n" +
			"c many=true wanted=true [] []\nnode 2 of 2\n"
		if got := result.must(t); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// If a page is refused, ListAll returns the error.
func TestListAllFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		defer c.Close()
		result := async(func() (int, error) {
			for _, err := range c.ListAll(t.Context()) {
				return 0, err
			}
			return 0, nil
		})
		tag, _ := d.tagged()
		d.say("@" + tag + " ERR DENIED : node a: SCAN is not allowed")
		_, err := result.wait()
		want(t, "the list", err, ErrDenied)
	})
}
