package daemon

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/redlockd/redlockd/daemon/config"
	"github.com/redlockd/redlockd/daemon/daemontest"
	"github.com/redlockd/redlockd/daemon/metrics"
	"github.com/redlockd/redlockd/daemon/session"
)

// Connections for metrics do not use the descriptors that the daemon keeps for nodes.
func TestDescriptorsKeptFromScrapers(t *testing.T) {
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().(*net.TCPAddr)
	free.Close()
	d := startDaemon(t, 3, func(c *config.Config) { c.Metrics = &config.Metrics{Address: addr.String()} })
	d.dial().Say("LOCK a", granted5)
	// In another process: in this one their client ends would use descriptors as well.
	crowd := exec.Command("bash", "-c", fmt.Sprintf(`read; for i in {20..%d}; do eval "exec $i<>/dev/tcp/127.0.0.1/%d"; done; echo; read`, 19+metrics.MaxConnections, addr.Port))
	in, inErr := crowd.StdinPipe()
	out, outErr := crowd.StdoutPipe()
	if err := errors.Join(inErr, outErr, crowd.Start()); err != nil {
		t.Fatal(err)
	}
	defer crowd.Wait()
	defer in.Close()
	kept := session.NewHost(session.HostOptions{Config: d.Cfg, Log: hclog.NewNullLogger(), KeptFDs: metrics.MaxConnections}).KeptDescriptors()
	restore := allowDescriptors(t, kept-1) // as if clients used all descriptors that are not kept
	defer restore()
	fmt.Fprintln(in)
	out.(*os.File).SetReadDeadline(time.Now().Add(daemontest.Patience))
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	daemontest.Eventually(t, "all connections are accepted", func() bool { return countAccepted(addr.Port) == metrics.MaxConnections })
	if left := session.DescriptorsLeft(); left < 4*3 {
		t.Errorf("%d descriptors are left for three nodes", left)
	}
}

// countAccepted returns how many connections to a port of this process are accepted. It looks at the
// sockets: the number of free descriptors changes when an earlier test or the daemon closes a file.
func countAccepted(port int) (n int) {
	for fd := range 1 << 12 {
		address, err := unix.Getsockname(fd)
		if tcp, ok := address.(*unix.SockaddrInet4); err != nil || !ok || tcp.Port != port {
			continue
		}
		if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && listens == 0 {
			n++
		}
	}
	return n
}

func setFiles(t *testing.T, n uint64) (restore func()) {
	t.Helper()
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(limit syscall.Rlimit) {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	set(syscall.Rlimit{Cur: n, Max: before.Max})
	restored := false
	restore = func() {
		if !restored {
			restored = true
			set(before)
		}
	}
	t.Cleanup(restore)
	return restore
}

// allowDescriptors limits the process to n more descriptors. It first fills gaps between open ones,
// which earlier tests may have left.
func allowDescriptors(t *testing.T, n int) (restore func()) {
	t.Helper()
	fillDescriptors(t)
	var now syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &now); err != nil {
		t.Fatal(err)
	}
	return setFiles(t, now.Cur-uint64(session.DescriptorsLeft()-n))
}

// fillDescriptors uses all free descriptors below the highest open one.
func fillDescriptors(t *testing.T) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	highest := 0
	for _, entry := range open {
		if fd, err := strconv.Atoi(entry.Name()); err == nil {
			highest = max(highest, fd)
		}
	}
	for fd := 0; fd < highest; {
		file, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { file.Close() })
		fd = int(file.Fd())
	}
}
