package main

// textFlag is a flag whose value is any text. (With pflag's own the name of the value stands
// in backquotes in the usage, which shells show as they are when they complete flags.)
type textFlag struct {
	to   *string
	name string // of the value, in help
}

// Set is called for a value on the command line.
func (t textFlag) Set(word string) error {
	*t.to = word
	return nil
}

func (t textFlag) String() string { return *t.to }

// Type is what help calls the value.
func (t textFlag) Type() string { return t.name }
