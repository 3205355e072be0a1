package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"time"
)

// costPart is the part that measures how long one call keeps a node busy.
const costPart = "cost"

// costRow is the longest call of a scene, with one daemon binary.
type costRow struct {
	Scene  string  `json:"scene"`
	Daemon string  `json:"daemon"`
	Most   float64 `json:"longest_ms"`  // 0: no call was slow enough for the nodes' slow log
	Long   int     `json:"over_5ms"`    // calls above longCall, on all nodes
	CPU    float64 `json:"nodes_cpu_s"` // processor time of all nodes
	Note   string  `json:"note,omitempty"`
}

const (
	longCall  = 5 * time.Millisecond
	slowLogUs = 100   // shorter calls are not in the nodes' slow logs
	slowLog   = 20000 // entries of a node's slow log
)

// costScene is what one user, or two hosts, may send within the default limits.
type costScene struct {
	name string
	play func(ctx context.Context, s *costStage) error
}

var costScenes = []costScene{
	{"4 waiting shared LOCKs of 100 names", manyNames(4, 100, "mode=shared ")},
	{"64 of them", manyNames(64, 100, "mode=shared ")},
	{"64 shared LOCKs of 10 names", manyNames(64, 10, "mode=shared ")},
	{"60 LOCKs of 10 names, half of them shared, one name released", manyNames(60, 10, "", "mode=shared ")},
	{"200 LOCKs of 3 names that overlap", overlappingNames},
	{"two hosts want the same 100 names", sameNames},
	{"800 of slots=1000, taken, then extended", holders(800, "slots=1000 ttl=3s", 20*time.Second)},
	{"slots=1000, all taken, then extended", holders(1000, "slots=1000 ttl=3s", 20*time.Second)},
	{"1,000 readers, WHO and LIST all", holders(1000, "mode=shared ttl=3s", 20*time.Second)},
	{"10,000 waiting readers behind a writer", waitingReaders},
	{"LIST all beside 5,000 leases (SCAN, DESCRIBE)", listAll},
}

// measureCost plays each scene with each binary.
func measureCost(ctx context.Context, o options, env *environment, rep *report, logs io.Writer) error {
	if !slices.Contains(o.only, costPart) {
		return nil
	}
	if err := eachNode(env.nodes, "CONFIG", "SET", "slowlog-log-slower-than", fmt.Sprint(slowLogUs), "slowlog-max-len", fmt.Sprint(slowLog)); err != nil {
		return err
	}
	binaries := []struct{ name, path string }{{"this", env.binary}}
	if o.before != "" {
		binaries = append([]struct{ name, path string }{{"before", o.before}}, binaries...)
	}
	for i, scene := range costScenes {
		for _, binary := range binaries {
			fmt.Fprintf(logs, "cost: %s, %s\n", scene.name, binary.name)
			row, err := scene.measure(ctx, env, binary.name, binary.path, i)
			if err != nil {
				return fmt.Errorf("%s, %s: %w", scene.name, binary.name, err)
			}
			rep.Cost = append(rep.Cost, row)
		}
	}
	return nil
}

// measure plays a scene on two new hosts.
func (scene costScene) measure(ctx context.Context, env *environment, name, binary string, number int) (row costRow, err error) {
	row = costRow{Scene: scene.name, Daemon: name}
	s := &costStage{nodes: env.nodes, mark: fmt.Sprintf("%s%d", name, number)}
	defer func() { err = errors.Join(err, s.end()) }()
	for i := range s.hosts {
		d, err := startDaemon(ctx, env.dir, binary, fmt.Sprintf("cost%s%d-%d", name, number, i), env.nodes)
		if err != nil {
			return row, err
		}
		s.daemons = append(s.daemons, d)
		if s.hosts[i], err = s.dial(ctx, i); err != nil {
			return row, err
		}
	}
	if err := eachNode(env.nodes, "SLOWLOG", "RESET"); err != nil {
		return row, err
	}
	before, err := usedBy(env.nodes)
	if err != nil {
		return row, err
	}
	if err := scene.play(ctx, s); err != nil {
		return row, err
	}
	after, err := usedBy(env.nodes)
	if err != nil {
		return row, err
	}
	row.CPU = (after - before).Seconds()
	for _, n := range env.nodes {
		n.looks++
		reply, err := n.Do("SLOWLOG", "GET", fmt.Sprint(slowLog))
		if err != nil {
			return row, err
		}
		for _, entry := range reply.Array {
			if len(entry.Array) < 4 || len(entry.Array[3].Array) == 0 || !strings.HasPrefix(entry.Array[3].Array[0].Str, "EVAL") {
				continue
			}
			took := time.Duration(entry.Array[2].Int) * time.Microsecond
			row.Most = max(row.Most, milliseconds(took))
			if took > longCall {
				row.Long++
			}
		}
	}
	row.Note = strings.Join(s.notes, "; ")
	return row, nil
}

