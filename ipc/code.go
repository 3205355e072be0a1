package ipc

import "fmt"

// Code says why a request failed. A code is never renamed within a version of the protocol.
type Code string

// The codes of the protocol. The parser uses SYNTAX to TOOLONG.
const (
	CodeSyntax    Code = "SYNTAX"    // not the form of a request
	CodeVerb      Code = "VERB"      // no such verb
	CodeName      Code = "NAME"      // not a valid name of a lock
	CodeOption    Code = "OPTION"    // no such option, not valid with this verb, or an invalid value
	CodeTooLong   Code = "TOOLONG"   // a line of more than MaxLine bytes
	CodeHeld      Code = "HELD"      // another holder kept it for all of wait=
	CodeNoQuorum  Code = "NOQUORUM"  // too few nodes could vote
	CodeCancelled Code = "CANCELLED" // by CANCEL
	CodeNotHeld   Code = "NOTHELD"   // not held, and not lost
	CodeLost      Code = "LOST"      // the lease has been lost
	CodeAlready   Code = "ALREADY"   // the same owner holds it
	CodeDeadlock  Code = "DEADLOCK"  // waiting would close a cycle of waiters
	CodeDenied    Code = "DENIED"    // not allowed for this user
	CodeLimit     Code = "LIMIT"     // a limit is reached
	CodeShutdown  Code = "SHUTDOWN"  // the daemon is stopping
	CodeUnknown   Code = "UNKNOWN"   // a restart interrupted it, and its outcome is unknown
	CodeInternal  Code = "INTERNAL"  // a defect; the daemon logs it
)

// Error is the reason why a line is invalid: the code and text of the answer.
type Error struct {
	Code Code
	Text string
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Text }

// Errorf returns an *Error. The result has type error, because a nil *Error in an error is not nil.
func Errorf(code Code, format string, args ...any) error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// quote returns a word of a request for the text of an error. It cuts a long word.
func quote(word string) string {
	const most = 40
	if len(word) <= most {
		return fmt.Sprintf("%q", word)
	}
	return fmt.Sprintf("%q...", word[:most])
}
