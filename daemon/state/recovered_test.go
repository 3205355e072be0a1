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

	"github.com/redlockd/redlockd/daemon/locktable"
	"github.com/redlockd/redlockd/redlock"
)

// encoded returns a record.
func encoded(kind recordKind, code func(recordKind, *codec)) []byte {
	c := &codec{b: []byte{byte(kind)}}
	code(kind, c)
	return c.b
}

// records returns records of all kinds, in an order that can occur.
func records() (all [][]byte) {
	put := func(kind recordKind, code func(recordKind, *codec)) { all = append(all, encoded(kind, code)) }
	lease := func(answered uint64, l Lease) { put(recordLease, (&leaseRecord{l, answered}).code) }
	token := redlock.Record{Names: []string{"a", "b"}, Token: "token", TTL: time.Second, Slots: 3, Slot: 2}
	put(recordConn, (&connRecord{Conn: Conn{Number: 1}}).code)
	put(recordConn, (&connRecord{Conn: Conn{Number: 1, Stored: true}}).code)
	put(recordUnread, (&connRecord{Conn: Conn{Number: 1}, change: UnreadChange{Add: []byte("LOCKS"), Skipping: true}}).code)
	put(recordUnread, (&connRecord{Conn: Conn{Number: 1}, change: UnreadChange{Drop: 1, Keep: 3, Add: []byte("S")}}).code)
	put(recordRequest, (&requestRecord{Request: Request{Number: 2, Conn: 1, Since: 7, Line: []byte("LOCK a,b")}}).code)
	lease(0, Lease{Number: 2, Record: token})
	token.Fence, token.Deadline, token.Since, token.Keep = 5, 1000, 10, true
	held := Lease{Number: 2, Life: locktable.Life{State: locktable.Held}, Record: token, Conn: 1,
		Holder: Holder{UID: -1, PID: 4, User: "u", Owner: "o", Note: "n", ID: "i", Since: 7, Hold: 1, Linger: 2, Beat: 3, ProcessStarted: 4}}
	lease(2, held)
	held.Record.Deadline = 2000
	lease(0, held)
	put(recordRequest, (&requestRecord{Request: Request{Number: 3, Conn: 1, Since: 8, Line: []byte("LOCK a,b reentrant=yes")}}).code)
	held.Reentrants = []string{"x", ""}
	lease(3, held)
	put(recordConn, (&connRecord{Conn: Conn{Number: 4}}).code)
	put(recordRequest, (&requestRecord{Request: Request{Number: 5, Conn: 4}}).code)
	held.Conn = 4
	lease(5, held)
	put(recordRequest, (&requestRecord{Request: Request{Number: 6, Conn: 4}}).code)
	held.Life.State, held.ReleasedBy = locktable.Releasing, 6
	lease(0, held)
	put(recordAnswered, (&requestRecord{Request: Request{Number: 6}}).code)
	put(recordForgotten, (&leaseRecord{Lease: Lease{Number: 2}}).code)
	lease(0, held) // came too late
	lingering := Lease{Number: 9, Life: locktable.Life{State: locktable.Held, Knows: locktable.KnowsGrant}, Record: token, Conn: 4, LingerSince: 77}
	lease(9, lingering)
	passed := lingering
	passed.Number, passed.Record.Grant, passed.Record.Token, passed.Record.Former, passed.Record.Fence = 10, "grant", "new", "token", 6
	lease(10, passed)
	kept := Lease{Number: 11, Record: token, Conn: 4, Min: 500}
	lease(0, kept)
	kept.Life.State = locktable.Held
	lease(11, kept)
	put(recordRequest, (&requestRecord{Request: Request{Number: 12, Conn: 4}}).code)
	kept.Life.State = locktable.Kept
	lease(12, kept)
	lost := Lease{Number: 7, Life: locktable.Life{State: locktable.Lost, Knows: locktable.KnowsLoss}, Record: token, Conn: 4}
	lost.Record.Lost = redlock.LostMax
	lease(7, lost)
	put(recordConnClosed, (&connRecord{Conn: Conn{Number: 1}}).code)
	put(recordRequest, (&requestRecord{Request: Request{Number: 8, Conn: 4}}).code)
	lease(0, Lease{Number: 8, Record: token})
	put(recordReplaced, func(_ recordKind, c *codec) { list := "7>3-abc"; c.text(&list) })
	return all
}

// The record that ends a lease also answers its UNLOCK. Otherwise the UNLOCK would begin again after
// a restart, and find no lease.
func TestForgottenAnswersTheUnlock(t *testing.T) {
	p := newReplay()
	p.Conns[1] = &Conn{Number: 1}
	p.Requests[3] = &Request{Number: 3, Conn: 1}
	p.Leases[2] = &Lease{Number: 2, Life: locktable.Life{State: locktable.Releasing}, ReleasedBy: 3}
	if err := p.Apply(encoded(recordForgotten, (&leaseRecord{Lease{Number: 2}, 3}).code)); err != nil || len(p.Requests) != 0 || len(p.Leases) != 0 {
		t.Errorf("got %v with the requests %v and the leases %v, want none", err, p.Requests, p.Leases)
	}
}

