package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// delayCommand is the first argument of this program if it is the network process.
const delayCommand = "network"

// network is a process that forwards connections to the nodes. It delays all bytes by half a round
// trip in each direction, for all contenders alike.
type network struct {
	*child
	networkFigures
	oneWay time.Duration // that the process adds to its own time
}

// networkFigures are measurements of the idle network.
type networkFigures struct {
	Wanted float64 `json:"wanted_ms"`
	P50    float64 `json:"round_trip_p50_ms"` // of a PING to a node and its reply
	P99    float64 `json:"round_trip_p99_ms"`
	Direct float64 `json:"direct_p50_ms"` // of a PING without the network
	CPU    float64 `json:"cpu_us"`        // CPU time of the process for a PING and its reply
}

// pings is the number of round trips to measure the network with.
const pings = 300

// startNetwork puts a network between all contenders and the nodes. This program's own queries do
// not pass it. It first measures the time of forwarding, and shortens the delay by that.
func startNetwork(ctx context.Context, dir string, rtt time.Duration, nodes []*node) (*network, error) {
	rough, err := launchNetwork(dir, rtt/2, nodes)
	if err != nil {
		return nil, err
	}
	err = rough.measure(ctx, rtt, nodes[0])
	rough.kill()
	if err != nil {
		return nil, err
	}
	excess := time.Duration((rough.P50 - milliseconds(rtt)) * float64(time.Millisecond))
	n, err := launchNetwork(dir, max(0, (rtt-excess)/2), nodes)
	if err != nil {
		return nil, err
	}
	if err := n.measure(ctx, rtt, nodes[0]); err != nil {
		n.kill()
		return nil, err
	}
	return n, nil
}

// launchNetwork puts a network before the nodes: it sets the addresses of the process as theirs.
func launchNetwork(dir string, oneWay time.Duration, nodes []*node) (*network, error) {
	directly(nodes)
	n, forwarding, err := forward(dir, delayCommand, oneWay, addressesOf(nodes))
	for i, address := range forwarding {
		nodes[i].via = address
	}
	return n, err
}

// forward starts the process, and returns an address that it forwards to each of the addresses.
func forward(dir, name string, oneWay time.Duration, addresses []string) (_ *network, forwarding []string, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	// Real networks are not slower if the CPUs are busy, so the process has a high priority.
	argv := append([]string{"nice", "-n", "-15", self, delayCommand, oneWay.String()}, addresses...)
	c, err := startChild(dir, name, argv...)
	if err != nil {
		return nil, nil, err
	}
	n := &network{child: c, oneWay: oneWay}
	err = n.ready(10*time.Second, func() (err error) {
		forwarding, err = n.forwarding(len(addresses))
		return err
	})
	if err != nil {
		n.kill()
		return nil, nil, err
	}
	return n, forwarding, nil
}

// forwarding reads the addresses that the process has printed; there must be that many.
func (n *network) forwarding(count int) ([]string, error) {
	text, err := os.ReadFile(n.log)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for line := range strings.Lines(string(text)) {
		if _, address, ok := strings.Cut(strings.TrimSpace(line), addressMark); ok {
			addresses = append(addresses, address)
		}
	}
	if len(addresses) != count {
		return nil, fmt.Errorf("%d of %d addresses", len(addresses), count)
	}
	return addresses, nil
}

// measure measures round trips to one node, through the network and without it.
func (n *network) measure(ctx context.Context, rtt time.Duration, node *node) error {
	direct, err := pingTimes(ctx, node.Addr())
	if err != nil {
		return err
	}
	before, err := threadsCPU(n.pid())
	if err != nil {
		return err
	}
	through, err := pingTimes(ctx, node.via)
	if err != nil {
		return err
	}
	after, err := threadsCPU(n.pid())
	n.networkFigures = networkFigures{
		Wanted: milliseconds(rtt), P50: milliseconds(quantile(through, 0.5)), P99: milliseconds(quantile(through, 0.99)),
		Direct: milliseconds(quantile(direct, 0.5)), CPU: 1000 * milliseconds(after-before) / pings,
	}
	node.looks += 2 * pings
	return err
}

