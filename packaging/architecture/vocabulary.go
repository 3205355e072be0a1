package architecture

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Vocabulary is what comments may name: the identifiers and the words in the text of a tree's
// code, and its files. The comments themselves do not count, and neither do pages (.md).
type Vocabulary struct {
	words    map[string]bool            // identifiers, and words of string literals and other files
	files    map[string]bool            // base names
	packages map[string]map[string]bool // by name of a package: what it declares
	members  map[string]map[string]bool // by name of a type: its fields and methods
	embedded map[string][]string        // by name of a type: types whose members it has too

	Comments []Comment // of the Go and Lua files
}

// A Comment is a group of comment lines, without the comment signs.
type Comment struct {
	File string
	Line int
	Text string
}

// wordsIn returns the words of a text that may be identifiers, or several with dots between them.
// (With the race detector, a regular expression takes ten times as long.)
func wordsIn(text string) (words []string) {
	for _, name := range strings.FieldsFunc(text, func(r rune) bool {
		return r != '_' && r != '.' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		if name = strings.Trim(name, "."); name != "" && name[0] > '9' {
			words = append(words, name)
		}
	}
	return words
}

// NewVocabulary returns a Vocabulary that knows only names of other programs.
func NewVocabulary(outside ...string) *Vocabulary {
	v := &Vocabulary{
		words: map[string]bool{}, files: map[string]bool{}, packages: map[string]map[string]bool{},
		members: map[string]map[string]bool{}, embedded: map[string][]string{},
	}
	for _, name := range outside {
		v.words[name] = true
	}
	return v
}

// ReadTree adds all files below a directory.
func (v *Vocabulary) ReadTree(root string) error {
	return filepath.WalkDir(root, func(path string, entry os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "node_modules"):
			return filepath.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return v.Read(path, string(text))
	})
}

// Read adds a file.
func (v *Vocabulary) Read(path, text string) error {
	v.files[filepath.Base(path)] = true
	switch filepath.Ext(path) {
	case ".go":
		return v.readGo(path, text)
	case ".lua":
		v.readLua(path, text)
	case ".md":
	default:
		v.addText(text)
	}
	return nil
}

// addText adds the words of a text, and dotted words such as lease.ttl as they are.
func (v *Vocabulary) addText(text string) {
	for _, name := range wordsIn(text) {
		v.words[name] = true
		for part := range strings.SplitSeq(name, ".") {
			v.words[part] = true
		}
	}
}

func (v *Vocabulary) readGo(path, text string) error {
	positions := token.NewFileSet()
	file, err := parser.ParseFile(positions, path, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	for _, group := range file.Comments {
		v.Comments = append(v.Comments, Comment{path, positions.Position(group.Pos()).Line, group.Text()})
	}
	name := strings.TrimSuffix(file.Name.Name, "_test")
	for _, declaration := range file.Decls {
		switch d := declaration.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				note(v.packages, name, d.Name.Name)
			} else {
				note(v.members, baseName(d.Recv.List[0].Type), d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					note(v.packages, name, s.Name.Name)
				case *ast.ValueSpec:
					for _, ident := range s.Names {
						note(v.packages, name, ident.Name)
					}
				}
			}
		}
	}
	ast.Inspect(file, func(node ast.Node) bool {
		switch n := node.(type) {
		case *ast.CommentGroup:
			return false
		case *ast.TypeSpec: // also those inside functions
			v.addType(n)
		case *ast.Ident:
			v.words[n.Name] = true
		case *ast.BasicLit:
			if text, err := strconv.Unquote(n.Value); err == nil {
				v.addText(text)
			}
		}
		return true
	})
	return nil
}

// addType adds the members of a type, also those of structs inside it.
func (v *Vocabulary) addType(spec *ast.TypeSpec) {
	name := spec.Name.Name
	note(v.members, name, "")
	if _, isNew := spec.Type.(*ast.StructType); !isNew {
		v.embedded[name] = append(v.embedded[name], baseName(spec.Type))
	}
	ast.Inspect(spec.Type, func(node ast.Node) bool {
		field, ok := node.(*ast.Field)
		if !ok {
			return true
		}
		for _, ident := range field.Names {
			note(v.members, name, ident.Name)
		}
		if len(field.Names) == 0 {
			v.embedded[name] = append(v.embedded[name], baseName(field.Type))
			note(v.members, name, baseName(field.Type))
		}
		return true
	})
}

func note(names map[string]map[string]bool, owner, name string) {
	if names[owner] == nil {
		names[owner] = map[string]bool{}
	}
	names[owner][name] = true
}

