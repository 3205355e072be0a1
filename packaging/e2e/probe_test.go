//go:build linux

package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// A separate process measures the good user and does nothing else. In the test's process, its
// goroutines would wait for those of the bad user.

// probeSocket is the variable with the socket of the daemon to measure. If it is set, this program
// is the prober.
const probeSocket = "REDLOCKD_PROBE"

// latencies are the latencies of one user.
type latencies struct{ P50, P99, Max time.Duration }

func latenciesOf(took []time.Duration) latencies {
	slices.Sort(took)
	return latencies{took[len(took)/2], took[len(took)*99/100], took[len(took)-1]}
}

func (l latencies) String() string {
	return fmt.Sprintf("p50 %v p99 %v", l.P50.Round(time.Microsecond), l.P99.Round(time.Microsecond))
}

// typical returns the median of several rounds, because one round can be slow on a busy machine.
func typical(rounds []latencies) latencies {
	of := func(figure func(latencies) time.Duration) time.Duration {
		var all []time.Duration
		for _, l := range rounds {
			all = append(all, figure(l))
		}
		return median(all)
	}
	return latencies{
		of(func(l latencies) time.Duration { return l.P50 }),
		of(func(l latencies) time.Duration { return l.P99 }),
		of(func(l latencies) time.Duration { return l.Max }),
	}
}

// prober is the process that measures.
type prober struct {
	in   io.Writer
	out  *bufio.Scanner
	pipe *os.File // the read end of out
}

// startProber starts the process. It ends with the test.
func startProber(t *testing.T, socket string) *prober {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), probeSocket+"="+socket)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		defer time.AfterFunc(2*patience, func() { cmd.Process.Kill() }).Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the process that measures: %v", err)
		}
	})
	return &prober{in, bufio.NewScanner(out), out.(*os.File)}
}

// measure runs a number of rounds.
func (p *prober) measure(t *testing.T, what string, rounds int) latencies {
	t.Helper()
	var all []latencies
	for range rounds {
		var l latencies
		fmt.Fprintln(p.in, what)
		p.pipe.SetReadDeadline(time.Now().Add(2 * patience)) // its own requests have a shorter limit
		if !p.out.Scan() {
			t.Fatalf("the process that measures has ended, or hangs: %v", p.out.Err())
		}
		if err := json.Unmarshal(p.out.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	return typical(all)
}

// The kinds of rounds.
const (
	probePairs    = "pairs"    // each is a LOCK and an UNLOCK, one after the other
	probeConnects = "connects" // each is to connect, to PING, and to disconnect
)

// runProber is the main function of the prober. It returns the exit status.
func runProber(socket string) int {
	err := becomeForGood(goodUser)
	p := probing{socket: socket}
	for lines := bufio.NewScanner(os.Stdin); err == nil && lines.Scan(); {
		var took []time.Duration
		if lines.Text() == probePairs {
			took, err = p.pairs(50)
		} else {
			took, err = p.connects(25)
		}
		if err == nil {
			err = json.NewEncoder(os.Stdout).Encode(latenciesOf(took))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measuring:", err)
		return 1
	}
	return 0
}

// becomeForGood changes the identity of all threads.
func becomeForGood(uid int) error {
	if err := syscall.Setgroups(nil); err != nil {
		return err
	}
	if err := syscall.Setresgid(uid, uid, uid); err != nil {
		return err
	}
	return syscall.Setresuid(uid, uid, uid)
}

// probing is the prober's connection.
type probing struct {
	socket string
	conn   net.Conn
	in     *bufio.Reader
	turn   int
}

func (p *probing) pairs(n int) (took []time.Duration, err error) {
	if p.conn == nil {
		if err := p.connect(); err != nil {
			return nil, err
		}
	}
	for range n {
		p.turn++
		name := "good/" + strconv.Itoa(p.turn)
		for _, verb := range []string{"LOCK ", "UNLOCK "} {
			start := time.Now()
			if err := p.ask(verb + name); err != nil {
				return nil, err
			}
			took = append(took, time.Since(start))
		}
	}
	return took, nil
}

func (p *probing) connects(n int) (took []time.Duration, err error) {
	for range n {
		other := probing{socket: p.socket}
		start := time.Now()
		if err := other.connect(); err != nil {
			return nil, err
		}
		if err := other.ask("PING"); err != nil {
			return nil, err
		}
		took = append(took, time.Since(start))
		other.conn.Close()
	}
	return took, nil
}

func (p *probing) connect() (err error) {
	p.conn, err = dialPatiently(p.socket)
	if err == nil {
		p.in = bufio.NewReader(p.conn)
	}
	return err
}

func (p *probing) ask(request string) error {
	p.conn.SetDeadline(time.Now().Add(patience))
	if _, err := io.WriteString(p.conn, request+"\n"); err != nil {
		return err
	}
	answer, err := p.in.ReadString('\n')
	if err == nil && answer[:2] != "OK" {
		err = fmt.Errorf("%s: %s", request, answer)
	}
	return err
}