func eachNode(nodes []*node, command ...string) error {
	for _, n := range nodes {
		n.looks++
		if _, err := n.Do(command...); err != nil {
			return fmt.Errorf("%s: %s: %w", n.Name(), command[0], err)
		}
	}
	return nil
}

// costStage is two hosts and the nodes.
type costStage struct {
	nodes   []*node
	daemons []*daemon
	hosts   [2]*lines
	more    []*lines
	mark    string // part of the name of every lock
	notes   []string
}

func (s *costStage) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

func (s *costStage) dial(ctx context.Context, host int) (*lines, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", s.daemons[host].socket)
	if err != nil {
		return nil, err
	}
	l := &lines{Conn: conn, in: bufio.NewReaderSize(conn, 1<<16)}
	s.more = append(s.more, l)
	return l, nil
}

func (s *costStage) end() error {
	for _, l := range s.more {
		l.Close()
	}
	var errs []error
	for _, d := range s.daemons {
		errs = append(errs, d.stop())
	}
	return errors.Join(errs...)
}

// names returns n names, joined, of which the first is number from.
func (s *costStage) names(from, n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("%s-%03d", s.mark, from+i)
	}
	return strings.Join(all, ",")
}

// memory returns how many bytes a node has in use.
func (s *costStage) memory() (int64, error) {
	s.nodes[0].looks++
	reply, err := s.nodes[0].Do("INFO", "memory")
	return infoNumber(reply.Str, "used_memory"), err
}

// lines is a client of a daemon that sends and reads lines.
type lines struct {
	net.Conn
	in *bufio.Reader
}

// send sends requests: those with tags run side by side.
func (l *lines) send(requests ...string) error {
	_, err := io.WriteString(l, strings.Join(requests, "\n")+"\n")
	return err
}

// answers reads n answers within a time. It returns how many of them are OK, and the last one. A client
// that is late is no error: the time is a bound of the scene.
func (l *lines) answers(n int, within time.Duration) (ok int, last string, err error) {
	if err := l.SetReadDeadline(time.Now().Add(within)); err != nil {
		return 0, "", err
	}
	for read := 0; read < n; {
		line, err := l.in.ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return ok, last, nil
		} else if err != nil {
			return ok, last, err
		}
		text := strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(text, "@") {
			_, text, _ = strings.Cut(text, " ")
		}
		isOK := strings.HasPrefix(text, "OK")
		if isOK || strings.HasPrefix(text, "ERR") {
			read, last = read+1, text
		}
		if isOK {
			ok++
		}
	}
	return ok, last, nil
}

// ask sends a request without a tag and wants OK.
func (l *lines) ask(request string) (answer string, err error) {
	if err := l.send(request); err != nil {
		return "", err
	}
	ok, answer, err := l.answers(1, 30*time.Second)
	if err == nil && ok == 0 {
		err = fmt.Errorf("%.60s was answered by %q", request, answer)
	}
	return answer, err
}

// tagged returns n LOCKs with tags from 1 on.
func tagged(n int, request func(i int) string) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("@%d LOCK %s owner=w%d wait=60s", i+1, request(i), i)
	}
	return all
}

// gather is how long waiters get to enter the queues.
const gather = 2 * time.Second

// manyNames lets n LOCKs of so many names wait for the last name, and releases it. Options are used in
// turn.
func manyNames(n, names int, options ...string) func(context.Context, *costStage) error {
	return func(ctx context.Context, s *costStage) error {
		if _, err := s.hosts[1].ask("LOCK " + s.names(names-1, 1) + " wait=5s"); err != nil {
			return err
		}
		before, err := s.memory()
		if err != nil {
			return err
		}
		requests := tagged(n, func(i int) string { return s.names(0, names) + " " + options[i%len(options)] })
		if err := s.hosts[0].send(requests...); err != nil {
			return err
		}
		if err := pause(ctx, gather); err != nil {
			return err
		}
		after, err := s.memory()
		if err != nil {
			return err
		}
		s.note("%d KB a waiting LOCK", (after-before)/int64(n)/1024)
		return s.release(n)
	}
}

// release releases what the second host holds, and waits for the LOCKs of the first one.
func (s *costStage) release(n int) error {
	s.hosts[1].Close()
	ok, _, err := s.hosts[0].answers(n, 5*time.Second)
	s.note("%d of %d granted in 5 s", ok, n)
	return err
}

func overlappingNames(ctx context.Context, s *costStage) error {
	const n = 200
	if _, err := s.hosts[1].ask("LOCK " + s.names(0, 100) + " wait=5s"); err != nil {
		return err
	}
	if err := s.hosts[0].send(tagged(n, func(i int) string { return s.names(i%98, 3) })...); err != nil {
		return err
	}
	if err := pause(ctx, gather); err != nil {
		return err
	}
	return s.release(n)
}

