//go:build !linux

package doctor

// checkClock finds nothing: only Linux is asked.
func checkClock() []Finding { return nil }

// isOnDisk returns false: only Linux is asked.
func isOnDisk(string) bool { return false }
