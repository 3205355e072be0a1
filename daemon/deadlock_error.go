package daemon

import (
	"errors"
	"fmt"
	"strings"
)

// deadlockError is a cycle among owners on this host.
type deadlockError struct{ cycle []waitsFor }

var errDeadlock = errors.New("deadlock")

func (e *deadlockError) Is(target error) bool { return target == errDeadlock }

// Error tells each step of the cycle, the asker's first.
func (e *deadlockError) Error() string {
	steps := make([]string, len(e.cycle))
	for i, step := range e.cycle {
		steps[i] = step.String()
	}
	return fmt.Sprintf("%s: %v: %s: give back one of them first, and take them in the same order everywhere",
		e.cycle[0].name, errDeadlock, strings.Join(steps, "; "))
}

func (w waitsFor) String() string {
	verb := "asked for earlier"
	if w.held {
		verb = "holds"
	}
	return fmt.Sprintf("%v waits for %s, which %v %s", w.waiter, w.name, w.ahead, verb)
}

// String names who asked, for people.
func (a *asker) String() string {
	var more []string
	if a.pid != 0 { // 0: it cannot be seen, as of another container
		more = append(more, fmt.Sprintf("pid %d", a.pid))
	}
	if a.owner != "" {
		more = append(more, "owner "+a.owner)
	}
	if more == nil {
		return a.user
	}
	return fmt.Sprintf("%s (%s)", a.user, strings.Join(more, ", "))
}
