package statefile

import (
	"errors"
	"runtime"
	"runtime/debug"
)

// errShort: a file is no longer as long as it was made. Only root and our own user can
// do that to it.
var errShort = errors.New("a file in use was cut short by somebody")

// guarded calls do, which touches mappings, on this goroutine alone. The kernel has no
// other way to say that a file behind one was cut short than a fault of whoever touches
// what is gone (SIGBUS), of which the process would die: it is errShort.
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

// addressError is the panic of a fault at an address that is not nil, or near it.
type addressError interface {
	runtime.Error
	Addr() uintptr
}
