package redlock

import (
	"strconv"
	"testing"
	"time"
)

// guardTest records refusals, each 10 ms after the previous one.
type guardTest struct {
	testing.TB
	starvationGuard
	now  time.Duration
	most time.Duration
}

func newGuardTest(t *testing.T) *guardTest {
	return &guardTest{TB: t, starvationGuard: starvationGuard{holdersNeeded: 16}, now: time.Hour, most: 10 * time.Second}
}

// refused records n refusals by the holders that next returns. It checks that a reservation
// begins with the last one, or not at all.
func (t *guardTest) refused(n int, next func(i int) *HeldError, begins bool) {
	t.Helper()
	for i := range n {
		t.now += 10 * time.Millisecond
		if got := t.countHolder(next(i), t.now, 5*time.Millisecond, t.most); got != (begins && i == n-1) {
			t.Fatalf("refusal %d of %d: reservation begins: %v", i+1, n, got)
		}
	}
}

func (t *guardTest) wantLeft(left time.Duration) {
	t.Helper()
	if got := t.reservationLeft(t.now); got != left {
		t.Errorf("the reservation lasts for another %v, want %v", got, left)
	}
}

func others(i int) *HeldError { return &HeldError{token: strconv.Itoa(i)} }
func theSame(int) *HeldError  { return &HeldError{token: "the same"} }
func nobody(int) *HeldError   { return &HeldError{} }
func noQuorum(int) *HeldError { return nil }

// After sixteen other holders, the waiter gets a reservation for a quarter of the time that they
// took.
func TestReservationAfterOthers(t *testing.T) {
	x := newGuardTest(t)
	x.refused(15, others, false)
	x.wantLeft(0)
	x.refused(1, nobody, true)
	x.wantLeft(150 * time.Millisecond / reservationShare)
	x.refused(3, theSame, false)
	x.wantLeft(150*time.Millisecond/reservationShare - 30*time.Millisecond)
}

// A client that holds the lock for long counts once, however often the waiter retries. A split
// vote, or one whose winner is not known, counts each time. An attempt without a quorum does not
// count.
func TestReservationCountsOthers(t *testing.T) {
	x := newGuardTest(t)
	x.refused(100, theSame, false)
	x.refused(100, noQuorum, false)
	x.refused(14, others, false)
	x.refused(1, nobody, true)
	y := newGuardTest(t)
	y.refused(16, nobody, true)
}

// After a reservation without a grant, the next one requires twice as many others, up to
// maxReserveAfter.
func TestReservationWithoutGrant(t *testing.T) {
	x := newGuardTest(t)
	for _, need := range []int{16, 32, 64, 128, 256, 256} {
		x.refused(need, others, true)
		x.wantLeft(time.Duration(need-1) * 10 * time.Millisecond / reservationShare)
		x.now = x.reservedUntil
	}
}

// A reservation lasts at least as long as the waiter needs to use it, and at most for a ttl.
func TestReservationBounds(t *testing.T) {
	x := newGuardTest(t)
	x.holdersNeeded = 1
	x.refused(1, others, true)
	x.wantLeft(5 * time.Millisecond)
	y := newGuardTest(t)
	y.most = 20 * time.Millisecond
	y.refused(16, others, true)
	y.wantLeft(20 * time.Millisecond)
	z := newGuardTest(t)
	z.most = 0
	z.refused(100, others, false)
}
