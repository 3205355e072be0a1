//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

const mib = 1 << 20

// Whatever one user sends, another user's requests are answered as fast as before, and the daemon's
// memory is bounded. If a limit is exceeded, the answer is LIMIT with the name of the limit.
func TestHostileClients(t *testing.T) {
	a := newArena(t)
	a.prober = startProber(t, a.socket)
	lower(t)
	for _, r := range []row{
		{"a line of 64 MiB", 8 * mib, longLine},
		{"garbage", 8 * mib, garbage},
		{"100,000 pipelined requests", 16 * mib, pipelined},
		{"lines behind one that waits", 300 * mib, backlog},
		{"who never reads", 200 * mib, neverReads},
		{"a byte now and then", 40 * mib, drip},
		{"idle and half-open connections", 200 * mib, idle},
		{"connection storms", 100 * mib, storm},
		{"leases and waiters", 150 * mib, names},
		{"questions in flight", 150 * mib, questions},
		{"a flood of lines", 40 * mib, floodOf("PING\nCHECK bad/a\n@a PING\n@b CHECK bad/a\n")},
		{"a flood of locks", 40 * mib, floodOf("@a% LOCK bad/%\n@b% UNLOCK bad/%\n")},
		{"a flood of lists", 100 * mib, floodOf("LIST\n@a LIST\nSTATUS\nHELP\n")},
	} {
		t.Run(r.name, func(t *testing.T) { a.run(t, r) })
	}
	a.settles(t, rounds(160, 96)*mib) // Go returns the last of it within half a minute
}

// longLine: the line is refused once, and the connection is usable afterwards.
func longLine(a *arena, t *testing.T, during func()) {
	bad := a.as(t, badUser)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for range 64 {
			bad.write(strings.Repeat("x", mib))
		}
	}()
	during()
	await(t, 2*patience, over, "the line of 64 MiB to be taken", nil)
	bad.comes("ERR TOOLONG")
	bad.ask("\nPING", "OK")
}

// garbage: each line is refused, and the connection is usable afterwards.
func garbage(a *arena, t *testing.T, during func()) {
	bad := a.as(t, badUser)
	const lines = 20_000
	random := rand.NewChaCha8([32]byte{7})
	go func() {
		line := make([]byte, 64)
		for i := range lines {
			random.Read(line)
			for j := range line {
				if line[j] == '\n' || line[j] == '@' {
					line[j] = 0
				}
			}
			if i%4 == 0 {
				copy(line, "LOCK \x00\x01\xff\xfe")
			}
			if line[0] = max(line[0], 'A'); !bad.write(string(line) + "\n") { // no line is empty
				return
			}
		}
		bad.write("PING\n")
	}()
	during()
	for range lines {
		bad.comes("ERR ")
	}
	bad.comes("OK")
}

// pipelined: all requests are answered, in order.
func pipelined(a *arena, t *testing.T, during func()) {
	bad := a.as(t, badUser)
	const n = 100_000
	var requests bytes.Buffer
	for i := range n {
		switch i % 4 {
		case 0:
			fmt.Fprintf(&requests, "CHECK bad/%d\n", i)
		case 1:
			fmt.Fprintf(&requests, "@a%d PING\n", i)
		default:
			requests.WriteString("PING\n")
		}
	}
	go bad.conn.Write(requests.Bytes())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range n {
			want := "OK"
			switch i % 4 {
			case 0:
				want = "ERR NOTHELD lock=bad/" + strconv.Itoa(i)
			case 1:
				want = "@a" + strconv.Itoa(i) + " OK"
			}
			if line, _ := bad.line(); !strings.HasPrefix(line, want) {
				t.Errorf("answer %d: got %q, want %q", i, line, want)
				return
			}
		}
	})
	during()
	awaitAll(t, 4*patience, &wg, "the answers to pipelined requests", nil)
}

