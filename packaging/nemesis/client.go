package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	leaseTTL     = 2 * time.Second
	shortTTL     = time.Second      // of most leases
	answerWait   = 20 * time.Second // longer than any request may take; then the client reconnects
	nameLifetime = 10 * time.Second // locks get new names after this time, which keeps each history short
)

// A worker acquires and releases locks in a loop until the run ends.
type worker struct {
	number int
	out    *output
	store  *store // nil: no work under the lock
	rival  bool   // it uses redsync, and other clients redlockd
	isCalm bool   // it has reported its grant after the last fault
	random *rand.Rand
	open   func() (locker, error)
	names  int // number of locks of each mode
	host   int // the number of its daemon
	hosts  int // number of daemons
}

// A locker is a connection to a lock service. Every method blocks until the answer.
type locker interface {
	// lock returns a hold, or nil if the lock was not granted, or an error if the connection is of
	// no use any more.
	lock(names []string, m mode, wait, ttl time.Duration) (*hold, error)
	// keep waits until the instant and confirms the hold meanwhile if it can. If the hold was lost,
	// it returns early.
	keep(h *hold, until instant) error
	unlock(h *hold) error
	close()
}

// output prints holds, one on each line, and numbers them.
type output struct {
	mu     sync.Mutex // guards writer; held during a line
	writer io.Writer
	last   atomic.Int64
}

func (o *output) print(h *hold) {
	if h.ID == 0 {
		h.ID = o.last.Add(1)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write(clientLine{Hold: h.json()})
}

// write prints a line. mu is held.
func (o *output) write(line clientLine) {
	text, err := json.Marshal(line)
	if err != nil {
		panic(err) // impossible: it has only strings and numbers
	}
	_, _ = o.writer.Write(append(text, '\n')) // if the nemesis has ended, this process ends soon
}

func (o *output) printLine(line clientLine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.write(line)
}

// A clientLine is a line of a client process: exactly one of its fields.
type clientLine struct {
	Hold  json.RawMessage `json:"hold,omitempty"`
	Calm  *calmReport     `json:"calm,omitempty"`
	Late  string          `json:"late,omitempty"`  // a request without an answer in time
	Fault string          `json:"fault,omitempty"` // the run is of no use
}

// run works until stop is closed. After calm is closed, it takes one lock that all workers want, and
// does nothing more: the processors are for the workers that still wait for it.
func (w *worker) run(calm, stop <-chan struct{}) {
	var connection locker
	for {
		once := w.once
		select {
		case <-stop:
			if connection != nil {
				connection.close()
			}
			return
		case <-calm:
			once = w.calm
		default:
		}
		if connection == nil {
			var err error
			if connection, err = w.open(); err != nil {
				w.pause(50 * time.Millisecond)
				connection = nil
				continue
			}
		}
		err := once(connection)
		if w.isCalm {
			calm = nil
			<-stop
		}
		if errors.Is(err, errLate) {
			w.out.printLine(clientLine{Late: err.Error()})
		}
		if err != nil {
			connection.close()
			connection = nil
		}
	}
}

// once takes one lock, holds it for a random time and releases it.
func (w *worker) once(connection locker) error {
	names, m := w.choose()
	h, err := connection.lock(names, m, time.Duration(w.random.IntN(3000))*time.Millisecond, w.ttl())
	if err != nil {
		return err
	}
	if h == nil {
		w.pause(20 * time.Millisecond)
		return nil
	}
	w.out.print(h)
	var did *work
	if w.store != nil && m == exclusive && len(h.Names) == 1 && h.Fence > 0 {
		if did, err = w.store.begin(h); err != nil {
			w.out.printLine(clientLine{Fault: err.Error()})
		}
	}
	err = connection.keep(h, now()+w.duration())
	released := h.Ended == 0
	if did != nil && released {
		// It does not look at the deadline again: a program may be paused after it has looked.
		if err := w.store.end(did); err != nil {
			w.out.printLine(clientLine{Fault: err.Error()})
		}
	}
	if released {
		h.Ended, h.Reason = now(), "released" // before the first byte of the release
	}
	w.out.print(h) // before the release, because this process may be killed in the middle of it
	if released && err == nil {
		err = connection.unlock(h)
	}
	return err
}

// choose picks a lock. The names of each kind change with time, at different times.
func (w *worker) choose() ([]string, mode) {
	at := now()
	name := func(kind rune, number int) string {
		return fmt.Sprintf("%c%d-%d", kind, number, (at+instant(kind)*nameLifetime/7)/nameLifetime)
	}
	one := func(kind rune) string { return name(kind, w.random.IntN(w.names)) }
	n := w.random.IntN(100)
	if w.rival {
		n = w.random.IntN(80) // redsync has neither modes nor several names
	}
	switch {
	case n < 60: // mostly clients of one daemon wait for it, and the daemon passes it on among them
		host := w.host
		if w.random.IntN(25) == 0 {
			host = w.random.IntN(w.hosts)
		}
		perHost := (w.names + 3) / 4
		return []string{name('h', host*perHost+w.random.IntN(perHost))}, exclusive
	case n < 80:
		return []string{one('x')}, exclusive
	case n < 84:
		return []string{one('r')}, shared
	case n < 88:
		return []string{one('r')}, exclusive
	case n < 92:
		return []string{one('s')}, slots
	case n < 94:
		return []string{one(largeKind)}, slots
	default:
		most := 2
		if w.random.IntN(8) == 0 {
			most = manyNames
		}
		names := []string{one('x')}
		for len(names) < most {
			next := one('x')
			if slices.Contains(names, next) {
				break
			}
			names = append(names, next)
		}
		return names, exclusive
	}
}

// duration returns how long to hold a lock: mostly less than a millisecond, and sometimes longer
// than its ttl.
func (w *worker) duration() time.Duration {
	most := time.Millisecond
	switch n := w.random.IntN(1000); {
	case n < 8:
		most = 4 * time.Second
	case n < 50:
		most = 200 * time.Millisecond
	case n < 150:
		most = 20 * time.Millisecond
	}
	return time.Duration(w.random.Int64N(int64(most)))
}

// ttl returns the ttl of the next request.
func (w *worker) ttl() time.Duration {
	if w.random.IntN(5) == 0 {
		return leaseTTL
	}
	return shortTTL
}

func (w *worker) pause(most time.Duration) { <-time.After(time.Duration(w.random.Int64N(int64(most)))) }

// --- redlockd

// A session is one connection to redlockd, in its own protocol.
type session struct {
	conn  net.Conn
	lines chan string // lines of the daemon; closed at the end of the connection
}

func dialSession(socket string) (locker, error) {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return nil, err
	}
	s := &session{conn: conn, lines: make(chan string, 16)}
	go s.read() // ends with the connection
	return s, nil
}

