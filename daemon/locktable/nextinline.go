package locktable

// An exclusive waiter waits in the daemon for the readers of this host, and sends nothing to
// the nodes meanwhile. As soon as only holders block it, the daemon enters it into
// the nodes' wait queues, so that readers of other hosts do not overtake it. Earlier, the nodes would also refuse readers of
// this host that are before it.

// notifyNextInLine closes nextInLine of the first waiter of each name if it is next in line now.
func (q *Queue) notifyNextInLine(names []string) {
	visited := newVisited(names)
	for _, name := range names {
		for w := range q.names[name].all() {
			if w.isReady {
				continue
			}
			if w.nextInLine != nil && !isClosed(w.nextInLine) && visited.first(w) && q.isNextInLine(w) {
				close(w.nextInLine)
			}
			break
		}
	}
}

// isNextInLine reports whether all blockers of w hold their locks, and at least one of them shares
// its lock.
func (q *Queue) isNextInLine(w *Waiter) bool {
	shared := false
	for _, name := range w.Names {
		for ahead := range w.blockers(q.names[name]) {
			if !ahead.isGranted() {
				return false
			}
			shared = shared || ahead.mode().Shared
		}
	}
	return shared
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
