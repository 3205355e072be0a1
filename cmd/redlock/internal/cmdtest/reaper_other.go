//go:build !linux

package cmdtest

// StartReaper does nothing without /proc.
func StartReaper() error { return nil }
