package daemon

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/redlockd/redlockd/ipc"
	"github.com/redlockd/redlockd/redlock"
)

// records are some of each kind, in an order that could be.
func records() (all [][]byte) {
	put := func(kind recordKind, code func(recordKind, *codec)) {
		c := &codec{b: []byte{byte(kind)}}
		code(kind, c)
		all = append(all, c.b)
	}
	lease := func(kind recordKind, l pastLease) {
		put(kind, func(kind recordKind, c *codec) { l.code(kind, c) })
	}
	token := redlock.Record{Names: []string{"a", "b"}, Token: "token", TTL: time.Second, Slots: 3, Slot: 2}
	put(recConn, (&pastConn{number: 1}).code)
	put(recConn, (&pastConn{number: 1, stored: true}).code)
	put(recRest, (&pastConn{number: 1, change: pastRest{add: []byte("LOCKS"), skipping: true}}).code)
	put(recRest, (&pastConn{number: 1, change: pastRest{drop: 1, keep: 3, add: []byte("S")}}).code)
	put(recAsk, (&pastAsk{number: 2, conn: 1, since: 7, line: []byte("LOCK a,b")}).code)
	lease(recTaking, pastLease{number: 2, lease: token})
	token.Fence, token.Deadline, token.Since, token.Keep = 5, 1000, 10, true
	lease(recHeld, pastLease{number: 2, phase: phaseHeld, lease: token, conn: 1,
		holder: heldBy{uid: -1, pid: 4, user: "u", owner: "o", note: "n", id: "i", since: 7, hold: 1, linger: 2, beat: 3, started: 4}})
	lease(recDeadline, pastLease{number: 2, lease: redlock.Record{Deadline: 2000, TTL: 5}})
	put(recAsk, (&pastAsk{number: 3, conn: 1, since: 8, line: []byte("LOCK a,b reentrant=yes")}).code)
	lease(recFurther, pastLease{number: 2, further: []string{"x"}, by: 3})
	lease(recFurther, pastLease{number: 2, further: []string{""}})
	lease(recFurther, pastLease{number: 2})
	put(recConn, (&pastConn{number: 4}).code)
	put(recAsk, (&pastAsk{number: 5, conn: 4}).code)
	lease(recResumed, pastLease{number: 2, conn: 4, holder: heldBy{owner: "p"}, by: 5})
	put(recAsk, (&pastAsk{number: 6, conn: 4}).code)
	lease(recReleased, pastLease{number: 2, by: 6})
	put(recAnswered, (&pastAsk{number: 6}).code)
	lease(recForgot, pastLease{number: 2})
	lease(recHeld, pastLease{number: 9, phase: phaseHeld, lease: token, conn: 4})
	lease(recLeft, pastLease{number: 9, left: 77})
	lease(recHeld, pastLease{number: 10, phase: phaseHeld, lease: token, conn: 4})
	lease(recLeft, pastLease{number: 10, left: 78})
	lease(recResumed, pastLease{number: 10, conn: 4})
	lease(recTaking, pastLease{number: 7, lease: token})
	lease(recLost, pastLease{number: 7, reason: redlock.LostMax})
	lease(recHeld, pastLease{number: 7, phase: phaseHeld, lease: token, conn: 4})
	lease(recTold, pastLease{number: 7})
	put(recConnEnd, (&pastConn{number: 1}).code)
	put(recAsk, (&pastAsk{number: 8, conn: 4}).code)
	lease(recTaking, pastLease{number: 8, lease: token})
	return all
}

// An UNLOCK ends in the record that ends its lease: one without the other would be
// begun again, and find nothing.
func TestPastGaveBack(t *testing.T) {
	p := newPast()
	p.conns[1] = &pastConn{number: 1}
	p.asks[3] = &pastAsk{number: 3, conn: 1}
	p.leases[2] = &pastLease{number: 2, phase: phaseReleased, by: 3}
	c := &codec{b: []byte{byte(recForgot)}}
	(&pastLease{number: 2, by: 3}).code(recForgot, c)
	if err := p.Apply(c.b); err != nil || len(p.asks) != 0 || len(p.leases) != 0 {
		t.Errorf("got %v with the requests %v and the leases %v, want none", err, p.asks, p.leases)
	}
}

