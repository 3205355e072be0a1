package config

import (
	"fmt"
	"strings"
	"time"
)

// parseDuration reads "250ms", "10s", "2m" or "1h30m": whole milliseconds
// between shortest and longest. It refuses a number without a unit, also "0": the
// command line would take it for seconds and the protocol for milliseconds.
func parseDuration(value string, shortest, longest time.Duration) (d time.Duration, wanted string) {
	d, err := time.ParseDuration(value)
	switch {
	case value != "" && strings.Trim(value, "0123456789.") == "":
		return 0, fmt.Sprintf(`a duration with a unit ("%ss" is seconds, "%sms" milliseconds)`, value, value)
	case err != nil:
		return 0, `a duration such as "250ms", "10s", "2m" or "1h30m"`
	case d%time.Millisecond != 0:
		return 0, "a duration in whole milliseconds"
	case d < shortest || d > longest:
		return 0, fmt.Sprintf("a duration from %s to %s", formatDuration(shortest), formatDuration(longest))
	}
	return d, ""
}

// formatDuration writes d in its short form: 24h, not 24h0m0s.
func formatDuration(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
