//go:build linux

package e2e

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// idle waits for about this time, or until the load ends. It reports whether the client continues.
func (c *caller) idle(about time.Duration) (goOn bool) {
	select {
	case <-c.load.over:
		return false
	case <-c.gone:
		return false
	case <-time.After(about/2 + rand.N(about)):
		return true
	}
}

// take acquires lock, or waits for it. The id= makes a resend harmless.
func (c *caller) take(lock, options string) bool {
	return c.load.book.granted(c.name, lock, c.ask(c.lockText(lock, options)))
}

func (c *caller) lockText(lock, options string) string {
	return fmt.Sprintf("LOCK %s ttl=30s %s id=%d", lock, options, rand.Uint64())
}

func (c *caller) check(lock string) { c.load.book.checked(c.name, lock, c.quick("CHECK "+lock)) }

func (c *caller) give(lock string) {
	c.load.book.release(c.name, lock)
	c.unlock(lock)
}

func (c *caller) unlock(lock string) {
	r := c.send("", "UNLOCK "+lock)[0]
	c.unlocked(r, c.await(r))
}

// unlocked handles the answer to UNLOCK. A resent UNLOCK may find that the lock is already
// released.
func (c *caller) unlocked(r *request, answer string) {
	if answer != "" && !strings.HasPrefix(answer, "OK lock=") && !(r.again && strings.HasPrefix(answer, "ERR NOTHELD")) {
		c.load.fault("%s: %s: %s", c.name, r.text, answer)
	}
}

// holds keeps a lock of its own, and sometimes releases it and takes it again.
func (c *caller) holds(i int) {
	lock := fmt.Sprint("own-", i)
	for goOn := true; goOn; {
		if !c.take(lock, "") {
			return
		}
		for range 10 {
			if goOn = c.idle(200 * time.Millisecond); !goOn {
				break
			}
			c.check(lock)
		}
		c.give(lock)
	}
}

// contends takes a lock that other clients want too.
func (c *caller) contends(i int) {
	lock := fmt.Sprint("contended-", i%5)
	for goOn := true; goOn; goOn = c.idle(10 * time.Millisecond) {
		if !c.take(lock, "") {
			return
		}
		c.idle(20 * time.Millisecond)
		c.check(lock)
		c.give(lock)
	}
}

// shares takes one of three slots.
func (c *caller) shares(int) {
	for goOn := true; goOn; goOn = c.idle(10 * time.Millisecond) {
		answer := c.ask(c.lockText("places", "slots=3"))
		lock := "places/" + field(answer, "slot")
		if !c.load.book.granted(c.name, lock, answer) {
			return
		}
		c.idle(50 * time.Millisecond)
		c.load.book.checked(c.name, lock, c.quick("CHECK places"))
		c.load.book.release(c.name, lock)
		c.unlock("places")
	}
}

// idles sends nothing between its first and its last request (bid).
func (c *caller) idles(int) { c.wantOK("PING") }

func (c *caller) idlesWithLock(i int) {
	lock := fmt.Sprint("silent-", i)
	if c.take(lock, "") {
		<-c.load.over
		c.check(lock)
		c.give(lock)
	}
}

// pings nearly always has a request in progress.
func (c *caller) pings(int) {
	for goOn := true; goOn; goOn = c.idle(20 * time.Millisecond) {
		c.wantOK("PING")
	}
}

func (c *caller) wantOK(text string) {
	if answer := c.quick(text); answer != "" && !strings.HasPrefix(answer, "OK") {
		c.load.fault("%s: %s: %s", c.name, text, answer)
	}
}

// bid is the last request of every client. It checks that the connection still works.
func (c *caller) bid() { c.wantOK("PING") }

// pipelines sends all kinds of requests for many locks in one write.
func (c *caller) pipelines(i int) {
	var locks, takes, checks, gives []string
	for n := range 10 {
		lock := fmt.Sprintf("many-%d-%d", i, n)
		locks, checks, gives = append(locks, lock), append(checks, "CHECK "+lock), append(gives, "UNLOCK "+lock)
	}
	for goOn := true; goOn; goOn = c.idle(50 * time.Millisecond) {
		takes = takes[:0]
		for _, lock := range locks {
			takes = append(takes, c.lockText(lock, ""))
		}
		for n, answer := range c.askAll(takes...) {
			c.load.book.granted(c.name, locks[n], answer)
		}
		for n, answer := range c.askAll(checks...) {
			c.load.book.checked(c.name, locks[n], answer)
		}
		for _, lock := range locks {
			c.load.book.release(c.name, lock)
		}
		for _, r := range c.send("", gives...) {
			c.unlocked(r, c.await(r))
		}
	}
}
