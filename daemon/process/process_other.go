//go:build !linux

package process

// Without pidfds a later process with the same id could be taken for the one that is watched. So
// hold=pid is refused.

// Open always fails.
func Open(int) (fd int, err error) { return 0, ErrNoPIDFD }

// IsAlive is not called: there is no pidfd.
func IsAlive(int) bool { return false }

// Close is not called: there is no pidfd.
func Close(int) {}

// FactsOf always fails.
func FactsOf(int) (f Facts, err error) { return f, ErrNoPIDFD }

func statusOf(int) (f Facts, err error) { return f, ErrNoPIDFD }

// Watcher has nothing to watch.
type Watcher struct{}

// NewWatcher makes a Watcher.
func NewWatcher() (*Watcher, error) { return &Watcher{}, nil }

// Watch always fails.
func (*Watcher) Watch(int, func()) error { return ErrNoPIDFD }

// Unwatch is not called: nothing is watched.
func (*Watcher) Unwatch(int) {}

// Stop has nothing to end.
func (*Watcher) Stop() {}
