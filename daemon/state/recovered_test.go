package state

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"math/rand/v2"
	"reflect"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// records returns records of all kinds, in an order that can occur.
func records() (all [][]byte) {
	put := func(kind recordKind, code func(recordKind, *codec)) {
		c := &codec{b: []byte{byte(kind)}}
		code(kind, c)
		all = append(all, c.b)
	}
	lease := func(kind recordKind, l Lease) {
		put(kind, func(kind recordKind, c *codec) { l.code(kind, c) })
	}
	token := redlock.Record{Names: []string{"a", "b"}, Token: "token", TTL: time.Second, Slots: 3, Slot: 2}
	put(recordConn, (&connRecord{Conn: Conn{Number: 1}}).code)
	put(recordConn, (&connRecord{Conn: Conn{Number: 1, Stored: true}}).code)
	put(recordUnread, (&connRecord{Conn: Conn{Number: 1}, change: UnreadChange{Add: []byte("LOCKS"), Skipping: true}}).code)
	put(recordUnread, (&connRecord{Conn: Conn{Number: 1}, change: UnreadChange{Drop: 1, Keep: 3, Add: []byte("S")}}).code)
	put(recordRequest, (&requestRecord{Request: Request{Number: 2, Conn: 1, Since: 7, Line: []byte("LOCK a,b")}}).code)
	lease(recordAcquiring, Lease{Number: 2, Record: token})
	token.Fence, token.Deadline, token.Since, token.Keep = 5, 1000, 10, true
	lease(recordGranted, Lease{Number: 2, Phase: PhaseHeld, Record: token, Conn: 1,
		Holder: Holder{UID: -1, PID: 4, User: "u", Owner: "o", Note: "n", ID: "i", Since: 7, Hold: 1, Linger: 2, Beat: 3, ProcessStarted: 4}})
	lease(recordDeadline, Lease{Number: 2, Record: redlock.Record{Deadline: 2000, TTL: 5}})
	put(recordRequest, (&requestRecord{Request: Request{Number: 3, Conn: 1, Since: 8, Line: []byte("LOCK a,b reentrant=yes")}}).code)
	lease(recordCounted, Lease{Number: 2, Reentrants: []string{"x"}, answered: 3})
	lease(recordCounted, Lease{Number: 2, Reentrants: []string{""}})
	lease(recordCounted, Lease{Number: 2})
	put(recordConn, (&connRecord{Conn: Conn{Number: 4}}).code)
	put(recordRequest, (&requestRecord{Request: Request{Number: 5, Conn: 4}}).code)
	lease(recordResumed, Lease{Number: 2, Conn: 4, Holder: Holder{Owner: "p"}, answered: 5})
	put(recordRequest, (&requestRecord{Request: Request{Number: 6, Conn: 4}}).code)
	lease(recordReleasing, Lease{Number: 2, ReleasedBy: 6})
	put(recordAnswered, (&requestRecord{Request: Request{Number: 6}}).code)
	lease(recordForgotten, Lease{Number: 2})
	passed := token
	passed.Grant, passed.Fence = "grant", 6
	lease(recordGranted, Lease{Number: 9, Phase: PhaseHeld, Record: token, Conn: 4})
	lease(recordLingering, Lease{Number: 9, LingerSince: 77})
	lease(recordGranted, Lease{Number: 10, Phase: PhaseHeld, Record: passed, Conn: 4})
	lease(recordLingering, Lease{Number: 10, LingerSince: 78})
	lease(recordExchanging, Lease{Number: 10, Record: redlock.Record{Token: "new", Former: "token"}})
	lease(recordShared, Lease{Number: 10})
	lease(recordResumed, Lease{Number: 10, Conn: 4})
	lease(recordAcquiring, Lease{Number: 11, Record: token})
	lease(recordMin, Lease{Number: 11, Min: 500})
	lease(recordGranted, Lease{Number: 11, Phase: PhaseHeld, Record: token, Conn: 4})
	put(recordRequest, (&requestRecord{Request: Request{Number: 12, Conn: 4}}).code)
	lease(recordKept, Lease{Number: 11, answered: 12})
	lease(recordAcquiring, Lease{Number: 7, Record: token})
	lease(recordLost, Lease{Number: 7, Reason: redlock.LostMax})
	lease(recordGranted, Lease{Number: 7, Phase: PhaseHeld, Record: token, Conn: 4})
	lease(recordReported, Lease{Number: 7})
	put(recordConnClosed, (&connRecord{Conn: Conn{Number: 1}}).code)
	put(recordRequest, (&requestRecord{Request: Request{Number: 8, Conn: 4}}).code)
	lease(recordAcquiring, Lease{Number: 8, Record: token})
	put(recordReplaced, func(_ recordKind, c *codec) { list := "7>3-abc"; c.text(&list) })
	return all
}