// linger= goes on from when nobody held the lease any more, until somebody does; a process
// that has ended does not come back.
func TestPastLeft(t *testing.T) {
	for hold, want := range map[ipc.Hold]time.Duration{ipc.HoldConn: 0, ipc.HoldPID: 7} {
		l := &pastLease{number: 1, phase: phaseHeld, holder: heldBy{hold: int(hold)}}
		l.update(recLeft, &pastLease{left: 7})
		if l.left != 7 {
			t.Errorf("hold=%v: left at %v, want 7", hold, l.left)
		}
		if l.update(recResumed, &pastLease{conn: 2}); l.left != want {
			t.Errorf("hold=%v: after RESUME left at %v, want %v", hold, l.left, want)
		}
	}
}

// A further LOCK and the UNLOCK that undoes it are noted in any order: where the first one of
// several that waited together is answered, its client may be faster than they are.
func TestPastUndone(t *testing.T) {
	more := func(id string) *pastLease { return &pastLease{number: 1, further: []string{id}} }
	less := &pastLease{number: 1}
	for _, tt := range []struct {
		changes []*pastLease
		want    []string
	}{
		{[]*pastLease{more("x"), less}, nil},
		{[]*pastLease{less, more("x")}, nil},
		{[]*pastLease{less, less, more("x"), more("y")}, nil},
		{[]*pastLease{less, more("x"), more("y")}, []string{"y"}},
		{[]*pastLease{more("x"), less, less, more("y"), more("z")}, []string{"z"}},
	} {
		p := newPast()
		p.leases[1] = &pastLease{number: 1, phase: phaseHeld}
		for _, change := range tt.changes {
			p.open(1).update(recFurther, change)
			p = apply(t, dumped(p)) // as where files are made one in between
		}
		if l := p.open(1); !slices.Equal(l.further, tt.want) || l.undone != 0 {
			t.Errorf("there count %q, and %d are undone; want %q", l.further, l.undone, tt.want)
		}
	}
}

// A lease is given back by one UNLOCK, which is answered so after a restart. Another one comes
// too late, and changes nothing of that.
func TestPastReleasedOnce(t *testing.T) {
	l := &pastLease{number: 1, phase: phaseHeld}
	l.update(recReleased, &pastLease{by: 2})
	if l.update(recReleased, &pastLease{by: 3}); l.phase != phaseReleased || l.by != 2 {
		t.Errorf("it is given back by %d, want 2", l.by)
	}
	l.update(recLost, &pastLease{reason: redlock.LostQuorum})
	if l.update(recReleased, &pastLease{by: 4}); l.phase != phaseLost {
		t.Error("what is lost is given back")
	}
}

func apply(t *testing.T, all [][]byte) *past {
	t.Helper()
	p := newPast()
	for i, record := range all {
		if err := applyCopy(p, record); err != nil {
			t.Fatalf("record %d, %q: %v", i, record, err)
		}
	}
	return p
}

// applyCopy has nothing kept of the record's bytes.
func applyCopy(p *past, record []byte) error {
	passing := bytes.Clone(record)
	defer clear(passing)
	return p.Apply(passing)
}

// sameAs tells whether two come to the same.
func (p *past) sameAs(other *past) bool {
	p.openAll()
	other.openAll()
	return reflect.DeepEqual(p, other)
}

// opened is one of which all leases are open.
func (p *past) opened() *past {
	p.openAll()
	return p
}

func dumped(p *past) (all [][]byte) {
	p.Dump(func(record []byte) { all = append(all, bytes.Clone(record)) })
	return all
}