// backlog fills the input queue of many connections, and with it the state file.
func backlog(a *arena, t *testing.T, during func()) {
	holder := a.as(t, badUser)
	holder.ask("LOCK bad/held", "OK")
	conns := a.flood(t, 300, func(conn net.Conn) {
		conn.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)) // by then the daemon reads no more
		io.WriteString(conn, "LOCK bad/held\n"+strings.Repeat("LOCK "+strings.Repeat("n", 200)+"\n", 300))
	})
	during()
	size := a.tableSize()
	t.Logf("measured: the table takes %d MiB", size/mib)
	if size > 150*mib {
		t.Errorf("the table takes %d MiB", size/mib)
	}
	closeAll(conns)
	holder.ask("UNLOCK bad/held", "OK")
}

// flood makes connections and calls do for each, many at a time.
func (a *arena) flood(t *testing.T, n int, do func(net.Conn)) []net.Conn {
	t.Helper()
	conns, err := a.dialAs(badUser, n)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(conns) })
	var wg sync.WaitGroup
	next := make(chan net.Conn)
	for range 100 {
		wg.Go(func() {
			for conn := range next {
				do(conn)
			}
		})
	}
	for _, conn := range conns {
		next <- conn
	}
	close(next)
	awaitAll(t, 4*patience, &wg, "connections to be flooded", nil)
	return conns
}

func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		conn.Close()
	}
}

// neverReads: many connections with answers that the client does not read, long ones and short
// ones.
func neverReads(a *arena, t *testing.T, during func()) {
	holder := a.as(t, badUser)
	note := strings.Repeat("n", 200)
	for i := range 1000 {
		holder.write(fmt.Sprintf("@%d LOCK bad/%d note=%s\n", i, i, note))
	}
	for range 1000 {
		holder.comes("@")
	}
	conns := a.flood(t, 200, func(conn net.Conn) {
		conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		io.WriteString(conn, strings.Repeat("LIST\n@1 LIST\n", 50)+strings.Repeat("HELP\n@a HELP\n", 1000))
	})
	during()
	closeAll(conns)
}

// drip: many connections that always have half a line.
func drip(a *arena, t *testing.T, during func()) {
	conns, err := a.dialAs(badUser, 900)
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				for _, conn := range conns {
					conn.SetWriteDeadline(time.Now().Add(patience))
					conn.Write([]byte{'x'})
				}
			}
		}
	})
	during()
	close(stop)
	awaitAll(t, 2*patience, &wg, "a byte to be taken on each connection", nil)
	closeAll(conns)
}

// idle: as many connections as are allowed, of many users. Half of them are half closed, with a
// waiting request.
func idle(a *arena, t *testing.T, during func()) {
	const users, each = 9, 990
	holder := a.as(t, badUser)
	holder.ask("LOCK bad/held", "OK")
	var all []net.Conn
	for user := range users {
		conns, err := a.dialAs(badUser+1+user, each)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeAll(conns) })
		for i, conn := range conns {
			if i%2 == 0 {
				io.WriteString(conn, "LOCK bad/held hold=ttl\n")
				conn.(*net.UnixConn).CloseWrite()
			}
		}
		all = append(all, conns...)
	}
	during()
	a.awaitConnections(t, users*each+3)
	closeAll(all)
	a.awaitConnections(t, 3)
	holder.ask("UNLOCK bad/held", "OK")
}

// storm: one user connects and disconnects as fast as possible, at its limit.
func storm(a *arena, t *testing.T, during func()) {
	const limit = 1000
	conns, err := a.dialAs(badUser, limit)
	if err != nil {
		t.Fatal(err)
	}
	defer closeAll(conns)
	a.awaitConnections(t, limit+2)
	a.as(t, badUser).comes("ERR LIMIT : a limit of the config is reached: connections_per_user = 1000")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var stormed [3]int
	for i := range stormed {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				conns, _ := a.dialAs(badUser, 500) // the bad user only gets EAGAIN
				closeAll(conns)
				stormed[i] += len(conns)
			}
		})
	}
	start := time.Now()
	during()
	close(stop)
	awaitAll(t, 4*patience, &wg, "the storm to end", nil)
	rate := float64(stormed[0]+stormed[1]+stormed[2]) / time.Since(start).Seconds()
	t.Logf("measured: %.0f connections a second", rate)
}

