package server

import "errors"

// Causes of the end of a Call's context.
var (
	ErrCancelled = errors.New("cancelled by the client")
	ErrGone      = errors.New("the client is gone")
	ErrShutdown  = errors.New("the daemon is stopping")
)

// ErrSlow is why a connection was cut whose client does not read its answers.
var ErrSlow = errors.New("the client does not read its answers")

// ErrLate is why a connection is ended whose client has begun a line and not ended
// it, and the cause of the end of what it was waiting for.
var ErrLate = errors.New("the client does not end the line that it has begun")