// What is written anew in short is the same, up to each of the records.
func TestPastDumps(t *testing.T) {
	all := records()
	for n := range len(all) + 1 {
		p := apply(t, all[:n])
		if again := apply(t, dumped(p)); !p.sameAs(again) {
			t.Errorf("after %d records: got %+v, want %+v", n, again, p)
		}
	}
}

func TestPast(t *testing.T) {
	all := records()
	held := apply(t, all[:7]).opened()
	if l := held.leases[2]; l == nil || l.phase != phaseHeld || held.asks[2] != nil || l.lease.Fence != 5 || l.holder.uid != -1 {
		t.Errorf("granted: got %+v, asks %v; want it held, and its LOCK answered", l, held.asks)
	}
	if c := held.conns[1]; c == nil || !c.stored || string(c.rest) != "OCKS" || c.skipping {
		t.Errorf("a connection that was stored, and what was read of it: got %+v, want OCKS", c)
	}
	p := apply(t, all).opened()
	want := newPast()
	want.last = 10
	want.conns[4] = &pastConn{number: 4}
	want.asks[8] = &pastAsk{number: 8, conn: 4}
	if got := p.leases[7]; got == nil || got.phase != phaseLost || got.reason != redlock.LostMax || !got.told || got.conn != 4 {
		t.Errorf("lost before its LOCK was answered: got %+v", got)
	}
	if got := p.leases[8]; got == nil || got.phase != phaseTaking {
		t.Errorf("under way: got %+v", got)
	}
	p.leases = want.leases
	for _, ask := range p.asks {
		ask.line = nil
	}
	if !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, want %+v", p, want)
	}
	p = apply(t, append(all, (func() []byte {
		c := &codec{b: []byte{byte(recAnswered)}}
		(&pastAsk{number: 8}).code(recAnswered, c)
		return c.b
	})())).opened()
	if p.leases[8] != nil {
		t.Error("a LOCK that was refused takes something still")
	}
}

// Applied together, in parts of any size, records come to what they come to one by one:
// what is left out changes nothing.
func TestPastApplyAll(t *testing.T) {
	all := records()
	for n := range len(all) + 1 {
		want := apply(t, all)
		got := apply(t, all[:n])
		if err := got.ApplyAll(slices.Values(all[n:])); err != nil || !got.sameAs(want) {
			t.Errorf("%d one by one, and the others together: got %+v, %v, want %+v", n, got, err, want)
		}
	}
}

// The same of records in any order, such as are never noted as well; and of leases that
// are open throughout, and those that are opened when something changes.
func TestPastApplyAllInAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 3000 {
		var all [][]byte
		want, got := newPast(), newPast()
		for range 40 {
			record := anyRecord(random)
			if err := applyCopy(want, record); err != nil {
				t.Fatal(err)
			}
			want.openAll()
			all = append(all, record)
		}
		n := random.IntN(len(all) + 1)
		for _, part := range [][][]byte{all[:n], all[n:]} {
			if err := got.ApplyAll(slices.Values(part)); err != nil {
				t.Fatal(err)
			}
		}
		if !got.sameAs(want) {
			t.Fatalf("%q, together from %d on: got %+v, want %+v", all, n, got, want)
		}
	}
}

// anyRecord is one of any kind, with few numbers, so that they meet.
func anyRecord(random *rand.Rand) []byte {
	number := func() uint64 { return 1 + random.Uint64N(9) }
	kinds := []recordKind{recConn, recConnEnd, recRest, recAsk, recAsk, recAnswered, recTaking, recTaking, recHeld,
		recDeadline, recFurther, recResumed, recLeft, recLeft, recReleased, recLost, recTold, recForgot, recForgot}
	kind := kinds[random.IntN(len(kinds))]
	c := &codec{b: []byte{byte(kind)}}
	change := pastRest{add: []byte{byte('a' + random.IntN(9))}}
	switch kind {
	case recConn, recConnEnd, recRest:
		(&pastConn{number: number(), change: change}).code(kind, c)
	case recAsk, recAnswered:
		(&pastAsk{number: number(), conn: number(), line: change.add, changed: random.IntN(4) == 0, change: change}).code(kind, c)
	default:
		l := pastLease{number: number(), phase: phaseHeld + phase(random.IntN(3)), conn: number(), by: number(), reason: redlock.LostMax, further: []string{"f"}, left: time.Duration(random.IntN(9))}
		l.lease.Fence, l.lease.Deadline, l.lease.TTL = random.Uint64N(99), time.Duration(random.IntN(99)), time.Duration(random.IntN(99))
		l.code(kind, c)
	}
	return c.b
}