// pingTimes returns how long PINGs took, sorted. A thread waits for the replies in the kernel,
// because Go's poller would add to the time.
func pingTimes(ctx context.Context, address string) ([]time.Duration, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	file, err := conn.(*net.TCPConn).File() // a blocking descriptor
	conn.Close()
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if err := unix.SetsockoptTimeval(int(file.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 5}); err != nil {
		return nil, err
	}
	times := make([]time.Duration, pings)
	for i := range times {
		start := time.Now()
		if _, err := file.Write([]byte("PING\r\n")); err != nil {
			return nil, err
		}
		var reply [16]byte
		if n, err := file.Read(reply[:]); err != nil || string(reply[:n]) != "+PONG\r\n" {
			return nil, fmt.Errorf("PING of %s: %q, %v", address, reply[:n], err)
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times, nil
}

// addressMark precedes an address in the output of the process.
const addressMark = "forwards at "

// After SIGUSR1 the process drops all bytes to the daemons' listeners. It writes deafMark when that
// begins, and droppedMark when it has dropped something.
const (
	deafMark     = "drops messages\n"
	droppedMark  = "has dropped messages\n"
	listenerName = "redlockd-listener" // CLIENT SETNAME of a listener
)

// runNetwork is the main function of the process. Its arguments are the delay in one direction, and
// the addresses of the nodes. It ends only after an error, or when it is killed.
func runNetwork(args []string, stdout, stderr io.Writer) int {
	fail := func(err error) int {
		fmt.Fprintln(stderr, "bench network:", err)
		return 1
	}
	if len(args) < 2 {
		return fail(fmt.Errorf("want a delay and addresses, got %q", args))
	}
	oneWay, err := time.ParseDuration(args[0])
	if err != nil {
		return fail(err)
	}
	d, err := newDelay(oneWay)
	if err != nil {
		return fail(err)
	}
	d.output = stdout
	deafen := make(chan os.Signal, 1)
	signal.Notify(deafen, unix.SIGUSR1)
	go func() { // ends with the process
		<-deafen
		d.deaf.Store(true)
		fmt.Fprint(stdout, deafMark)
	}()
	for _, node := range args[1:] {
		address, err := d.listen(node)
		if err != nil {
			return fail(err)
		}
		fmt.Fprintf(stdout, "%s%s\n", addressMark, address)
	}
	return fail(d.run())
}

// delay forwards all connections in one thread, without Go's scheduler, which takes longer for a
// message than the rest. All bytes are in one queue, because with a constant delay they are due in
// the order of arrival.
type delay struct {
	oneWay    time.Duration
	poll      int                        // epoll
	timer     int                        // fires when the head of queue is due
	listeners map[int]unix.SockaddrInet4 // by descriptor, with the node's address
	conns     map[int]*side
	queue     []parcel
	armed     int64 // due time for which the timer is set; 0: it is not set
	buffer    []byte
	deaf      atomic.Bool // drop all bytes to listeners
	dropping  bool        // it has dropped some
	output    io.Writer   // for deafMark and droppedMark
}

// side is one end of a forwarded connection.
type side struct {
	fd       int
	other    *side
	ended    bool // no more bytes are written to it
	listener bool // a daemon's connection on which a node sends messages without a question
}

// parcel is data for a side. Without bytes, it is the end of the input.
type parcel struct {
	due  int64 // on CLOCK_MONOTONIC, ns
	to   *side
	data []byte
}

func newDelay(oneWay time.Duration) (*delay, error) {
	d := &delay{oneWay: oneWay, listeners: map[int]unix.SockaddrInet4{}, conns: map[int]*side{}, buffer: make([]byte, 64<<10)}
	var err error
	if d.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("epoll_create: %w", err)
	}
	if d.timer, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return nil, fmt.Errorf("timerfd_create: %w", err)
	}
	return d, d.watch(d.timer)
}

func (d *delay) watch(fd int) error {
	return unix.EpollCtl(d.poll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// listen returns the address that clients use for a node.
func (d *delay) listen(node string) (string, error) {
	address, err := net.ResolveTCPAddr("tcp4", node)
	if err != nil {
		return "", err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return "", err
	}
	loopback := [4]byte{127, 0, 0, 1}
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: loopback}), unix.Listen(fd, 1024), d.watch(fd)); err != nil {
		return "", err
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		return "", err
	}
	d.listeners[fd] = unix.SockaddrInet4{Addr: [4]byte(address.IP.To4()), Port: address.Port}
	return fmt.Sprintf("127.0.0.1:%d", own.(*unix.SockaddrInet4).Port), nil
}

