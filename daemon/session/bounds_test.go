package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlockd/redlockd/daemon/config"
)

// The limits of the protocol and the config are allowed values. One millisecond beyond a limit is
// refused.
func TestBounds(t *testing.T) {
	d := startDaemon(t, 3, func(c *config.Config) {
		longNodeTimeout(c)
		c.Lease.MaxHold = time.Minute
	})
	for i, options := range []string{
		"ttl=100", "ttl=30s", "guard=5s", "ttl=30s max=10s guard=5s", "max=100 ttl=100", "max=60s", "linger=30s", "beat=100",
	} {
		w := d.dial() // some are lost soon; on a busy host before the answer
		w.Say(fmt.Sprintf("LOCK a%d %s", i, options), `(OK|ERR LOST) .*`)
	}
	w := d.dial()
	for options, wanted := range map[string]string{
		"ttl=99":                     `ttl=99ms: must be between 100ms and 30s`,
		"ttl=30001":                  `ttl=30.001s: must be between 100ms and 30s`,
		"guard=0":                    `guard=0s: .*`,
		"guard=5001":                 `guard=5.001s: at most half of the ttl, 5s`,
		"ttl=30s max=10s guard=5001": `guard=5.001s: at most half of max, 5s`,
		"max=99":                     `max=99ms: at least 100ms`,
		"max=60001":                  `max=1m0.001s: at most 1m0s`,
		"max=0":                      `max=0s: at most 1m0s`,
		"linger=30001":               `linger=30.001s: at most 30s`,
		"beat=99":                    `beat=99ms: at least 100ms`,
		"beat=0":                     `beat=0s: at least 100ms`,
	} {
		w.Say("LOCK b "+options, `ERR OPTION lock=b : .*`+wanted+`.*`)
	}
	w.Say("LOCK b ttl=20s", granted5)
	w.Say("EXTEND b ttl=30s", granted5)
	w.Say("EXTEND b ttl=30001", `ERR OPTION .*ttl=30.001s: must be between 100ms and 30s.*`)
	w.Say("EXTEND b ttl=99", `ERR OPTION .*ttl=99ms: must be between 100ms and 30s.*`)
	w.Say("EXTEND b ttl=100", granted5)
}