// What is over is left out, and nothing else.
func TestSift(t *testing.T) {
	all := append(records(), []byte{byte(recAnswered), 8})
	s := sift{}
	for _, record := range all {
		if err := s.look(record); err != nil {
			t.Fatal(err)
		}
	}
	var left []recordKind
	for _, record := range all {
		if !s.spares(record) {
			left = append(left, recordKind(record[0]))
		}
	}
	if got, want := string(left), "CCRRCHLHLMTlHtc"; got != want {
		t.Errorf("applied are %q, want %q", got, want)
	}
}

// What was read of a connection stays as it is, whoever stores it meanwhile; a change of more
// than there is makes no sense.
func TestPastRest(t *testing.T) {
	if got := apply(t, records()[:3]).conns[1]; !got.skipping || string(got.rest) != "LOCKS" {
		t.Errorf("got %+v, want LOCKS, and that the rest of a line is skipped", got)
	}
	p := apply(t, records()[:4])
	for _, test := range []struct {
		kind  recordKind
		conn  pastConn
		taken bool
	}{
		{recConn, pastConn{number: 1}, true},
		{recRest, pastConn{number: 1, change: pastRest{drop: 5}}, false},
		{recRest, pastConn{number: 1, change: pastRest{keep: 5}}, false},
		{recRest, pastConn{number: 1, change: pastRest{drop: 2, keep: 3}}, false},
		{recRest, pastConn{number: 2, change: pastRest{add: []byte("of nobody")}}, true},
	} {
		c := &codec{b: []byte{byte(test.kind)}}
		test.conn.code(test.kind, c)
		if err := p.Apply(c.b); err == nil != test.taken {
			t.Errorf("%+v: error %v", test.conn.change, err)
		}
	}
	if got := p.conns[1]; len(p.conns) != 1 || got.stored || string(got.rest) != "OCKS" {
		t.Errorf("got %+v of %d connections, want one with OCKS, and not stored", got, len(p.conns))
	}
}

// A connection ends with what it had asked, and nobody else's requests; the rest of one changes
// with the request that was taken from it.
func TestPastConnEnd(t *testing.T) {
	p := newPast()
	put := func(kind recordKind, code func(recordKind, *codec)) {
		c := &codec{b: []byte{byte(kind)}}
		code(kind, c)
		if err := p.Apply(c.b); err != nil {
			t.Fatal(err)
		}
	}
	put(recConn, (&pastConn{number: 1}).code)
	put(recConn, (&pastConn{number: 2}).code)
	put(recRest, (&pastConn{number: 2, change: pastRest{add: []byte("LOCK a\nPI")}}).code)
	put(recAsk, (&pastAsk{number: 3, conn: 1}).code)
	put(recAsk, (&pastAsk{number: 4, conn: 2, changed: true, change: pastRest{drop: 7, keep: 2}}).code)
	put(recConnEnd, (&pastConn{number: 1}).code)
	if len(p.conns) != 1 || len(p.asks) != 1 || p.asks[4] == nil {
		t.Errorf("left are the connections %v and requests %v, want one of each, the second ones", p.conns, p.asks)
	}
	if got := string(p.conns[2].rest); got != "PI" {
		t.Errorf("the rest is %q, want PI", got)
	}
}

