package client

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestResumeIsRefused checks each refusal of a RESUME.
func TestResumeIsRefused(t *testing.T) {
	for reply, wanted := range map[string][]error{
		"ERR LOST lock=job lease=abc reason=quorum : no quorum": {ErrLost},
		"ERR NOTHELD lock=job":                     {ErrLost, ErrNotHeld},
		"ERR VERB : RESUME is not in this version": {ErrLost},
	} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc")
			d.hangUp()
			d.greet()
			checked := async(func() (int, error) { return 0, l.Check(t.Context()) })
			synctest.Wait()
			d.say(d.expectTagged("RESUME job owner=1 lease=abc") + " " + reply)
			d.say(d.expectTagged("CHECK lease=abc") + " ERR LOST") // CHECK is sent only after the RESUME was answered
			_, err := checked.wait()
			want(t, "check", err, ErrLost)
			synctest.Wait()
			for _, sentinel := range wanted {
				want(t, reply, endCause(l.Context()), sentinel)
			}
			d.at("the end of the lease", 0)
			nothingLeft(t, c)
		})
	}
}

// If a lease ends before there is a daemon again, the calls that waited for its RESUME are sent to
// the new daemon.
func TestEndsBeforeItIsResumed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t, WithPatience(time.Minute))
		l := d.lock(c, "job", "abc")
		d.stop()
		checked := async(func() (int, error) { return 0, l.Check(t.Context()) })
		<-l.Context().Done()
		d.at("the end of the lease", overAfter)
		d.down.Store(false)
		d.greet()
		for range 2 { // the lease's own CHECK is the second
			d.say(d.expectTagged("CHECK lease=abc") + " ERR LOST")
		}
		_, err := checked.wait()
		want(t, "check", err, ErrLost)
		synctest.Wait()
		nothingLeft(t, c)
	})
}

// Calls that wait for a RESUME do not use the permits of RESUME, however many calls there are. This
// guards roomResume.
func TestResumeHasPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		d.stop()
		var checks []future[int]
		for range maxInFlight[roomOther] {
			checks = append(checks, async(func() (int, error) { return 0, l.Check(t.Context()) }))
		}
		synctest.Wait()
		d.down.Store(false)
		d.greet()
		tag := d.expectTagged("RESUME job owner=1 lease=abc")
		d.say(grant(tag[1:], "job", "abc", d.elapsed(), ttl))
		for range checks {
			tag := d.expectTagged("CHECK lease=abc")
			d.say(grant(tag[1:], "job", "abc", d.elapsed(), ttl))
		}
		for _, check := range checks {
			check.must(t)
		}
		if d.elapsed() > maxPause {
			t.Errorf("the last answer came after %v", d.elapsed())
		}
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
		unlocked.must(t)
		nothingLeft(t, c)
	})
}

// After a temporary refusal, RESUME is repeated until the lease ends.
func TestResumeIsRetried(t *testing.T) {
	for _, succeeds := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc")
			d.hangUp()
			d.greet()
			for d.elapsed() < overAfter-2*retryResume {
				d.say(d.expectTagged("RESUME job owner=1 lease=abc") + " ERR NOQUORUM granted=1 needed=3")
			}
			tag := d.expectTagged("RESUME job owner=1 lease=abc")
			if succeeds {
				d.say(grant(tag[1:], "job", "abc", d.elapsed(), ttl))
				d.expectTagged("CHECK lease=abc") // the timer's CHECK, which waited for the RESUME
				synctest.Wait()
				if l.Validity() != ttl {
					t.Errorf("validity %v, want 10s", l.Validity())
				}
				return
			}
			<-l.Context().Done()
			d.at("the end of the lease", overAfter)
			d.say(d.expectTagged("CHECK lease=abc") + " ERR LOST") // the timer's CHECK, which no longer waits for a RESUME
			d.say(grant(tag[1:], "job", "abc", d.elapsed(), ttl))  // too late
			d.answerUnlock(c)
			d.at("UNLOCK", ttl)
		})
	}
}

// A lease is resumed after it has ended here. The holder may still be stopping, so the client
// unlocks the lease at the deadline that the holder knew. If the holder has called Unlock, it is
// unlocked at once.
func TestResumedTooLate(t *testing.T) {
	for _, stops := range []string{"not", "before", "after"} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc")
			d.hangUp()
			d.greet()
			tag := d.expectTagged("RESUME job owner=1 lease=abc")
			<-l.Context().Done()
			d.at("the end of the lease", overAfter)
			d.say(d.expectTagged("CHECK lease=abc") + " ERR LOST") // the timer's CHECK, which no longer waits for a RESUME
			time.Sleep(time.Second)
			if stops == "before" {
				want(t, "unlock", l.Unlock(t.Context()), ErrLost)
			}
			d.say(grant(tag[1:], "job", "abc", d.elapsed(), ttl))
			synctest.Wait()
			if stops == "after" {
				want(t, "unlock", l.Unlock(t.Context()), ErrLost)
			}
			d.answerUnlock(c)
			if stops == "not" {
				d.at("UNLOCK", ttl)
			} else {
				d.at("UNLOCK of who has stopped", overAfter+time.Second)
			}
		})
	}
}