// sameNames lets two hosts have the same 100 names in turn.
func sameNames(ctx context.Context, s *costStage) error {
	names, took := s.names(0, 100), []time.Duration(nil)
	if _, err := s.hosts[0].ask("LOCK " + names + " wait=5s"); err != nil {
		return err
	}
	for i := range 10 {
		holder, waiter := s.hosts[i%2], s.hosts[1-i%2]
		if err := waiter.send("LOCK " + names + " wait=30s"); err != nil {
			return err
		}
		if err := pause(ctx, gather/4); err != nil {
			return err
		}
		began := time.Now()
		if _, err := holder.ask("UNLOCK " + names); err != nil {
			return err
		}
		if ok, answer, err := waiter.answers(1, 30*time.Second); err != nil || ok == 0 {
			return fmt.Errorf("the other host got %q: %w", answer, err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	s.note("from UNLOCK to the grant %.1f ms (median), %.1f ms (most)", milliseconds(took[len(took)/2]), milliseconds(took[len(took)-1]))
	return nil
}

// holders takes a lock n times, within a time, extends all, and asks who holds it.
func holders(n int, options string, within time.Duration) func(context.Context, *costStage) error {
	return func(ctx context.Context, s *costStage) error {
		end, held := time.Now().Add(within), 0
		for held < n && time.Now().Before(end) {
			batch := min(n-held, 200)
			l, err := s.dial(ctx, 0) // each connection is another client, and may share the lock again
			if err != nil {
				return err
			}
			if err := l.send(tagged(batch, func(i int) string { return s.names(0, 1) + " " + options })...); err != nil {
				return err
			}
			ok, last, err := l.answers(batch, time.Until(end))
			if err != nil {
				return err
			}
			if ok == 0 {
				s.note("%.80s", last)
				break
			}
			held += ok
		}
		s.note("%d held", held)
		if err := pause(ctx, gather); err != nil { // extensions
			return err
		}
		if _, err := s.hosts[1].ask("WHO " + s.names(0, 1)); err != nil {
			s.note("WHO: %.60s", err)
		}
		return s.list()
	}
}

func waitingReaders(ctx context.Context, s *costStage) error {
	const n, conns = 10_000, 10
	if _, err := s.hosts[1].ask("LOCK " + s.names(0, 1) + " wait=5s"); err != nil {
		return err
	}
	for range conns {
		l, err := s.dial(ctx, 0)
		if err != nil {
			return err
		}
		if err := l.send(tagged(n/conns, func(i int) string { return s.names(0, 1) + " mode=shared" })...); err != nil {
			return err
		}
	}
	if err := pause(ctx, 5*gather); err != nil {
		return err
	}
	s.hosts[1].Close()
	granted := 0
	for _, l := range s.more[len(s.more)-conns:] {
		ok, _, err := l.answers(n/conns, 5*time.Second)
		if err != nil {
			return err
		}
		granted += ok
	}
	s.note("%d of %d granted", granted, n)
	return nil
}

func listAll(ctx context.Context, s *costStage) error {
	const n = 5000
	for held := 0; held < n; held += 1000 {
		requests := tagged(1000, func(i int) string { return fmt.Sprintf("%s-%d", s.mark, held+i) })
		if err := s.hosts[0].send(requests...); err != nil {
			return err
		}
		if _, _, err := s.hosts[0].answers(1000, 30*time.Second); err != nil {
			return err
		}
	}
	return s.list()
}

// list asks for all locks of all hosts.
func (s *costStage) list() error {
	l, err := s.dial(context.Background(), 1)
	if err != nil {
		return err
	}
	answer, err := l.ask("LIST all=yes")
	for pages := 1; err == nil; pages++ {
		_, rest, more := strings.Cut(answer, " next=")
		if !more || pages == 200 {
			s.note("%d pages", pages)
			break
		}
		cursor, _, _ := strings.Cut(rest, " ")
		answer, err = l.ask("LIST all=yes from=" + cursor)
	}
	if err != nil {
		s.note("LIST: %.60s", err)
	}
	return nil
}

func (r *report) printCost(w io.Writer) {
	if len(r.Cost) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s.\nOther processes kept %.2f CPUs busy meanwhile. The longest call of a script is from the nodes' slow logs (SLOWLOG), which have what takes %d µs or more; it includes what other processes took of the node's time.\n\n", r.Machine, r.Others, slowLogUs)
	t := &table{header: []string{"scene", "daemon", "longest ms", "calls over 5 ms", "nodes' CPU s", ""}}
	previous := ""
	for _, one := range r.Cost {
		shown := one.Scene
		if shown == previous {
			shown = ""
		}
		previous = one.Scene
		t.add(shown, one.Daemon, number(one.Most), fmt.Sprint(one.Long), number(one.CPU), one.Note)
	}
	t.print(w)
}