// What one version of the daemon notes the next one reads: where the records change, so
// must tableFormat, and the old table is of no use then.
func TestRecordFormat(t *testing.T) {
	sum := sha256.Sum256(bytes.Join(records(), nil))
	if got, want := hex.EncodeToString(sum[:]), "c2f90c5ecc80f1129d23579a23a05f1d76fb9ebc7e725dcf69e58ec233cc8834"; tableFormat != "redlockd table 1" || got != want {
		t.Errorf("%s: the records have the sum %s, want %s", tableFormat, got, want)
	}
}

// A record that was cut, or that has more than it should, is none.
func TestFaultyRecords(t *testing.T) {
	for _, record := range append(records(), nil, []byte("?")) {
		longer := append(bytes.Clone(record), 0)
		if err := newPast().Apply(longer); err == nil {
			t.Errorf("%q is taken", longer)
		}
		if len(record) > 0 && newPast().Apply(record[:len(record)-1]) == nil {
			t.Errorf("%q is taken", record[:len(record)-1])
		}
	}
}

// A lease that was granted, lost or given back is one of these; there is no other state that
// the next daemon could go on with.
func TestRecordOfAnUnknownPhase(t *testing.T) {
	for phase := range phases + 2 {
		c := &codec{b: []byte{byte(recHeld)}}
		(&pastLease{number: 1, phase: phase}).code(recHeld, c)
		known := phase == phaseHeld || phase == phaseReleased || phase == phaseLost
		if err := newPast().Apply(c.b); (err == nil) != known {
			t.Errorf("phase %d: error %v", phase, err)
		}
	}
}

// Where one record makes no sense that is said of all together, too: what they come to must
// not take the place of the files that they stand in.
func TestPastApplyAllFaulty(t *testing.T) {
	for _, faulty := range [][]byte{{}, []byte("?"), {byte(recAnswered)}, {byte(recTaking), 2}, {byte(recConn), 1}} {
		p := newPast()
		if err := p.ApplyAll(slices.Values(append(records()[:5], faulty))); err == nil {
			t.Errorf("%q among others is taken", faulty)
		}
	}
}

// A number far from all others takes no memory, where the records are applied together.
func TestPastApplyAllFarAway(t *testing.T) {
	for _, number := range []uint64{1 << 40, math.MaxUint64} {
		c := &codec{b: []byte{byte(recAsk)}}
		(&pastAsk{number: number}).code(recAsk, c)
		p := newPast()
		if err := p.ApplyAll(slices.Values([][]byte{c.b})); err != nil || p.asks[number] == nil || p.last != number {
			t.Errorf("the request %d: %v, and known are %v", number, err, p.asks)
		}
	}
}

// Of a line that was too long, what comes next is its end: no request, also where the table
// was written anew in between.
func TestPastDumpsSkipping(t *testing.T) {
	p := newPast()
	p.last, p.conns[1] = 1, &pastConn{number: 1, skipping: true}
	if got := apply(t, dumped(p)).conns[1]; got == nil || !got.skipping {
		t.Errorf("got %+v, want that the rest of a line is skipped", got)
	}
}

// Any order of records, and any bytes, come to something that can be written and
// read again, and to the same where they are applied together.
func FuzzPast(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint64(1))
	for i, record := range records() {
		f.Add(record, uint64(i))
	}
	f.Fuzz(func(t *testing.T, odd []byte, seed uint64) {
		p := newPast()
		random := rand.New(rand.NewPCG(seed, 0))
		all := append(records(), odd)
		var taken [][]byte
		for range 40 {
			record, last := all[random.IntN(len(all))], p.last
			if applyCopy(p, record) != nil { // what is wrong is refused
				p.last = last
				continue
			}
			taken = append(taken, record)
		}
		together, n := newPast(), random.IntN(len(taken)+1)
		for _, part := range [][][]byte{taken[:n], taken[n:]} {
			if err := together.ApplyAll(slices.Values(part)); err != nil {
				t.Errorf("together: %v", err)
			}
		}
		again := apply(t, dumped(p))
		if !together.sameAs(p) {
			t.Errorf("together: got %+v, want %+v", together, p)
		}
		if !p.sameAs(again) {
			t.Errorf("got %+v, want %+v", again, p)
		}
	})
}
