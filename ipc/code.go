package ipc

import "fmt"

// Code says why a request failed. Codes are never renamed within a version of
// the protocol.
type Code string

// The codes of the protocol. SYNTAX to TOOLONG are the parser's.
const (
	CodeSyntax    Code = "SYNTAX"    // not of the form of a request
	CodeVerb      Code = "VERB"      // no such verb
	CodeName      Code = "NAME"      // not a lock name
	CodeOption    Code = "OPTION"    // no such option, not with this verb, or not such a value
	CodeTooLong   Code = "TOOLONG"   // a line of more than MaxLine bytes
	CodeHeld      Code = "HELD"      // somebody else held it for all of wait
	CodeNoQuorum  Code = "NOQUORUM"  // too few nodes could vote
	CodeCancelled Code = "CANCELLED" // by CANCEL
	CodeNotHeld   Code = "NOTHELD"   // not held, and not lost
	CodeLost      Code = "LOST"      // the lease was lost before
	CodeAlready   Code = "ALREADY"   // held by the same owner
	CodeDeadlock  Code = "DEADLOCK"  // waiting would close a cycle
	CodeDenied    Code = "DENIED"    // not allowed for this user
	CodeLimit     Code = "LIMIT"     // a limit is reached
	CodeShutdown  Code = "SHUTDOWN"  // the daemon is stopping
	CodeInternal  Code = "INTERNAL"  // a defect, logged
)

// Error is why a line could not be understood: the code and text of the answer
// to it.
type Error struct {
	Code Code
	Text string
}

func (e *Error) Error() string { return string(e.Code) + ": " + e.Text }

// Errorf returns an *Error. Its type is error, so that a nil *Error never becomes an error that is not nil.
func Errorf(code Code, format string, args ...any) error {
	return &Error{Code: code, Text: fmt.Sprintf(format, args...)}
}

// quote shows a word of a request in an error's text, its beginning if it is long.
func quote(word string) string {
	const most = 40
	if len(word) <= most {
		return fmt.Sprintf("%q", word)
	}
	return fmt.Sprintf("%q...", word[:most])
}
