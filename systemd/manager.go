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

// Manager is the service manager that started this process, if one did. Its
// methods may be called from any goroutine. A nil Manager is no manager.
type Manager struct {
	notifier *notifier
	watchdog time.Duration
	storeMax int // descriptors that the manager keeps

	unsaid atomic.Int32 // messages of say that the manager has not taken in time, nor since

	mu     sync.Mutex // guards what follows; never held across I/O
	handed []*os.File // descriptors that nobody took yet, by name
	status string     // the last one that was said
}

// FromEnvironment reads what the manager says in the environment, and takes the
// descriptors that it handed over: once in a process. An error is a WATCHDOG_USEC or
// an FDSTORE that is no number, from whoever set it.
func FromEnvironment() (*Manager, error) {
	watchdog, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return nil, fmt.Errorf("the service manager's WATCHDOG_USEC=%q: %w", os.Getenv("WATCHDOG_USEC"), err)
	}
	storeMax, err := storeMaxFromEnvironment()
	if err != nil {
		return nil, err
	}
	return &Manager{notifier: notifierFromEnvironment(), watchdog: watchdog, storeMax: storeMax, handed: activation.Files(true)}, nil
}

// storeMaxFromEnvironment: systemd sets FDSTORE from 254 on, redlockd.service for
// those before.
func storeMaxFromEnvironment() (int, error) {
	text := os.Getenv("FDSTORE")
	if text == "" {
		return 0, nil
	}
	most, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("the service manager's FDSTORE=%q, wanted the number of descriptors in FileDescriptorStoreMax=: %w", text, err)
	}
	return int(most), nil
}

// Listens tells whether there is a manager that wants to hear how the service is.
func (m *Manager) Listens() bool { return m != nil && m.notifier != nil }

// Watchdog is how long the manager waits for KeepAlive before it kills this
// process; 0 where it does not.
func (m *Manager) Watchdog() time.Duration {
	if m == nil {
		return 0
	}
	return m.watchdog
}

// Ready says that the service is up, or that a reload is over.
func (m *Manager) Ready() error { return m.say(daemon.SdNotifyReady) }

// Reloading says that a reload has begun, which Ready ends. The time in it is what
// Type=notify-reload tells this reload from an earlier one by.
func (m *Manager) Reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return err
	}
	return m.say(fmt.Sprintf("%s\nMONOTONIC_USEC=%d", daemon.SdNotifyReloading, now.Nano()/int64(time.Microsecond)))
}

// Stopping says that the shutdown has begun.
func (m *Manager) Stopping() error { return m.say(daemon.SdNotifyStopping) }

// KeepAlive tells the watchdog that this process does what it is for.
func (m *Manager) KeepAlive() error { return m.mention(daemon.SdNotifyWatchdog) }

// Status sets the line that systemctl status shows. Nothing is sent where it is
// the same as before.
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
	err := m.mention("STATUS=" + line)
	if err != nil {
		m.mu.Lock()
		m.status = "" // what was said, if anything, is not known
		m.mu.Unlock()
	}
	return err
}

// mention is say for what is said again and again: nothing of it is on its way behind what
// the manager has not taken yet.
func (m *Manager) mention(state string) error {
	if m.Listens() && m.unsaid.Load() > 0 {
		return told(state, errHangs)
	}
	return m.say(state)
}

// patience is how long whoever says something waits for the manager to take it.
const patience = time.Second

// errHangs: what was said is heard when the manager reads again.
var errHangs = errors.New("it does not read what it is told: it hangs")

// say is notify for words, for which nobody waits for long: the process is to stop, and to
// hear of signals, also where the manager hangs.
func (m *Manager) say(state string) error {
	if !m.Listens() {
		return nil
	}
	said := make(chan error, 1)
	go func() { said <- m.notify(state) }() // ends when the manager reads, for which nobody waits
	select {
	case err := <-said:
		return err
	case <-time.After(patience):
	}
	m.unsaid.Add(1) // not before: what another goroutine is just saying is no sign of that
	go func() {
		<-said
		m.unsaid.Add(-1)
	}()
	return told(state, errHangs)
}

// notify waits until the manager has taken the message, for ever where it hangs.
func (m *Manager) notify(state string, fds ...int) error {
	if m == nil {
		return nil
	}
	return told(state, m.notifier.send(state, fds...))
}

// told is the error of a message; nil for nil.
func told(state string, err error) error {
	if err == nil {
		return nil
	}
	word, _, _ := strings.Cut(state, "=")
	return fmt.Errorf("telling the service manager %s: %w", word, err)
}
