package config

import "fmt"

// redacted is what every method of a Secret except Reveal shows.
const redacted = "[redacted]"

// Secret is a password that no log line and no error can show: every way of
// printing it gives "[redacted]". The zero Secret is the empty password.
type Secret struct {
	value *string // a pointer, so that even reflection only prints an address
}

// NewSecret wraps value.
func NewSecret(value string) Secret { return Secret{&value} }

// Reveal returns the password, for the code that sends it to a node.
func (s Secret) Reveal() string {
	if s.value == nil {
		return ""
	}
	return *s.value
}

// String hides the password.
func (s Secret) String() string { return redacted }

// GoString hides the password from %#v.
func (s Secret) GoString() string { return redacted }

// Format hides the password from every verb, also from those that ignore String.
func (s Secret) Format(f fmt.State, _ rune) { fmt.Fprint(f, redacted) }

// MarshalText hides the password from JSON and similar encodings.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
