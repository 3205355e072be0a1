//go:build !linux

package daemon

// Without pidfds no process can be watched so that it is not taken for the next
// one with its number: hold=pid is refused.

func openPID(int) (fd int, err error)  { return 0, errNoPIDFD }
func isAlive(int) bool                 { return false }
func closeFD(int)                      {}
func factsOf(int) (f facts, err error) { return f, errNoPIDFD }

// watcher has nothing to watch.
type watcher struct{ closed chan struct{} }

func newWatcher() (watcher, error)    { return watcher{make(chan struct{})}, nil }
func (w watcher) add(int) error       { return errNoPIDFD }
func (w watcher) remove(int)          {}
func (w watcher) close()              { close(w.closed) }
func (w watcher) wait() ([]int, bool) { <-w.closed; return nil, false }
