package server

import "errors"

// These are causes of the end of a Call's context.
var (
	ErrCancelled = errors.New("cancelled by the client")
	ErrGone      = errors.New("the client is gone")
	ErrShutdown  = errors.New("the daemon is stopping")
)

// ErrSlow is why a connection was cut whose client does not read its answers.
var ErrSlow = errors.New("the client does not read its answers")

// ErrLate is why a connection was cut whose client began a line and did not end it in time. It is
// also the cause of the end of its calls' contexts.
var ErrLate = errors.New("the client did not end a line in time")
