package statefile

import (
	"errors"
	"runtime"
	"runtime/debug"
)

// errShort says that a file is shorter than it was made. Only root and the daemon's user can
// do that.
var errShort = errors.New("somebody cut it short")

// guarded calls do, which touches mappings on this goroutine only. If a file behind a mapping
// was cut short, the kernel sends SIGBUS to the thread that touches it, and the process would
// die. guarded returns errShort instead.
func guarded(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch what := recover().(type) {
		case nil:
		case addressError:
			err = errShort
		default:
			panic(what) // a defect
		}
	}()
	return do()
}

// addressError is the panic after a fault at an address that is not nil or near it.
type addressError interface {
	runtime.Error
	Addr() uintptr
}
