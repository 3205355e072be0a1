package statefile

import (
	"errors"
	"runtime"
	"runtime/debug"
)

// errShort says that a file was truncated. Only root and the daemon's user can do that.
var errShort = errors.New("somebody cut it short")

// guarded calls do, which touches mappings on this goroutine only. If a mapped file was truncated,
// the kernel sends SIGBUS to the thread that touches it, which would end the process. guarded
// returns errShort instead.
func guarded(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch what := recover().(type) {
		case nil:
		case addressError:
			err = errShort
		default:
			panic(what) // a bug
		}
	}()
	return do()
}

// addressError is the type of the panic after a fault at an address that is not near nil.
type addressError interface {
	runtime.Error
	Addr() uintptr
}
