package server

import (
	"bytes"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlockd/redlockd/ipc"
)

// table is a Journal in memory, for one connection. The next process restores from it.
type table struct {
	mu     sync.Mutex // guards the fields below
	last   uint64
	open   map[uint64]string // requests without an answer
	rest   string
	skip   bool
	added  int // total bytes added by changes to rest
	log    []string
	sealed bool
	noting bool // sessions record the answer to LOCK themselves
}

func newTable() *table { return &table{open: map[uint64]string{}} }

// record applies a change and logs it, or blocks for ever once the table is sealed.
func (t *table) record(what string, change func()) {
	t.mu.Lock()
	if t.sealed {
		t.mu.Unlock()
		select {}
	}
	defer t.mu.Unlock()
	t.log = append(t.log, what)
	change()
}

func (t *table) seal() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sealed = true
}

func (t *table) RecordRequest(call *Call, line []byte, rest *UnreadChange) {
	t.record(fmt.Sprintf("asked %s", line), func() {
		t.last++
		call.Number = t.last
		t.open[call.Number] = string(line)
		if rest != nil {
			t.apply(*rest)
			t.log[len(t.log)-1] += ", " + t.restLine()
		}
	})
}

func (t *table) RecordAnswer(call *Call) {
	t.record(fmt.Sprint("answered ", call.Number), func() { t.close(call) })
}

// close removes a recorded request. The caller holds mu.
func (t *table) close(call *Call) {
	if _, open := t.open[call.Number]; !open {
		t.log = append(t.log, fmt.Sprintf("DEFECT: answered %d, which is not open", call.Number))
	}
	delete(t.open, call.Number)
}

func (t *table) RecordUnread(rest UnreadChange) {
	t.record("", func() {
		t.apply(rest)
		t.log[len(t.log)-1] = t.restLine()
	})
}

// apply changes the unread bytes. The caller holds mu.
func (t *table) apply(rest UnreadChange) {
	t.rest, t.skip = string(rest.Apply([]byte(t.rest))), rest.Skipping
	t.added += len(rest.Add)
}

// restLine formats the unread bytes for the log. The caller holds mu.
func (t *table) restLine() string {
	if t.skip {
		return fmt.Sprintf("rest %.100q skipping", t.rest)
	}
	return fmt.Sprintf("rest %.100q", t.rest)
}

// restore restores the table as a starting daemon does.
func (t *table) restore(tb testing.TB, s *Server, nc net.Conn) *Restored {
	tb.Helper()
	r, err := s.Restore(nc)
	if err != nil {
		tb.Fatal(err)
	}
	t.mu.Lock()
	open, rest, skip := maps.Clone(t.open), []byte(t.rest), t.skip
	t.sealed = false
	t.mu.Unlock()
	for _, number := range slices.Sorted(maps.Keys(open)) {
		r.Begin(number, []byte(open[number]))
	}
	r.Serve(rest, skip)
	return r
}

func (t *table) hearLog(tb testing.TB, want ...string) {
	tb.Helper()
	t.mu.Lock()
	defer t.mu.Unlock()
	if !slices.Equal(t.log, want) {
		tb.Errorf("noted\n got %q\nwant %q", t.log, want)
	}
	t.log = nil
}

// journaled is a fakeSession with a Journal.
type journaled struct {
	*fakeSession
	*table
}

func (s journaled) Begin(call *Call) Work {
	work := s.fakeSession.Begin(call)
	if lock, ok := work.(*fakeLock); ok && s.noting {
		return workFunc(func() {
			call.RecordingAnswer()
			s.record(fmt.Sprint("granted ", call.Number), func() { s.close(call) })
			lock.Run()
		})
	}
	return work
}

func (t *table) daemon() *fakeDaemon {
	d := newFake()
	t.journal(d)
	return d
}

// journal gives the table to the daemon's sessions.
func (t *table) journal(d *fakeDaemon) {
	d.Open = func(c *Conn) (Session, error) {
		s, err := d.open(c)
		return journaled{s.(*fakeSession), t}, err
	}
}

