//go:build !linux

package holder

// holderAbove returns the caller: only Linux shows the processes above it.
func holderAbove(caller int) (pid int, text string) { return caller, "" }

// shellsAbove returns none: only Linux shows them.
func shellsAbove(int) []int { return nil }
