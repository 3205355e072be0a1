package server

// Session handles the requests of one connection. The user of package server implements it. Its
// methods are called on the goroutine that reads the connection, and must not block: while one
// blocks, no other request of the connection begins.
type Session interface {
	// Begin starts a request. Requests begin in the order of arrival, but a request without a tag
	// begins only after the previous one without a tag is answered. Begin either answers and returns
	// nil, or returns the rest of the work. The server runs that on another goroutine, and it must
	// answer before it returns. Each request gets exactly one answer. If the session gives none, or
	// if Begin or the Work panics first, the server answers INTERNAL and reports the defect.
	Begin(call *Call) Work

	// InputEnded is called once: the client sends nothing more, or the server reads no more. If gone
	// is true, the client does not read either, and running requests have been cancelled with
	// ErrGone. If it is false, running requests go on, and are cancelled if the client closes.
	InputEnded(gone bool)

	// Close is called last, once: every Work has returned, all answers are written or cannot be, and
	// the connection is closed.
	Close()
}

// Work is the rest of a request that takes time.
type Work interface{ Run() }