// names: one user acquires as many locks, and waits as often, as its limits allow.
func names(a *arena, t *testing.T, during func()) {
	note := " note=" + strings.Repeat("n", 200)
	granted, refused := a.lockMany(t, 12, 1000, func(i int) string { return "LOCK bad/" + strconv.Itoa(i) + note })
	if granted != 10_000 || refused["leases_per_user = 10000"]+refused["waiters_per_user = 10000"] != 2000 { // many requests wait at first
		t.Errorf("%d locks are granted, and refused: %v; want 10000 and leases_per_user", granted, refused)
	}
	during()
	size := a.tableSize()
	t.Logf("measured: the table takes %d MiB", size/mib)
	if size > 60*mib {
		t.Errorf("the table takes %d MiB", size/mib)
	}
}

// lockMany sends tagged requests on a number of connections. It counts the granted locks, and the
// limits that refusals name.
func (a *arena) lockMany(t *testing.T, conns, each int, request func(i int) string) (granted int, refused map[string]int) {
	t.Helper()
	refused = map[string]int{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for c := range conns {
		bad := a.as(t, badUser)
		go func() {
			for i := range each {
				bad.write(fmt.Sprintf("@%d %s\n", i, request(c*each+i)))
			}
		}()
		wg.Go(func() {
			for range each {
				line, more := bad.line()
				_, limit, is := strings.Cut(line, "a limit of the config is reached: ")
				limit, _, _ = strings.Cut(limit, ",")
				mu.Lock()
				switch {
				case is && more:
					refused[limit]++
				case strings.Contains(line, " OK lock="):
					granted++
				default:
					t.Errorf("got %.200q", line)
				}
				mu.Unlock()
			}
		})
	}
	awaitAll(t, 4*patience, &wg, "an answer to each LOCK", func() string {
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("%d granted, refused: %v", granted, refused)
	})
	return granted, refused
}

// questions: many connections have requests in progress while no node answers.
func questions(a *arena, t *testing.T, during func()) {
	conns := a.flood(t, 20, func(conn net.Conn) {
		var b bytes.Buffer
		for i := range 4000 {
			fmt.Fprintf(&b, "@%d WHO bad/%d\n", i, i)
		}
		conn.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
		conn.Write(b.Bytes())
	})
	during()
	closeAll(conns)
}

// floodOf sends lines without end on several connections, and reads the answers.
func floodOf(lines string) func(*arena, *testing.T, func()) {
	return func(a *arena, t *testing.T, during func()) {
		conns, err := a.dialAs(badUser, 8)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var answered atomic.Int64
		for i, conn := range conns {
			wg.Go(func() {
				io.Copy(countLines{&answered}, conn)
			})
			wg.Go(func() {
				many := severalTimes(lines, i)
				for {
					if _, err := conn.Write(many); err != nil {
						return
					}
				}
			})
		}
		start := time.Now()
		during()
		n := answered.Load()
		t.Logf("measured: %.0f lines of answers a second", float64(n)/time.Since(start).Seconds())
		closeAll(conns)
		awaitAll(t, patience, &wg, "reads and writes to end on closed connections", nil)
	}
}

// severalTimes repeats lines, and replaces each % by a number.
func severalTimes(lines string, conn int) (all []byte) {
	for i := range 100 {
		all = append(all, strings.ReplaceAll(lines, "%", strconv.Itoa(100*conn+i))...)
	}
	return all
}

// countLines counts the lines that are written to it.
type countLines struct{ n *atomic.Int64 }

func (c countLines) Write(b []byte) (int, error) {
	c.n.Add(int64(bytes.Count(b, []byte{'\n'})))
	return len(b), nil
}