// The record that ends a lease also answers its UNLOCK. Otherwise the UNLOCK would begin again after
// a restart, and find no lease.
func TestForgottenAnswersTheUnlock(t *testing.T) {
	p := newReplay()
	p.Conns[1] = &Conn{Number: 1}
	p.Requests[3] = &Request{Number: 3, Conn: 1}
	p.Leases[2] = &Lease{Number: 2, Phase: PhaseReleased, ReleasedBy: 3}
	c := &codec{b: []byte{byte(recordForgotten)}}
	(&Lease{Number: 2, answered: 3}).code(recordForgotten, c)
	if err := p.Apply(c.b); err != nil || len(p.Requests) != 0 || len(p.Leases) != 0 {
		t.Errorf("got %v with the requests %v and the leases %v, want none", err, p.Requests, p.Leases)
	}
}

// linger= runs from the end of the holder until RESUME. With hold=pid RESUME does not stop it: a
// process that has ended does not come back.
func TestLingerRunsUntilResume(t *testing.T) {
	for hold, want := range map[ipc.Hold]time.Duration{ipc.HoldConn: 0, ipc.HoldPID: 7} {
		l := &Lease{Number: 1, Phase: PhaseHeld, Holder: Holder{Hold: hold}}
		l.update(recordLingering, &Lease{LingerSince: 7})
		if l.LingerSince != 7 {
			t.Errorf("hold=%v: linger runs since %v, want 7", hold, l.LingerSince)
		}
		if l.update(recordResumed, &Lease{Conn: 2}); l.LingerSince != want {
			t.Errorf("hold=%v: after RESUME linger runs since %v, want %v", hold, l.LingerSince, want)
		}
	}
}

// A reentrant LOCK and the UNLOCK that undoes it are recorded in any order. When the first of
// several LOCKs that waited together is answered, its client may send UNLOCK before the others are
// recorded.
func TestUnlockRecordedBeforeItsLock(t *testing.T) {
	more := func(id string) *Lease { return &Lease{Number: 1, Reentrants: []string{id}} }
	less := &Lease{Number: 1}
	for _, tt := range []struct {
		changes []*Lease
		want    []string
	}{
		{[]*Lease{more("x"), less}, nil},
		{[]*Lease{less, more("x")}, nil},
		{[]*Lease{less, less, more("x"), more("y")}, nil},
		{[]*Lease{less, more("x"), more("y")}, []string{"y"}},
		{[]*Lease{more("x"), less, less, more("y"), more("z")}, []string{"z"}},
	} {
		p := newReplay()
		p.Leases[1] = &Lease{Number: 1, Phase: PhaseHeld}
		for _, change := range tt.changes {
			p.Leases[1].update(recordCounted, change)
			p = apply(t, dumped(p)) // as when the file is rewritten in between
		}
		if l := p.Leases[1]; !slices.Equal(l.Reentrants, tt.want) || l.undone != 0 {
			t.Errorf("the reentrant LOCKs are %q, and %d are undone; want %q", l.Reentrants, l.undone, tt.want)
		}
	}
}

// The first UNLOCK releases a lease, and is answered accordingly after a restart. A second UNLOCK
// changes nothing.
func TestLeaseIsReleasedOnce(t *testing.T) {
	l := &Lease{Number: 1, Phase: PhaseHeld}
	l.update(recordReleasing, &Lease{ReleasedBy: 2})
	if l.update(recordReleasing, &Lease{ReleasedBy: 3}); l.Phase != PhaseReleased || l.ReleasedBy != 2 {
		t.Errorf("the lease is released by %d, want 2", l.ReleasedBy)
	}
	l.update(recordLost, &Lease{Reason: redlock.LostQuorum})
	if l.update(recordReleasing, &Lease{ReleasedBy: 4}); l.Phase != PhaseLost {
		t.Error("a lost lease is released")
	}
}

