package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const evidencePage, figuresPage = "../docs/design/EVIDENCE.md", "../docs/design/FIGURES.md"

var (
	codeSpan     = regexp.MustCompile("`([^`\n]+)`|(?m)^(go .+)$")
	runFlag      = regexp.MustCompile(`-run ('[^']*'|\S+)`)
	onlyFlag     = regexp.MustCompile(`-only ('[^']*'|\S+)`)
	testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	rowName      = regexp.MustCompile(`(?m)^\t+\{name: "([^"]+)"`)
	rowOfModel   = regexp.MustCompile(`(?m)^\t\{name: "([^"]+)".*?(long: true)?\}`)
	nemesisFlag  = regexp.MustCompile(`flags\.\w+\((?:&o\.\w+, )?"([^"]+)"`)
)

// Each command on the two pages names existing tests, flags and faults.
func TestEvidenceCommands(t *testing.T) {
	commands := 0
	for _, span := range codeSpan.FindAllStringSubmatch(read(t, evidencePage)+read(t, figuresPage), -1) {
		switch command := span[1] + span[2]; {
		case strings.Contains(command, "go test "):
			commands++
			checkTestCommand(t, command)
		case strings.Contains(command, "go run . "):
			commands++
			checkNemesisCommand(t, command)
		}
	}
	if commands < 25 {
		t.Errorf("%d commands on the pages, want at least 25: is their form still understood?", commands)
	}
}

// Each row of the page's figures is a row of the model's test, and each large bound has figures.
func TestEvidenceFigures(t *testing.T) {
	_, rest, found := strings.Cut(read(t, figuresPage), "\n## The model in figures")
	figures, _, _ := strings.Cut(rest, "\n## ")
	if !found {
		t.Fatal("the page has no heading \"The model in figures\"")
	}
	var shown []string
	for line := range strings.Lines(figures) {
		if cells := strings.Split(line, "|"); len(cells) > 2 && !strings.HasPrefix(line, "|--") && strings.TrimSpace(cells[1]) != "row" {
			shown = append(shown, strings.TrimSpace(cells[1]))
		}
	}
	var all []string
	for _, row := range rowOfModel.FindAllStringSubmatch(read(t, "../model/model_test.go"), -1) {
		name, long := row[1], row[2] != ""
		all = append(all, name)
		if long && !slices.Contains(shown, name) {
			t.Errorf("the page has no figures of the row %q", name)
		}
	}
	for _, name := range shown {
		if !slices.Contains(all, name) {
			t.Errorf("the model's test has no row %q", name)
		}
	}
}

// checkTestCommand checks that -run matches a test of the command's packages, and a row if it names
// one.
func checkTestCommand(t *testing.T, command string) {
	t.Helper()
	words := strings.Fields(command)
	files := testFiles(t, words[len(words)-1])
	if len(files) == 0 {
		t.Errorf("%s: there are no tests", command)
		return
	}
	flag := runFlag.FindStringSubmatch(command)
	if flag == nil {
		return
	}
	test, row, hasRow := strings.Cut(strings.Trim(flag[1], "'"), "/")
	if !matchesAny(t, command, test, files, testFunction) {
		t.Errorf("%s: no test matches %s", command, test)
	}
	if hasRow && !strings.Contains(row, "ROW") && !matchesAny(t, command, row, files, rowName) {
		t.Errorf("%s: no row matches %s", command, row)
	}
}

// testFiles returns the test files of a package, or of all packages below a directory.
func testFiles(t *testing.T, target string) (files []string) {
	t.Helper()
	root, isTree := strings.CutSuffix(filepath.Join("../..", target), "/...")
	err := filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, "_test.go") && (isTree || filepath.Dir(path) == root) {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return files
}

// matchesAny reports whether a pattern of go test matches a name that one of the files declares.
func matchesAny(t *testing.T, command, pattern string, files []string, declares *regexp.Regexp) bool {
	t.Helper()
	matcher, err := regexp.Compile(pattern)
	if err != nil {
		t.Errorf("%s: %v", command, err)
		return true
	}
	for _, name := range files {
		for _, declared := range declares.FindAllStringSubmatch(read(t, name), -1) {
			if matcher.MatchString(strings.ReplaceAll(declared[1], " ", "_")) {
				return true
			}
		}
	}
	return false
}

// checkNemesisCommand checks that the nemesis has the flags and the faults of a command.
func checkNemesisCommand(t *testing.T, command string) {
	t.Helper()
	var flags []string
	for _, flag := range nemesisFlag.FindAllStringSubmatch(read(t, "../nemesis/main.go"), -1) {
		flags = append(flags, "-"+flag[1])
	}
	_, args, _ := strings.Cut(command, "go run . ")
	for word := range strings.FieldsSeq(args) {
		if strings.HasPrefix(word, "-") && !slices.Contains(flags, word) {
			t.Errorf("%s: the nemesis has no flag %s", command, word)
		}
	}
	if only := onlyFlag.FindStringSubmatch(command); only != nil {
		part := strings.Trim(only[1], "'")
		if !slices.ContainsFunc(rowName.FindAllStringSubmatch(read(t, "../nemesis/fault.go"), -1), func(kind []string) bool { return strings.Contains(kind[1], part) }) {
			t.Errorf("%s: the nemesis has no fault %q", command, part)
		}
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
