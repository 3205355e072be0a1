package access

import "strings"

// matchPattern reports whether a lock's name matches a pattern. * matches any run of bytes without
// /, and ** any run, both also an empty one. All other bytes match themselves. The time is at most
// proportional to the product of the two lengths.
func matchPattern(pattern, name string) bool {
	plain, rest := pattern, ""
	if i := strings.IndexByte(pattern, '*'); i >= 0 {
		plain, rest = pattern[:i], pattern[i:]
	}
	name, ok := strings.CutPrefix(name, plain)
	switch {
	case !ok:
		return false
	case rest == "":
		return name == ""
	case rest == everyLock:
		return true
	}
	return matchFrom(rest, name)
}

// matchFrom reads the pattern once. reached[i] means that the part read so far matches name[:i].
func matchFrom(pattern, name string) bool {
	reached := make([]bool, len(name)+1)
	reached[0] = true
	for pattern != "" {
		switch rest, stars := cutStars(pattern); stars {
		case 0:
			for i := len(name); i > 0; i-- {
				reached[i] = reached[i-1] && name[i-1] == pattern[0]
			}
			reached[0] = false
			pattern = pattern[1:]
		default:
			// It matches any number of bytes, up to the next / unless there are two.
			for i := range len(name) {
				if reached[i] && (stars > 1 || name[i] != '/') {
					reached[i+1] = true
				}
			}
			pattern = rest
		}
	}
	return reached[len(name)]
}

// cutStars counts the stars at the beginning of a pattern.
func cutStars(pattern string) (rest string, n int) {
	rest = strings.TrimLeft(pattern, "*")
	return rest, len(pattern) - len(rest)
}