func apply(t *testing.T, all [][]byte) *replay {
	t.Helper()
	p := newReplay()
	for i, record := range all {
		if err := applyCopy(p, record); err != nil {
			t.Fatalf("record %d, %q: %v", i, record, err)
		}
	}
	return p
}

// applyCopy applies a copy of a record and clears it, so that p cannot keep its bytes.
func applyCopy(p *replay, record []byte) error {
	passing := bytes.Clone(record)
	defer clear(passing)
	return p.Apply(passing)
}

// sameAs reports whether two replays have the same state.
func (p *replay) sameAs(other *replay) bool {
	return reflect.DeepEqual(p.Recovered, other.Recovered)
}

func dumped(p *replay) (all [][]byte) {
	p.Dump(func(record []byte) { all = append(all, bytes.Clone(record)) })
	return all
}

// After each record, a dump has the same state as the records before it.
func TestDumpKeepsTheState(t *testing.T) {
	all := records()
	for n := range len(all) + 1 {
		p := apply(t, all[:n])
		if again := apply(t, dumped(p)); !p.sameAs(again) {
			t.Errorf("after %d records: got %+v, want %+v", n, again, p)
		}
	}
}

func TestRecords(t *testing.T) {
	all := records()
	held := apply(t, all[:7])
	if l := held.Leases[2]; l == nil || l.Phase != PhaseHeld || held.Requests[2] != nil || l.Record.Fence != 5 || l.Holder.UID != -1 {
		t.Errorf("granted: got %+v, requests %v; want it held, and its LOCK answered", l, held.Requests)
	}
	if c := held.Conns[1]; c == nil || !c.Stored || string(c.Unread) != "OCKS" || c.Skipping {
		t.Errorf("a stored connection with unread bytes: got %+v, want OCKS", c)
	}
	p := apply(t, all)
	want := newReplay()
	want.lastNumber = 12
	want.Conns[4] = &Conn{Number: 4}
	want.Requests[8] = &Request{Number: 8, Conn: 4}
	want.ReplacedList = "7>3-abc"
	if got := p.Leases[11]; got == nil || got.Min != 500 || !got.Kept || p.Requests[12] != nil {
		t.Errorf("kept, and its UNLOCK answered: got %+v", got)
	}
	if got := p.Leases[7]; got == nil || got.Phase != PhaseLost || got.Reason != redlock.LostMax || !got.Reported || got.Conn != 4 {
		t.Errorf("lost before its LOCK was answered: got %+v", got)
	}
	if got := p.Leases[8]; got == nil || got.Phase != PhaseAcquiring {
		t.Errorf("in progress: got %+v", got)
	}
	p.Leases = want.Leases
	for _, request := range p.Requests {
		request.Line = nil
	}
	if !reflect.DeepEqual(p.Recovered, want.Recovered) {
		t.Errorf("got %+v, want %+v", p, want)
	}
	p = apply(t, append(all, (func() []byte {
		c := &codec{b: []byte{byte(recordAnswered)}}
		(&requestRecord{Request: Request{Number: 8}}).code(recordAnswered, c)
		return c.b
	})()))
	if p.Leases[8] != nil {
		t.Error("a refused LOCK still has an attempt")
	}
}

// ApplyAll has the same result as Apply for each record: the records that it skips have no effect.
func TestApplyAll(t *testing.T) {
	all := records()
	for n := range len(all) + 1 {
		want := apply(t, all)
		got := apply(t, all[:n])
		if err := got.ApplyAll(slices.Values(all[n:])); err != nil || !got.sameAs(want) || got.lastNumber != want.lastNumber {
			t.Errorf("%d with Apply, and the others with ApplyAll: got %+v, %v, want %+v", n, got, err, want)
		}
	}
}

// The same is true for records in any order, also orders that cannot occur.
func TestApplyAllInAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var all [][]byte
		want, got := newReplay(), newReplay()
		for range 40 {
			record := anyRecord(random)
			if err := applyCopy(want, record); err != nil {
				t.Fatal(err)
			}
			all = append(all, record)
		}
		n := random.IntN(len(all) + 1)
		for _, part := range [][][]byte{all[:n], all[n:]} {
			if err := got.ApplyAll(slices.Values(part)); err != nil {
				t.Fatal(err)
			}
		}
		if !got.sameAs(want) || got.lastNumber != want.lastNumber {
			t.Fatalf("%q, in two parts from %d on: got %+v, want %+v", all, n, got, want)
		}
	}
}