// run forwards until an error that does not belong to a connection.
func (d *delay) run() error {
	runtime.LockOSThread()
	events := make([]unix.EpollEvent, 256)
	for {
		n, err := unix.EpollWait(d.poll, events, -1)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for _, event := range events[:max(n, 0)] {
			if err := d.handle(int(event.Fd)); err != nil {
				return err
			}
		}
		if err := d.deliver(); err != nil {
			return err
		}
	}
}

func (d *delay) handle(fd int) error {
	if node, ok := d.listeners[fd]; ok {
		return d.accept(fd, node)
	}
	if fd == d.timer {
		var rung [8]byte
		_, _ = unix.Read(fd, rung[:]) // only the event matters
		d.armed = 0
		return nil
	}
	from, ok := d.conns[fd]
	if !ok {
		return nil // it was closed after the event
	}
	n, err := unix.Read(fd, d.buffer)
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		return nil
	case err != nil || n == 0:
		delete(d.conns, fd)
		if err := unix.EpollCtl(d.poll, unix.EPOLL_CTL_DEL, fd, nil); err != nil {
			return err
		}
		n = 0
	}
	if bytes.Contains(d.buffer[:n], []byte(listenerName)) {
		from.listener = true
	}
	if n > 0 && from.other.listener && d.deaf.Load() {
		if !d.dropping {
			fmt.Fprint(d.output, droppedMark)
		}
		d.dropping = true
		return nil
	}
	now, err := monotonic()
	d.queue = append(d.queue, parcel{due: now + int64(d.oneWay), to: from.other, data: slices.Clone(d.buffer[:n])})
	return err
}

// accept connects a client with a node. If the node is down, the client's connection ends.
func (d *delay) accept(listener int, node unix.SockaddrInet4) error {
	client, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err != nil {
		return nil // the client has closed
	}
	server, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if err := unix.Connect(server, &node); err != nil {
		return errors.Join(unix.Close(server), unix.Close(client))
	}
	here, there := &side{fd: client}, &side{fd: server}
	here.other, there.other = there, here
	for _, s := range []*side{here, there} {
		d.conns[s.fd] = s
		err := errors.Join(unix.SetNonblock(s.fd, true), unix.SetsockoptInt(s.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1), d.watch(s.fd))
		if err != nil {
			return err
		}
	}
	return nil
}

// deliver forwards what is due, and sets the timer for the rest.
func (d *delay) deliver() error {
	now, err := monotonic()
	done := 0
	for done < len(d.queue) && d.queue[done].due <= now {
		d.queue[done].deliver()
		done++
	}
	if done > 0 {
		d.queue = slices.Delete(d.queue, 0, done)
	}
	if err != nil || len(d.queue) == 0 || d.armed == d.queue[0].due {
		return err
	}
	d.armed = d.queue[0].due
	return unix.TimerfdSettime(d.timer, unix.TFD_TIMER_ABSTIME, &unix.ItimerSpec{Value: unix.NsecToTimespec(d.armed)}, nil)
}

// deliver writes the bytes. If the receiver has closed, they are dropped.
func (p parcel) deliver() {
	if len(p.data) == 0 {
		p.to.end()
		return
	}
	for rest := p.data; len(rest) > 0; {
		n, err := unix.Write(p.to.fd, rest)
		switch {
		case err == nil:
			rest = rest[n:]
		case err == unix.EAGAIN: // everything waits for it, as with a full link
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(p.to.fd), Events: unix.POLLOUT}}, 1000)
		case err != unix.EINTR:
			return
		}
	}
}

// end forwards the end of input to the other side. After the second end it closes both sides.
func (s *side) end() {
	s.ended = true
	_ = unix.Shutdown(s.fd, unix.SHUT_WR) // fails only if the connection has ended
	if s.other.ended {
		_, _ = unix.Close(s.fd), unix.Close(s.other.fd)
	}
}

func monotonic() (int64, error) {
	var now unix.Timespec
	err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return now.Nano(), err
}