// Each recorded request has exactly one recorded answer, whatever sends it. Other requests are not
// recorded.
func TestJournalAnsweredOnce(t *testing.T) {
	tests := []struct {
		say  string
		want []string
	}{
		{"PING\nCHECK x\nBEAT x\nSTATUS\nLIST\n", nil},
		{"LICK\n@a LOCK a,a\n", nil},
		{"WHO x\n", []string{"asked WHO x", "answered 1"}},
		{"  @a  unlock x\r\n", []string{"asked   @a  unlock x\r", "answered 1"}},
		{"EXTEND x\nTRY x\nADMIT all\nRESUME x lease=1\n", []string{ // the server answers these, not the session
			"asked EXTEND x", "answered 1", "asked TRY x", "answered 2", "asked ADMIT all", "answered 3", "asked RESUME x lease=1", "answered 4"}},
		{"@a LOCK x\n@a LOCK y\nCANCEL a\n", []string{"asked @a LOCK x", "answered 1"}},
		{"@a UNLOCK x\n@b UNLOCK x\n", []string{"asked @a UNLOCK x", "answered 1", "asked @b UNLOCK x", "answered 2"}}, // the second panics
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.say, "\n", ";"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := newTable()
				nc, over := pipeFake(tab.daemon())
				go bytes.NewBuffer(nil).ReadFrom(nc)
				for line := range strings.Lines(tt.say) {
					say(t, nc, line)
					synctest.Wait()
				}
				tab.hearLog(t, tt.want...)
				nc.Close()
				<-over
			})
		})
	}
}

// The server does not record an answer that a session records itself.
func TestJournalRecordsAnswerItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		tab.noting = true
		d := tab.daemon()
		nc, over := pipeFake(d)
		close(d.channel(d.gates, "x"))
		say(t, nc, "LOCK x\n")
		hear(t, nc, "OK lock=x\n")
		say(t, nc, "UNLOCK y\n")
		hear(t, nc, "OK lock=y\n")
		tab.hearLog(t, "asked LOCK x", "granted 1", "asked UNLOCK y", "answered 2")
		nc.Close()
		<-over
	})
}

// An answer is recorded before the client can read it.
func TestJournalRecordsBeforeAnswering(t *testing.T) {
	tab := newTable()
	d := startFake(t, tab.journal)
	nc := d.dial(t)
	for i := range uint64(1000) {
		say(t, nc, "WHO x\n")
		hear(t, nc, "- i=0\n- i=1\n- i=2\nOK n=3\n")
		tab.mu.Lock()
		if tab.last != i+1 || len(tab.open) > 0 {
			t.Fatalf("request %d of %d is answered, and open is %v", tab.last, i+1, tab.open)
		}
		tab.mu.Unlock()
	}
	tab.mu.Lock()
	defer tab.mu.Unlock()
	if len(tab.log) != 2000 {
		t.Errorf("%d records, want 2000: %q", len(tab.log), tab.log[:10])
	}
}