// anyRecord returns a record of any kind. Its numbers are from 1 to 9, so that records often have
// the same number.
func anyRecord(random *rand.Rand) []byte {
	number := func() uint64 { return 1 + random.Uint64N(9) }
	kinds := []recordKind{recordConn, recordConnClosed, recordUnread, recordRequest, recordRequest, recordAnswered,
		recordAcquiring, recordAcquiring, recordGranted, recordDeadline, recordCounted, recordResumed, recordLingering,
		recordLingering, recordReleasing, recordLost, recordReported, recordForgotten, recordForgotten,
		recordExchanging, recordMin, recordShared, recordKept}
	kind := kinds[random.IntN(len(kinds))]
	c := &codec{b: []byte{byte(kind)}}
	change := UnreadChange{Add: []byte{byte('a' + random.IntN(9))}}
	switch kind {
	case recordConn, recordConnClosed, recordUnread:
		(&connRecord{Conn: Conn{Number: number()}, change: change}).code(kind, c)
	case recordRequest, recordAnswered:
		(&requestRecord{Request: Request{Number: number(), Conn: number(), Line: change.Add}, changed: random.IntN(4) == 0, change: change}).code(kind, c)
	default:
		l := Lease{Number: number(), Phase: PhaseHeld + Phase(random.IntN(3)), Conn: number(), answered: number(), Reason: redlock.LostMax,
			Reentrants: []string{"f"}, LingerSince: time.Duration(random.IntN(9))}
		l.Record.Fence, l.Record.Deadline, l.Record.TTL = random.Uint64N(99), time.Duration(random.IntN(99)), time.Duration(random.IntN(99))
		l.Record.Names, l.Record.Token, l.Record.Former, l.Min = []string{"a", "b"}[:random.IntN(3)], string(change.Add), "former", time.Duration(random.IntN(9))
		l.code(kind, c)
	}
	return c.b
}

// ApplyAll does not decode the long records of a lease that ends.
func TestApplyAllSkipsEndedLeases(t *testing.T) {
	whole, cut := records()[:7], bytes.Clone(records()[6])
	forgotten := []byte{byte(recordForgotten), 2, 0}
	whole[6] = cut[:len(cut)-1] // the grant of lease 2
	for _, test := range []struct {
		all  [][]byte
		ends bool
	}{{whole, false}, {append(whole, forgotten), true}, {append(whole[:5:5], forgotten, whole[6]), false}} {
		r := newReplay()
		if err := r.ApplyAll(slices.Values(test.all)); (err == nil) != test.ends || test.ends && len(r.Requests) > 0 {
			t.Errorf("the lease ends: %v; error %v; requests %v", test.ends, err, r.Requests)
		}
	}
}

// ApplyAll returns the error of a faulty record: otherwise a rewrite would replace the file that has
// it. It applies the records before it.
func TestApplyAllFaulty(t *testing.T) {
	for _, faulty := range [][]byte{{}, []byte("?"), {byte(recordAnswered)}, {byte(recordAcquiring), 2}, {byte(recordConn), 1}} {
		p := newReplay()
		if err := p.ApplyAll(slices.Values(append(records()[:5], faulty))); err == nil {
			t.Errorf("%q among others is accepted", faulty)
		}
		if want := apply(t, records()[:5]); !p.sameAs(want) {
			t.Errorf("before %q: got %+v, want %+v", faulty, p, want)
		}
	}
}