// baseName returns the name of a type without pointer, package and type parameters.
func baseName(expression ast.Expr) string {
	switch e := expression.(type) {
	case *ast.StarExpr:
		return baseName(e.X)
	case *ast.IndexExpr:
		return baseName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// readLua takes every -- for the start of a comment: the scripts have none in a string.
func (v *Vocabulary) readLua(path, text string) {
	var block []string
	begin := 0
	flush := func() {
		if len(block) > 0 {
			v.Comments = append(v.Comments, Comment{path, begin, strings.Join(block, "\n")})
		}
		block = nil
	}
	for i, line := range strings.Split(text+"\n", "\n") {
		code, comment, has := strings.Cut(line, "--")
		v.addText(code)
		if !has || strings.TrimSpace(code) != "" && len(block) > 0 {
			flush()
		}
		if has {
			if len(block) == 0 {
				begin = i + 1
			}
			block = append(block, strings.TrimPrefix(comment, " "))
		}
	}
	flush()
}

// hasMember reports whether any type of that name has the member. It believes it of a type that
// another module declares.
func (v *Vocabulary) hasMember(owner, member string) bool {
	members, known := v.members[owner]
	return !known || members[member] || slices.ContainsFunc(v.embedded[owner], func(inner string) bool {
		return inner != owner && v.hasMember(inner, member)
	})
}

var (
	// a capital or an underscore after the first letters, but not a word in capitals
	inner     = regexp.MustCompile(`^([a-z]+[A-Z]|[A-Z][a-z0-9]+[A-Z])[A-Za-z0-9]*$|^[a-z0-9]+_[a-z0-9_]+$`)
	codeFile  = regexp.MustCompile(`[\w-]+\.(?:go|lua|pml|hcl)\b`)
	guards    = regexp.MustCompile(`Guards ([^.]|\.\w)*`) // code without which the test fails
	oneWord   = regexp.MustCompile(`^[a-z]+$`)
	codeRange = regexp.MustCompile(`(?m)^[ \t].*$`) // examples and tables
)

// Unknown returns the names in a comment that do not exist: words that look like an identifier,
// because they have a capital or an underscore inside; members that neither a type nor a package
// of that name has; files; and what a test says that it guards.
func (v *Vocabulary) Unknown(comment string) (unknown []string) {
	for _, name := range codeFile.FindAllString(comment, -1) {
		if !v.files[name] && !v.words[name] {
			unknown = append(unknown, name)
		}
	}
	comment = codeFile.ReplaceAllString(comment, " ")
	for _, list := range guards.FindAllString(comment, -1) {
		for _, name := range strings.FieldsFunc(strings.TrimPrefix(list, "Guards"), func(r rune) bool { return strings.ContainsRune(";:,", r) }) {
			if name = strings.TrimSpace(name); oneWord.MatchString(name) && !v.words[name] {
				unknown = append(unknown, name)
			}
		}
	}
	for _, name := range wordsIn(comment) {
		if v.words[name] { // also lease.ttl
			continue
		}
		parts := strings.Split(name, ".")
		for i, part := range parts {
			switch {
			case inner.MatchString(part) && !v.words[part]:
				unknown = append(unknown, part)
			case i > 0 && !v.hasPart(parts[i-1], part):
				unknown = append(unknown, parts[i-1]+"."+part)
			}
		}
	}
	return unknown
}

// hasPart reports whether owner.name exists, as far as the tree can tell.
func (v *Vocabulary) hasPart(owner, name string) bool {
	_, isType := v.members[owner]
	declared, isPackage := v.packages[owner]
	return !isType && !isPackage || declared[name] || isType && v.hasMember(owner, name)
}

// Repeated returns words that a comment has twice: eight in a row anywhere, or up to eight twice
// in succession.
func Repeated(comment string) string {
	const row = 8
	words := strings.Fields(codeRange.ReplaceAllString(comment, ""))
	seen := map[[row]string]bool{}
	for i := range words {
		for n := 1; n <= row && i+2*n <= len(words); n++ {
			if words[i] != words[i+n] || !slices.Equal(words[i:i+n], words[i+n:i+2*n]) {
				continue
			}
			if n > 1 || strings.HasSuffix(words[i], ".") { // "on which which" is English
				return strings.Join(words[i:i+n], " ")
			}
		}
		if i+row <= len(words) {
			next := [row]string(words[i:])
			if seen[next] {
				return strings.Join(next[:], " ")
			}
			seen[next] = true
		}
	}
	return ""
}