// Unlock is called while RESUME is in progress. The answer to RESUME causes no second UNLOCK: if the
// daemon executed that one first, Unlock would report a loss.
func TestUnlockDuringResumeIsSentOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		d.hangUp()
		d.greet()
		resume := d.expectTagged("RESUME job owner=1 lease=abc")
		unlocked := async(func() (int, error) { return 0, l.Unlock(t.Context()) })
		unlock := d.expectTagged("UNLOCK lease=abc")
		d.say(grant(resume[1:], "job", "abc", d.elapsed(), ttl))
		synctest.Wait()
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.say(d.expectTagged("PING")+" OK", unlock+" OK")
		pinged.must(t)
		unlocked.must(t)
		nothingLeft(t, c)
	})
}

// A refused RESUME is repeated only on the same connection, and only while the lease is held.
func TestRefusedResumeIsRepeatedOnce(t *testing.T) {
	for what, end := range map[string]func(d *scripted){
		"another connection": func(d *scripted) {
			d.hangUp()
			d.greet()
			d.say(grant(d.expectTagged("RESUME job owner=1 lease=abc")[1:], "job", "abc", d.elapsed(), ttl))
		},
		"a loss": func(d *scripted) { d.say("LOST lock=job lease=abc reason=forced") },
		"another connection, where it is refused": func(d *scripted) {
			d.hangUp()
			time.Sleep(retryResume / 2)
			d.greet()
			again := d.elapsed()
			d.say(d.expectTagged("RESUME job owner=1 lease=abc") + " ERR NOQUORUM")
			d.say(grant(d.expectTagged("RESUME job owner=1 lease=abc")[1:], "job", "abc", d.elapsed(), ttl))
			d.at("the second RESUME there", again+retryResume)
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				d.lock(c, "job", "abc")
				d.hangUp()
				d.greet()
				d.say(d.expectTagged("RESUME job owner=1 lease=abc") + " ERR NOQUORUM")
				synctest.Wait()
				end(d)
				time.Sleep(2 * retryResume)
				pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
				d.say(d.expectTagged("PING") + " OK")
				pinged.must(t)
			})
		})
	}
}

// A lease waits for room to RESUME when the connection ends. It is not resumed on that connection, and the
// next one resumes it once.
func TestNoResumeOnAnEndedConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		d.lock(c, "job", "abc")
		c.occupy(roomResume, maxInFlight[roomResume])
		for range 2 {
			d.hangUp()
			d.greet()
			pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
			d.say(d.expectTagged("PING") + " OK")
			pinged.must(t)
		}
		c.occupy(roomResume, -maxInFlight[roomResume])
		d.say(grant(d.expectTagged("RESUME job owner=1 lease=abc")[1:], "job", "abc", d.elapsed(), ttl))
		synctest.Wait()
		if n := c.busy(roomResume); n > 0 || c.Resumed() != 1 {
			t.Errorf("%d RESUMEs are left in flight, %d leases resumed, want 0 and 1", n, c.Resumed())
		}
		pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
		d.say(d.expectTagged("PING") + " OK")
		pinged.must(t)
	})
}

// A RESUME without an answer did not succeed: its connection ended too. The client resumes the
// lease on the next connection, before it sends other calls about the lease.
func TestResumeIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		l := d.lock(c, "job", "abc")
		for range 3 {
			d.hangUp()
			d.greet()
			d.expectTagged("RESUME job owner=1 lease=abc")
		}
		checked := async(func() (int, error) { return 0, l.Check(t.Context()) })
		d.hangUp()
		if n := c.Resumed(); n != 0 {
			t.Errorf("%d leases are resumed, want none", n)
		}
		d.greet()
		d.say(grant(d.expectTagged("RESUME job owner=1 lease=abc")[1:], "job", "abc", d.elapsed(), ttl))
		d.say(grant(d.expectTagged("CHECK lease=abc")[1:], "job", "abc", d.elapsed(), ttl))
		checked.must(t)
		if n := c.Resumed(); n != 1 {
			t.Errorf("%d leases are resumed, want 1", n)
		}
	})
}