func (s *session) read() {
	defer close(s.lines)
	for in := bufio.NewScanner(s.conn); in.Scan(); {
		s.lines <- in.Text()
	}
}

func (s *session) close() {
	s.conn.Close()
	for range s.lines { // so that read does not block on a full channel
	}
}

var errConnection = errors.New("the connection to redlockd is of no use")

// errLate is the error of a request without an answer in time: for LOCK, within lateBound after the
// end of its wait=, and for others, within answerWait.
var errLate = errors.New("no answer in time")

// ask is askWithin with the limit of requests that do not wait.
func (s *session) ask(lost func(line string), format string, args ...any) (string, error) {
	return s.askWithin(answerWait, lost, format, args...)
}

// askWithin sends a request and returns its answer. It passes LOST events before the answer to lost.
func (s *session) askWithin(limit time.Duration, lost func(line string), format string, args ...any) (string, error) {
	if _, err := fmt.Fprintf(s.conn, format+"\n", args...); err != nil {
		return "", errConnection
	}
	timeout := time.After(limit)
	for {
		select {
		case line, open := <-s.lines:
			switch word, _, _ := strings.Cut(line, " "); {
			case !open:
				return "", errConnection
			case word == "OK" || word == "ERR":
				return line, nil
			case word == "LOST" && lost != nil:
				lost(line)
			}
		case <-timeout:
			return "", fmt.Errorf("%w: "+format, append([]any{errLate}, args...)...)
		}
	}
}

