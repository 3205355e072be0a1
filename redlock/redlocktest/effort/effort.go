package effort

import (
	"os"
	"strconv"
)

// IsLong reports whether the tests may take hours.
func IsLong() bool { return os.Getenv("REDLOCKD_LONG") != "" }

// Rounds returns few, or many if the tests may take hours.
func Rounds(few, many int) int {
	if IsLong() {
		return many
	}
	return few
}

// Chooses reports whether the i-th check of a list runs: all do if REDLOCKD_TENTH is not set.
func Chooses(i int) bool {
	text := os.Getenv("REDLOCKD_TENTH")
	if text == "" || IsLong() {
		return true
	}
	tenth, err := strconv.Atoi(text)
	if err != nil || tenth < 0 || tenth > 9 {
		panic("REDLOCKD_TENTH: wanted 0 to 9, found " + strconv.Quote(text))
	}
	return i%10 == tenth
}
