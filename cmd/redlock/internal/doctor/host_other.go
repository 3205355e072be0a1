//go:build !linux

package doctor

// checkClock finds nothing: the check exists on Linux only.
func checkClock() []Finding { return nil }

// isOnDisk returns false: the check exists on Linux only.
func isOnDisk(string) bool { return false }