func (s *session) lock(names []string, m mode, wait, ttl time.Duration) (*hold, error) {
	options := ""
	switch m {
	case shared:
		options = " mode=shared"
	case slots:
		options = fmt.Sprintf(" slots=%d", slotsOf(names[0]))
	}
	h := &hold{Names: names, Mode: m, Asked: now()}
	answer, err := s.askWithin(wait+lateBound, nil, "LOCK %s wait=%d ttl=%d%s", strings.Join(names, ","), wait.Milliseconds(), ttl.Milliseconds(), options)
	if err != nil || !strings.HasPrefix(answer, "OK ") {
		return nil, err
	}
	h.Granted = now()
	h.Fence, _ = strconv.ParseUint(field(answer, "fence"), 10, 64)
	h.Slot = field(answer, "slot")
	h.Until = deadline(answer)
	return h, nil
}

// keep sends CHECK every fifth of a ttl, like a client that holds a lock for long.
func (s *session) keep(h *hold, until instant) error {
	end := time.After(until - now())
	for {
		again := time.After(shortTTL / 5)
		select {
		case <-end:
			return nil
		case <-again:
			answer, err := s.ask(func(string) { lost(h) }, "CHECK %s", strings.Join(h.Names, ","))
			if err == nil && h.Ended == 0 && strings.HasPrefix(answer, "OK ") {
				h.Until = max(h.Until, deadline(answer))
			} else if err == nil && h.Ended == 0 {
				lost(h) // the answer to CHECK reports the loss
			}
			if h.Ended != 0 || err != nil {
				return s.outlast(h, until, err)
			}
		case line, open := <-s.lines:
			if !open {
				return s.outlast(h, until, errConnection)
			}
			if strings.HasPrefix(line, "LOST ") {
				lost(h)
				return nil
			}
		}
	}
}

// outlast relies on the lock until its known deadline after the connection has ended.
func (s *session) outlast(h *hold, until instant, err error) error {
	if err != nil && h.Ended == 0 {
		<-time.After(min(until, h.Until) - now())
		h.Ended, h.Reason = now(), "connection ended"
	}
	return err
}

func lost(h *hold) {
	h.Ended, h.Reason = now(), "lost"
}

func (s *session) unlock(h *hold) error {
	_, err := s.ask(nil, "UNLOCK %s", strings.Join(h.Names, ","))
	return err
}

func field(answer, key string) string {
	for word := range strings.FieldsSeq(answer) {
		if value, ok := strings.CutPrefix(word, key+"="); ok {
			return value
		}
	}
	return ""
}

func deadline(answer string) instant {
	ms, _ := strconv.ParseInt(field(answer, "deadline"), 10, 64)
	return time.Duration(ms) * time.Millisecond
}

// --- the client process

// clientMain is the main function of a client process: it runs workers until its standard input
// ends.
func clientMain(args clientArgs) int {
	out := &output{writer: os.Stdout}
	open := func() (locker, error) { return dialSession(args.Socket) }
	if args.Contender == "redsync" {
		fleet := newRedsyncFleet(args.Nodes)
		defer fleet.close()
		open = fleet.open
	}
	var db *store
	if args.Store != "" {
		db = newStore(args.Store)
		defer db.db.Close()
	}
	calm, stop := make(chan struct{}), make(chan struct{})
	var workers sync.WaitGroup
	for i := range args.Workers {
		w := &worker{number: i, out: out, store: db, rival: args.Rival, open: open, names: args.Names, host: args.Host, hosts: args.Hosts, random: rand.New(rand.NewPCG(args.Seed, uint64(i)))}
		workers.Go(func() { w.run(calm, stop) }) // awaited below; ends with stop
	}
	in := bufio.NewReader(os.Stdin) // the nemesis closes it at the end of the run
	if line, _ := in.ReadString('\n'); line == calmLine {
		if !args.Rival {
			close(calm)
		}
		_, _ = in.ReadString('\n')
	}
	close(stop)
	workers.Wait()
	return 0
}

// clientArgs are the arguments of a client process, as JSON.
type clientArgs struct {
	Contender string
	Socket    string
	Nodes     []string // addresses, for a contender without a daemon
	Store     string   // address; empty: no work under the lock
	Rival     bool     // it uses redsync, and other clients redlockd
	Workers   int
	Names     int
	Host      int // the number of its daemon
	Hosts     int // number of daemons
	Seed      uint64
}

// lastLine cuts text after its last line feed: a killed process may end within a line.
func lastLine(text []byte) []byte { return text[:bytes.LastIndexByte(text, '\n')+1] }