// The unread bytes of a connection stay the same when it is stored or evicted. A change of more
// bytes than there are is refused.
func TestUnread(t *testing.T) {
	if got := apply(t, records()[:3]).Conns[1]; !got.Skipping || string(got.Unread) != "LOCKS" {
		t.Errorf("got %+v, want LOCKS, and the rest of a line skipped", got)
	}
	p := apply(t, records()[:4])
	for _, test := range []struct {
		kind  recordKind
		conn  connRecord
		taken bool
	}{
		{recordConn, connRecord{Conn: Conn{Number: 1}}, true},
		{recordUnread, connRecord{Conn: Conn{Number: 1}, change: UnreadChange{Drop: 5}}, false},
		{recordUnread, connRecord{Conn: Conn{Number: 1}, change: UnreadChange{Keep: 5}}, false},
		{recordUnread, connRecord{Conn: Conn{Number: 1}, change: UnreadChange{Drop: 2, Keep: 3}}, false},
		{recordUnread, connRecord{Conn: Conn{Number: 2}, change: UnreadChange{Add: []byte("of no connection")}}, true},
	} {
		c := &codec{b: []byte{byte(test.kind)}}
		test.conn.code(test.kind, c)
		if err := p.Apply(c.b); err == nil != test.taken {
			t.Errorf("%+v: error %v", test.conn.change, err)
		}
	}
	if got := p.Conns[1]; len(p.Conns) != 1 || got.Stored || string(got.Unread) != "OCKS" {
		t.Errorf("got %+v of %d connections, want one with OCKS that is not stored", got, len(p.Conns))
	}
}

// The end of a connection removes its requests, and no others. A request that was taken from the
// unread bytes of a connection changes them.
func TestConnClosed(t *testing.T) {
	p := newReplay()
	put := func(kind recordKind, code func(recordKind, *codec)) {
		c := &codec{b: []byte{byte(kind)}}
		code(kind, c)
		if err := p.Apply(c.b); err != nil {
			t.Fatal(err)
		}
	}
	put(recordConn, (&connRecord{Conn: Conn{Number: 1}}).code)
	put(recordConn, (&connRecord{Conn: Conn{Number: 2}}).code)
	put(recordUnread, (&connRecord{Conn: Conn{Number: 2}, change: UnreadChange{Add: []byte("LOCK a\nPI")}}).code)
	put(recordRequest, (&requestRecord{Request: Request{Number: 3, Conn: 1}}).code)
	put(recordRequest, (&requestRecord{Request: Request{Number: 4, Conn: 2}, changed: true, change: UnreadChange{Drop: 7, Keep: 2}}).code)
	put(recordConnClosed, (&connRecord{Conn: Conn{Number: 1}}).code)
	if len(p.Conns) != 1 || len(p.Requests) != 1 || p.Requests[4] == nil {
		t.Errorf("left: connections %v, requests %v; want only the second of each", p.Conns, p.Requests)
	}
	if got := string(p.Conns[2].Unread); got != "PI" {
		t.Errorf("the unread bytes are %q, want PI", got)
	}
}

// A replay allocates no copy of the unread bytes for each request that drops some of them.
func TestReplayOfManyUnreadLines(t *testing.T) {
	const lines = 1000
	line := []byte("LOCK a\n")
	record := func(kind recordKind, code func(recordKind, *codec)) []byte {
		c := &codec{b: []byte{byte(kind)}}
		code(kind, c)
		return c.b
	}
	all := [][]byte{
		record(recordConn, (&connRecord{Conn: Conn{Number: 1}}).code),
		record(recordUnread, (&connRecord{Conn: Conn{Number: 1}, change: UnreadChange{Add: bytes.Repeat(line, lines)}}).code),
	}
	for i := range lines - 1 {
		left := (lines - 1 - i) * len(line)
		all = append(all, record(recordRequest, (&requestRecord{
			Request: Request{Number: uint64(i + 2), Conn: 1, Line: line},
			changed: true, change: UnreadChange{Drop: len(line), Keep: left},
		}).code))
	}
	p := newReplay()
	before := allocated()
	for _, record := range all {
		if err := p.Apply(record); err != nil {
			t.Fatal(err)
		}
	}
	if most := uint64(lines * 500); allocated()-before > most { // with copies, it is seven times as much
		t.Errorf("%d requests of %d unread bytes take %d bytes, want at most %d", lines, lines*len(line), allocated()-before, most)
	}
	if got := string(p.Conns[1].Unread); got != string(line) {
		t.Errorf("%q is unread, want %q", got, line)
	}
}

// allocated returns how many bytes this process has allocated so far.
func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

// The next version of the daemon reads what this one writes. If the records change, formatVersion
// must change as well.
func TestRecordFormat(t *testing.T) {
	sum := sha256.Sum256(bytes.Join(records(), nil))
	if got, want := hex.EncodeToString(sum[:]), "6e0c8f1c95c66717ec0a7599563b4b83547bc090cc64846af4dba8748b9af64e"; formatVersion != "redlockd table 3" || got != want {
		t.Errorf("%s: the records have the checksum %s, want %s", formatVersion, got, want)
	}
}

