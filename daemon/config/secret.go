package config

import "fmt"

// redacted is what a Secret looks like to everyone but Reveal.
const redacted = "[redacted]"

// Secret is a password that no log line and no error can show: every way of
// printing it gives "[redacted]". The zero Secret is the empty password.
type Secret struct {
	value *string // behind a pointer: even reflection prints an address only
}

// NewSecret wraps value.
func NewSecret(value string) Secret { return Secret{&value} }

// Reveal is the password itself, for the one place that sends it.
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

// MarshalText hides the password from JSON and its like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