// The journal has exactly the bytes that were read and not begun.
func TestJournalUnread(t *testing.T) {
	long := strings.Repeat("x", ipc.MaxLine)
	type step struct {
		say  string
		want []string
	}
	tests := map[string][]step{
		"whole lines": {{"PING\n", nil}, {"\n \n@a PING\nPING\n", nil}},
		"a line in pieces": {
			{"@a PI", []string{`rest "@a PI"`}}, {"N", []string{`rest "@a PIN"`}},
			{"G\n@b PI", []string{`rest ""`, `rest "@b PI"`}}, {"NG\n", []string{`rest ""`}}},
		"a request in pieces": {
			{"@a LOCK", []string{`rest "@a LOCK"`}},
			{" x\n@b LOCK y\nP", []string{`asked @a LOCK x, rest ""`, `asked @b LOCK y`, `rest "P"`}}},
		"a request that is refused, in pieces": {
			{"@a LI", []string{`rest "@a LI"`}}, {"CK\n", []string{`rest ""`}}},
		"a blank line in pieces": {
			{"   ", []string{`rest "   "`}}, {"\n@ab", []string{`rest "@ab"`}}, {" PING\n", []string{`rest ""`}}},
		"behind one that runs": {
			{"LOCK x\nPING\nUNLOCK y\n@t PI", []string{"asked LOCK x", `rest "PING\nUNLOCK y\n@t PI"`}},
			{"NG\n", []string{`rest "PING\nUNLOCK y\n"`}}, // before UNLOCK is answered
			{"@u PING\n", nil},
			{"LIST\n", []string{`rest "PING\nUNLOCK y\nLIST\n"`}},
			{"@g UNLOCK x\n", []string{"asked @g UNLOCK x", "answered 2", "answered 1",
				`rest "UNLOCK y\nLIST\n"`, `asked UNLOCK y, rest "LIST\n"`, "answered 3", `rest ""`}}},
		"a line that is too long": {
			{long + "x", []string{`rest "" skipping`}}, {long, nil},
			{"x\nPI", []string{`rest "PI"`}}, {"NG\n", []string{`rest ""`}}},
		"a line that is too long, in its turn": {
			{"LOCK x\n" + long, []string{"asked LOCK x", `rest "` + long[:100] + `" skipping`}},
			{"x\n", []string{`rest "` + long[:100] + `"`}},
			{"@g UNLOCK x\n", []string{"asked @g UNLOCK x", "answered 2", "answered 1", `rest ""`}}},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tab := newTable()
				nc, over := pipeFake(tab.daemon())
				go bytes.NewBuffer(nil).ReadFrom(nc)
				for _, step := range steps {
					say(t, nc, step.say)
					synctest.Wait()
					tab.hearLog(t, step.want...)
				}
				nc.Close()
				<-over
			})
		})
	}
}

// Requests after QUIT do not begin, not even after a restart.
func TestJournalOfQuit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		d := tab.daemon()
		nc, over := pipeFake(d)
		go bytes.NewBuffer(nil).ReadFrom(nc)
		say(t, nc, "@w LOCK y\nLOCK x\nQUIT\nUNLOCK z\n")
		synctest.Wait()
		tab.hearLog(t, "asked @w LOCK y", "asked LOCK x", `rest "QUIT\nUNLOCK z\n"`)
		close(d.channel(d.gates, "x"))
		synctest.Wait()
		tab.hearLog(t, "answered 2", `rest "UNLOCK z\n"`, `rest ""`)
		close(d.channel(d.gates, "y"))
		<-over
		nc.Close()
	})
}

// brokenJournal panics. The server reports a defect, and goes on.
type brokenJournal struct{ *fakeSession }

func (brokenJournal) RecordRequest(*Call, []byte, *UnreadChange) { panic("asked") }
func (brokenJournal) RecordAnswer(*Call)                         { panic("answered") }
func (brokenJournal) RecordUnread(UnreadChange)                  { panic("rest") }

func TestJournalPanics(t *testing.T) {
	d := startFake(t, func(d *fakeDaemon) {
		d.Open = func(c *Conn) (Session, error) {
			s, err := d.open(c)
			return brokenJournal{s.(*fakeSession)}, err
		}
	})
	nc := d.dial(t)
	const internal = "ERR INTERNAL : a defect in the daemon: see its log\n"
	say(t, nc, "WHO x\n")
	hear(t, nc, internal)
	say(t, nc, "PI")
	d.hearDefects(t, "asked", "answered", "rest")
	say(t, nc, "NG\nPING\n")
	hear(t, nc, internal+"OK\n")
	d.hearDefects(t, "rest")
}

// The end of a skipped line is recorded together with the next request. Otherwise the next process
// would skip the line after it.
func TestJournalEndOfSkipping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		here, there := net.Pipe()
		d := tab.daemon()
		go d.ServeConn(there)
		say(t, here, strings.Repeat("x", ipc.MaxLine+10))
		buf := make([]byte, ipc.MaxLine)
		if n, err := here.Read(buf); err != nil || !strings.HasPrefix(string(buf[:n]), "ERR ") {
			t.Fatalf("got %q, %v; want that it is too long", buf[:n], err)
		}
		synctest.Wait()
		if !tab.skip {
			t.Fatal("it is not noted that the line is skipped")
		}
		tab.log = nil
		say(t, here, "xx\nLOCK x\n")
		d.waiting(t, "x")
		synctest.Wait()
		tab.hearLog(t, "asked LOCK x, rest \"\"")
		close(d.channel(d.gates, "x"))
		hear(t, here, "OK lock=x\n")
		endPipe(t, d, here)
	})
}

