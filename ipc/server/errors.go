package server

import "errors"

// Causes of the end of a Call's context.
var (
	ErrCancelled = errors.New("cancelled by the client")
	ErrGone      = errors.New("the client is gone")
	ErrShutdown  = errors.New("the daemon is stopping")
)

// ErrSlow is the reason for cutting a client that does not read its answers.
var ErrSlow = errors.New("the client does not read its answers")

// ErrLate is the reason for cutting a client that did not end a line in time. It is also the cause
// with which the contexts of its calls end.
var ErrLate = errors.New("the client did not end a line in time")