// A record of a lease that has ended is written too late: it changes nothing. Otherwise the next daemon
// would hold a lock that nobody has.
func TestLateRecordChangesNothing(t *testing.T) {
	held := Lease{Number: 2, Life: locktable.Life{State: locktable.Held}}
	p := newReplay()
	p.Requests[3] = &Request{Number: 3, Conn: 1}
	if err := p.Apply(encoded(recordLease, (&leaseRecord{held, 3}).code)); err != nil || len(p.Leases) != 0 || len(p.Requests) != 0 {
		t.Errorf("an unknown lease: error %v, leases %v, requests %v; want none", err, p.Leases, p.Requests)
	}
	for _, r := range []leaseRecord{{held, 2}, {Lease{Number: 4}, 0}} {
		if err := p.Apply(encoded(recordLease, r.code)); err != nil || p.Leases[r.Number] == nil {
			t.Errorf("a grant or an attempt, %+v: error %v, leases %v", r, err, p.Leases)
		}
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
	if l := held.Leases[2]; l == nil || l.Life.State != locktable.Held || held.Requests[2] != nil || l.Record.Fence != 5 || l.Holder.UID != -1 {
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
	if got := p.Leases[2]; got != nil {
		t.Errorf("forgotten: got %+v", got)
	}
	if got := p.Leases[10]; got == nil || got.Record.Token != "new" || got.Record.Former != "token" || got.Record.Grant != "grant" || got.LingerSince != 77 {
		t.Errorf("passed, and it gets a new token: got %+v", got)
	}
	if got := p.Leases[11]; got == nil || got.Min != 500 || got.Life.State != locktable.Kept || p.Requests[12] != nil {
		t.Errorf("kept, and its UNLOCK answered: got %+v", got)
	}
	if got := p.Leases[7]; got == nil || got.Life != (locktable.Life{State: locktable.Lost, Knows: locktable.KnowsLoss}) || got.Record.Lost != redlock.LostMax || got.Conn != 4 {
		t.Errorf("lost before its LOCK was answered: got %+v", got)
	}
	if got := p.Leases[8]; got == nil || got.Life.State != locktable.Acquiring {
		t.Errorf("in progress: got %+v", got)
	}
	p.Leases = want.Leases
	for _, request := range p.Requests {
		request.Line = nil
	}
	if !reflect.DeepEqual(p.Recovered, want.Recovered) {
		t.Errorf("got %+v, want %+v", p, want)
	}
	p = apply(t, append(all, encoded(recordAnswered, (&requestRecord{Request: Request{Number: 8}}).code)))
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
		recordLease, recordLease, recordLease, recordLease, recordForgotten, recordForgotten}
	kind := kinds[random.IntN(len(kinds))]
	change := UnreadChange{Add: []byte{byte('a' + random.IntN(9))}}
	switch kind {
	case recordConn, recordConnClosed, recordUnread:
		return encoded(kind, (&connRecord{Conn: Conn{Number: number()}, change: change}).code)
	case recordRequest, recordAnswered:
		return encoded(kind, (&requestRecord{Request: Request{Number: number(), Conn: number(), Line: change.Add}, changed: random.IntN(4) == 0, change: change}).code)
	}
	l := Lease{Number: number(), Life: locktable.Life{State: locktable.State(random.IntN(5))}, Conn: number(), Reentrants: []string{"f"}}
	l.Record.Fence, l.Record.Deadline, l.Record.TTL = random.Uint64N(99), time.Duration(random.IntN(99)), time.Duration(random.IntN(99))
	l.Record.Names, l.Record.Token, l.Record.Former, l.Min = []string{"a", "b"}[:random.IntN(3)], string(change.Add), "former", time.Duration(random.IntN(9))
	answered := []uint64{0, l.Number, number()}[random.IntN(3)]
	return encoded(kind, (&leaseRecord{l, answered}).code)
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
	for _, faulty := range [][]byte{{}, []byte("?"), {byte(recordAnswered)}, {byte(recordLease), 2}, {byte(recordConn), 1}} {
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
	if got, want := hex.EncodeToString(sum[:]), "04920d2ec823d908ebe8ed6c509d2336213a2d2f0aea4194f52fc5964f2c92e5"; formatVersion != "redlockd table 5" || got != want {
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

// A record can be of an attempt, and of a lease that is held, lost, kept or released. Other states are refused.
func TestRecordOfAnUnknownState(t *testing.T) {
	for _, life := range []locktable.Life{{State: locktable.Gone}, {State: locktable.Gone + 1}, {Knows: locktable.KnowsLoss + 1}} {
		if err := newReplay().Apply(encoded(recordLease, (&leaseRecord{Lease{Number: 1, Life: life}, 1}).code)); err == nil {
			t.Errorf("%+v is accepted", life)
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
