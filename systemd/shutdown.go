package systemd

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// stateTimeout bounds how long SystemStops waits for systemctl.
const stateTimeout = 2 * time.Second

// SystemStops reports whether the manager stops the whole host, not only this service. It asks
// systemctl, because the manager does not say so in its messages.
func (m *Manager) SystemStops() (bool, error) {
	if !m.Listens() {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), stateTimeout)
	defer cancel()
	state, err := exec.CommandContext(ctx, "systemctl", "is-system-running").Output() // exits with 1 unless the state is "running"
	for isTerminated(err) && ctx.Err() == nil {
		state, err = exec.CommandContext(ctx, "systemctl", "is-system-running").Output()
	}
	switch word := strings.TrimSpace(string(state)); {
	case word == "" && err != nil:
		return false, fmt.Errorf("systemctl is-system-running: %w", err)
	case word == "offline", word == "unknown":
		return false, fmt.Errorf("systemctl is-system-running says %q", word)
	default:
		return word == "stopping", nil
	}
}

// isTerminated reports whether SIGTERM ended the program: systemd sends it to every process of a
// service that it stops, also to one that has just started.
func isTerminated(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGTERM
}