// A record that was cut, or that has extra bytes, is refused.
func TestFaultyRecords(t *testing.T) {
	for _, record := range append(records(), nil, []byte("?")) {
		longer := append(bytes.Clone(record), 0)
		if err := newReplay().Apply(longer); err == nil {
			t.Errorf("%q is accepted", longer)
		}
		if len(record) > 0 && newReplay().Apply(record[:len(record)-1]) == nil {
			t.Errorf("%q is accepted", record[:len(record)-1])
		}
	}
}

// A record of a grant can be of a held, released or lost lease. Other phases are refused.
func TestRecordOfAnUnknownPhase(t *testing.T) {
	for phase := range phaseCount + 2 {
		c := &codec{b: []byte{byte(recordGranted)}}
		(&Lease{Number: 1, Phase: phase}).code(recordGranted, c)
		known := phase == PhaseHeld || phase == PhaseReleased || phase == PhaseLost
		if err := newReplay().Apply(c.b); (err == nil) != known {
			t.Errorf("phase %d: error %v", phase, err)
		}
	}
}

// The rest of a line that was too long is skipped, not taken for a request, also after a dump.
func TestDumpKeepsSkipping(t *testing.T) {
	p := newReplay()
	p.lastNumber, p.Conns[1] = 1, &Conn{Number: 1, Skipping: true}
	if got := apply(t, dumped(p)).Conns[1]; got == nil || !got.Skipping {
		t.Errorf("got %+v, want the rest of a line skipped", got)
	}
}

// The result of records in any order, and of any bytes, can be written and read again.
func FuzzReplay(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint64(1))
	for i, record := range records() {
		f.Add(record, uint64(i))
	}
	f.Fuzz(func(t *testing.T, odd []byte, seed uint64) {
		p := newReplay()
		random := rand.New(rand.NewPCG(seed, 0))
		all := append(records(), odd)
		for range 40 {
			record, last := all[random.IntN(len(all))], p.lastNumber
			if applyCopy(p, record) != nil { // it was refused
				p.lastNumber = last
			}
		}
		again := apply(t, dumped(p))
		if !p.sameAs(again) {
			t.Errorf("got %+v, want %+v", again, p)
		}
	})
}

// A connection that is closed ends its own requests, and looks at no others: with 9,000 connections, a
// replay would be quadratic. So requestsOf has exactly the requests of each connection.
func TestClosedConnectionEndsItsRequests(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 0))
	p, want := newReplay(), map[uint64]uint64{} // the connections of the requests
	for number := uint64(100); number < 5000; number++ {
		c := &codec{}
		conn := 1 + random.Uint64N(20)
		switch n := random.IntN(100); {
		case n < 15:
			c.b = []byte{byte(recordConn)}
			(&connRecord{Conn: Conn{Number: conn}}).code(recordConn, c)
		case n < 25:
			c.b = []byte{byte(recordConnClosed)}
			if (&connRecord{Conn: Conn{Number: conn}}).code(recordConnClosed, c); p.Conns[conn] != nil {
				maps.DeleteFunc(want, func(_, of uint64) bool { return of == conn })
			}
		case n < 40 && len(want) > 0:
			answered := slices.Min(slices.Collect(maps.Keys(want)))
			c.b = []byte{byte(recordAnswered)}
			(&requestRecord{Request: Request{Number: answered}}).code(recordAnswered, c)
			delete(want, answered)
		default:
			request := number - random.Uint64N(2) // sometimes the previous one again
			c.b = []byte{byte(recordRequest)}
			(&requestRecord{Request: Request{Number: request, Conn: conn}}).code(recordRequest, c)
			want[request] = conn
		}
		if err := p.Apply(c.b); err != nil {
			t.Fatal(err)
		}
		got, indexed := map[uint64]uint64{}, map[uint64]uint64{}
		for number, request := range p.Requests {
			got[number] = request.Conn
		}
		for conn, requests := range p.requestsOf {
			for number := range requests {
				indexed[number] = conn
			}
			if len(requests) == 0 && p.Conns[conn] == nil {
				t.Fatalf("connection %d has an empty index", conn)
			}
		}
		if !maps.Equal(got, want) || !maps.Equal(indexed, want) {
			t.Fatalf("requests %v, by connection %v, want %v", got, indexed, want)
		}
	}
}