// The connection of a grant may end, and the lease may be resumed, before Lock returns.
func TestResumedBeforeLockReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := dialScripted(t)
		cl := lockCall(t, c, HoldConn, "job")
		l := cl.lease
		asked := async(func() (int, error) { return 0, c.do(t.Context(), cl) })
		d.expect("@0 LOCK job")
		d.say(grant("0", "job", "abc", 0, ttl))
		asked.must(t)
		d.hangUp()
		d.greet()
		time.Sleep(time.Second)
		d.say(grant(d.expectTagged("RESUME job owner= lease=abc")[1:], "job", "abc", time.Second, ttl))
		synctest.Wait()
		c.enter()
		err := c.core.taken(l)
		c.exit()
		if err != nil {
			t.Fatal(err)
		}
		if l.Validity() != ttl {
			t.Errorf("validity %v, want 10s from the RESUME on", l.Validity())
		}
		d.expectTagged("CHECK lease=abc")
		d.at("CHECK", time.Second+checkAfter)
	})
}

// A query waits until its lease is resumed, even if the daemon restarts in between. Once the query
// was sent, a restart makes the client resend it like any other.
func TestBackWhileALeaseIsResumed(t *testing.T) {
	for verb, ask := range questions {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc")
			d.hangUp()
			d.greet()
			d.expectTagged("RESUME job owner=1 lease=abc")
			asked := async(func() (int, error) { return 0, ask(t.Context(), l) })
			synctest.Wait()
			d.say("BACK")
			tag := d.expectTagged("RESUME job owner=1 lease=abc")
			pinged := async(func() (int, error) { return 0, c.Ping(t.Context()) })
			d.say(d.expectTagged("PING") + " OK") // no query about the lease was sent before
			pinged.must(t)
			d.say(grant(tag[1:], "job", "abc", 0, ttl))
			d.expectTagged(verb + " lease=abc")
			d.say("BACK")
			d.say(grant(d.expectTagged(verb + " lease=abc")[1:], "job", "abc", 0, ttl))
			asked.must(t)
		})
	}
}

// A query that was sent before the connection ended counts as resent, although it waited for its
// lease to be resumed: LIMIT does not end it. LIMIT ends a query that is sent for the first time.
func TestQueryAfterResumeIsLimited(t *testing.T) {
	for verb, ask := range questions {
		for _, sent := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				c, d := dialScripted(t)
				l := d.lock(c, "job", "abc")
				if !sent {
					d.hangUp()
				}
				asked := async(func() (int, error) { return 0, ask(t.Context(), l) })
				if sent {
					d.expectTagged(verb + " lease=abc")
					d.hangUp()
				}
				d.greet()
				d.say(grant(d.expectTagged("RESUME job owner=1 lease=abc")[1:], "job", "abc", 0, ttl))
				d.say(d.expectTagged(verb+" lease=abc") + " ERR LIMIT")
				if sent {
					d.say(grant(d.expectTagged(verb + " lease=abc")[1:], "job", "abc", 0, ttl))
					d.at("the repeat", resendPause)
					asked.must(t)
					return
				}
				_, err := asked.wait()
				want(t, verb, err, ErrLimit)
			})
		}
	}
}

// The daemon moves a lease to the resuming connection before it asks the nodes, and after NOQUORUM
// goes on extending it. If the lease has ended here, the client unlocks it at the deadline, whether
// NOQUORUM comes before or after that end.
func TestResumeRefusedAndOver(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c, d := dialScripted(t)
			l := d.lock(c, "job", "abc")
			d.hangUp()
			d.greet()
			for d.elapsed() < overAfter-2*retryResume {
				d.say(d.expectTagged("RESUME job owner=1 lease=abc") + " ERR NOQUORUM granted=1 needed=3")
			}
			tag := d.expectTagged("RESUME job owner=1 lease=abc")
			if !late {
				time.Sleep(overAfter - d.elapsed() - 10*time.Millisecond)
				d.say(tag + " ERR NOQUORUM granted=1 needed=3")
			}
			<-l.Context().Done()
			d.say(grant(d.expectTagged("CHECK lease=abc")[1:], "job", "abc", d.elapsed(), ttl)) // the daemon still extends the lease
			if late {
				d.say(tag + " ERR NOQUORUM granted=1 needed=3")
			}
			defer time.AfterFunc(time.Minute, func() { d.conn.Close() }).Stop() // otherwise a failing test would hang
			d.say(d.expectTagged("UNLOCK lease=abc") + " OK")
			d.at("UNLOCK", ttl)
		})
	}
}
