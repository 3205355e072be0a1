package systemd

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"
)

// Manager is the service manager that started this process, if one did. Its methods may be called
// from any goroutine. A nil Manager means that there is none.
type Manager struct {
	notifier *notifier
	watchdog time.Duration
	storeMax int // number of descriptors that the manager keeps

	unreadMessages atomic.Int32 // messages of notifyWithin that the manager has not read yet

	mu        sync.Mutex // guards the fields below; never held during I/O; no other mutex is taken inside it
	passedFDs []*os.File // passed descriptors that were not taken yet, by name
	status    string     // the status that was last sent
}

// FromEnvironment reads the manager's variables in the environment, and takes the descriptors that
// it passed, or the earlier process that has replaced itself by this one (Replace). Call it once per
// process. If WATCHDOG_USEC or FDSTORE is not a number, it returns an error.
func FromEnvironment() (*Manager, error) {
	checkPidfd()
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("the service manager's WATCHDOG_USEC=%q: %w", os.Getenv("WATCHDOG_USEC"), err)
	}
	storeMax, err := storeMaxFromEnvironment()
	if err != nil {
		return nil, err
	}
	replaced, err := passedByReplace()
	if err != nil {
		return nil, err
	}
	return &Manager{notifier: notifierFromEnvironment(), watchdog: watchdog, storeMax: storeMax, passedFDs: append(activation.Files(true), replaced...)}, nil
}

// checkPidfd lets package os check whether pidfds work, which it does once, at the latest when it
// starts the first program. For that it clones a child that shares this process's memory, with the
// signal handlers of this process. systemd sends SIGTERM to all processes of a service that it stops.
// A SIGTERM for that child is reported to this process as well, and redlockd would end without
// a drain, because a second SIGTERM ends it at once.
func checkPidfd() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		self.Release()
	}
}

// storeMaxFromEnvironment reads FDSTORE. systemd sets it from version 254 on; for earlier versions
// redlockd.service sets it.
func storeMaxFromEnvironment() (int, error) {
	text := os.Getenv("FDSTORE")
	if text == "" {
		return 0, nil
	}
	most, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("the service manager's FDSTORE=%q is not the number of descriptors in FileDescriptorStoreMax=: %w", text, err)
	}
	return int(most), nil
}

// Listens reports whether there is a manager that reads messages.
func (m *Manager) Listens() bool { return m != nil && m.notifier != nil }

// Watchdog returns how long the manager waits for KeepAlive before it kills this process, or 0 if
// it does not.
func (m *Manager) Watchdog() time.Duration {
	if m == nil {
		return 0
	}
	return m.watchdog
}

// Ready tells the manager that the service is up, or that a reload has ended.
func (m *Manager) Ready() error { return m.notifyWithin(daemon.SdNotifyReady) }

// Reloading tells the manager that a reload has begun. Ready ends it. Type=notify-reload
// distinguishes reloads by the time in the message.
func (m *Manager) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	return m.notifyWithin(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/int64(time.Microsecond)))
}

// Stopping tells the manager that the shutdown has begun.
func (m *Manager) Stopping() error { return m.notifyWithin(daemon.SdNotifyStopping) }

// KeepAlive tells the watchdog that this process works.
func (m *Manager) KeepAlive() error { return m.notifyUnlessBehind(daemon.SdNotifyWatchdog) }

// Status sets the line that systemctl status shows. If it has not changed, nothing is sent.
func (m *Manager) Status(line string) error {
	if !m.Listens() {
		return nil
	}
	line = strings.ReplaceAll(line, "\n", " ")
	m.mu.Lock()
	before := m.status
	m.status = line
	m.mu.Unlock()
	if before == line {
		return nil
	}
	err := m.notifyUnlessBehind("STATUS=" + line)
	if err != nil {
		m.mu.Lock()
		m.status = "" // unknown, because the manager may not have read it
		m.mu.Unlock()
	}
	return err
}

// notifyUnlessBehind is notifyWithin for repeated messages. While the manager has earlier messages
// to read, it sends nothing.
func (m *Manager) notifyUnlessBehind(state string) error {
	if m.Listens() && m.unreadMessages.Load() > 0 {
		return notifyError(state, errHangs)
	}
	return m.notifyWithin(state)
}

// notifyTimeout is how long a caller waits for the manager to read a message.
const notifyTimeout = time.Second

// errHangs means that the manager does not read now. It will get the message when it reads again.
var errHangs = errors.New("it reads no messages: it hangs")

// notifyWithin is notify with a time limit. The process must be able to stop and to handle signals
// even if the manager hangs.
func (m *Manager) notifyWithin(state string) error {
	if !m.Listens() {
		return nil
	}
	said := make(chan error, 1)
	go func() { said <- m.notify(state) }() // ends when the manager reads; nothing waits for it
	select {
	case err := <-said:
		return err
	case <-time.After(notifyTimeout):
	}
	m.unreadMessages.Add(1) // only now: a message that another goroutine is sending does not mean that the manager hangs
	go func() {
		<-said
		m.unreadMessages.Add(-1)
	}()
	return notifyError(state, errHangs)
}

// notify waits until the manager has read the message, for ever if it hangs.
func (m *Manager) notify(state string, fds ...int) error {
	if m == nil {
		return nil
	}
	return notifyError(state, m.notifier.send(state, fds...))
}

// notifyError returns the error of a message, or nil if err is nil.
func notifyError(state string, err error) error {
	if err == nil {
		return nil
	}
	word, _, _ := strings.Cut(state, "=")
	return fmt.Errorf("telling the service manager %s: %w", word, err)
}