// When a line of the queue begins, or a line with a tag overtakes the queue, the other lines of the
// queue and the partial line after it stay recorded, each byte once.
func TestJournalUnreadAfterLineThatBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		here, there := net.Pipe()
		d := tab.daemon()
		go d.ServeConn(there)
		say(t, here, "LOCK x\nLOCK y\nPI")
		synctest.Wait()
		tab.hearLog(t, "asked LOCK x", `rest "LOCK y\nPI"`)
		say(t, here, "NG\n@a LOCK z\n@b PI")
		synctest.Wait()
		tab.hearLog(t, `asked @a LOCK z, rest "LOCK y\nPING\n"`, `rest "LOCK y\nPING\n@b PI"`)
		close(d.channel(d.gates, "x"))
		hear(t, here, "OK lock=x\n")
		synctest.Wait()
		tab.hearLog(t, "answered 1", `asked LOCK y, rest "PING\n@b PI"`)
		close(d.channel(d.gates, "y"))
		hear(t, here, "OK lock=y\nOK\n")
		synctest.Wait()
		tab.hearLog(t, "answered 3", `rest "@b PI"`)
		close(d.channel(d.gates, "z"))
		hear(t, here, "@a OK lock=z\n")
		endPipe(t, d, here)
	})
}

// slowToBegin is a journaled session whose UNLOCK is still in Begin when the LOCK that it ends is
// answered.
type slowToBegin struct{ journaled }

func (s slowToBegin) Begin(call *Call) Work {
	verb := call.Verb
	work := s.journaled.Begin(call)
	for verb == ipc.VerbUnlock && s.conn.inflight.untaggedPending() {
		time.Sleep(time.Millisecond) // fake time
	}
	return work
}

// If a recorded line of the queue begins, it is removed from the record, even if its turn comes at
// once. Otherwise it would begin again after a restart.
func TestJournalUnreadThatBeginsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		d := tab.daemon()
		open := d.Open
		d.Open = func(c *Conn) (Session, error) {
			s, err := open(c)
			return slowToBegin{s.(journaled)}, err
		}
		nc, over := pipeFake(d)
		go bytes.NewBuffer(nil).ReadFrom(nc)
		say(t, nc, "LOCK x\nPI")
		synctest.Wait()
		tab.hearLog(t, "asked LOCK x", `rest "PI"`)
		say(t, nc, "NG\n@g UNLOCK x\n")
		time.Sleep(time.Second)
		tab.hearLog(t, `asked @g UNLOCK x, rest "PING\n"`, "answered 2", "answered 1", `rest ""`)
		nc.Close()
		<-over
	})
}

// An answer is recorded before the client can read it. Otherwise the next process would send it
// again.
func TestPipeAnswerIsRecordedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tab := newTable()
		d := tab.daemon()
		open, noted := d.Open, 0
		d.Open = func(c *Conn) (Session, error) {
			session, err := open(c)
			return noting{session.(journaled), func() {
				if noted++; c.Unread() > 0 {
					t.Errorf("%d bytes of the answer are under way", c.Unread())
				}
			}}, err
		}
		nc, over := pipeFake(d)
		say(t, nc, "@a LOCK x\n")
		synctest.Wait()
		close(d.channel(d.gates, "x"))
		synctest.Wait()
		hear(t, nc, "@a OK lock=x\n")
		if noted != 1 {
			t.Errorf("noted %d times, want once", noted)
		}
		nc.Close()
		<-over
	})
}

// noting reports each recorded answer.
type noting struct {
	journaled
	noted func()
}

func (n noting) RecordAnswer(call *Call) {
	n.noted()
	n.journaled.RecordAnswer(call)
}
